"""What a network chooses about agreement: part of the genesis, so equal on every node."""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from daa_consensus.membership import EXPIRY_EPOCHS_MAX

OBJECTION_EPOCHS_MAX = EXPIRY_EPOCHS_MAX // 4  # a node's own request lasts twice as long


class AgreementConfig(BaseModel):
    """Times in milliseconds, epochs in rounds. The defaults suit hosts on one continent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # An upper bound on one message's way between honest validators, usual jitter included. The
    # leader has 2 deltas to propose, a view 3 to notarize; too small costs views, never safety.
    delta_ms: int = Field(
        default=500, ge=10, le=60_000, description="how long one message takes at most, as a rule"
    )
    # Timeouts double over consecutive nullified views up to this: long enough for a network that is
    # eight times slower than delta says, short enough to recover soon after an outage.
    view_timeout_cap_ms: int = Field(
        default=12_000, ge=30, le=3_600_000, description="how far the timeout of a view may double"
    )
    # An epoch is this many rounds, and validators and stake change only between epochs. A node that
    # was away catches up by one certificate an epoch; four rounds are what one page of it carries
    # anyway, so that shorter epochs cost more and longer ones save nothing.
    epoch_rounds: int = Field(
        default=4, ge=1, le=1000, description="an epoch; validators change only between two"
    )
    # A seat is handed to a new key no sooner than so many rounds after a set brought the request:
    # time for the owner of a stolen key to see it and to withdraw it.
    objection_rounds: int = Field(
        default=400,
        ge=1,
        le=100_000,
        description="before a seat goes to a new key: time to object to a thief",
    )

    @property
    def objection_epochs(self) -> int:
        """The whole epochs that have as many rounds as the owner has to object."""
        return -(-self.objection_rounds // self.epoch_rounds)

    @property
    def doublings_max(self) -> int:
        """How often a view's timeout of 3 deltas may double and stay under the cap."""
        return (self.view_timeout_cap_ms // (3 * self.delta_ms)).bit_length() - 1

    @model_validator(mode="after")
    def _cap_leaves_room(self) -> "AgreementConfig":
        if self.view_timeout_cap_ms < 3 * self.delta_ms:
            raise ValueError(
                f"view_timeout_cap_ms {self.view_timeout_cap_ms} is under the first timeout of "
                f"3 x delta_ms = {3 * self.delta_ms}"
            )
        if self.objection_epochs > OBJECTION_EPOCHS_MAX:
            raise ValueError(
                f"objection_rounds {self.objection_rounds} are {self.objection_epochs} epochs of "
                f"{self.epoch_rounds} rounds; a request lasts for {OBJECTION_EPOCHS_MAX} at most"
            )
        return self
