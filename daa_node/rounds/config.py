"""How long a round may take, how much work it asks for, and when all is done: of the genesis."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

# To train takes a step at least, which reads and writes 16 bytes a parameter; to execute reads and
# writes as many, and hashes the half. Both take longer than that on any machine of today.
LEAST_US_A_MILLION = 50_000


class RoundsConfig(BaseModel):
    """Ceilings and windows of one outer round."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inner_steps_max: int = Field(
        20, ge=1, le=100_000, description="H: inner steps of the fastest participant"
    )
    window_ms: int = Field(
        10_000, ge=100, le=86_400_000, description="time to train, upload and collect Acks"
    )
    exec_ms: int = Field(
        20_000, ge=100, le=86_400_000, description="time to execute a decided set before aborting"
    )

    @property
    def window_s(self) -> float:
        return self.window_ms / 1e3

    @property
    def exec_s(self) -> float:
        return self.exec_ms / 1e3

    def why_too_short(self, parameter_count: int) -> str | None:
        """Why no round of so large a model would ever end; None if one may."""
        least_ms = parameter_count * LEAST_US_A_MILLION // 10**9
        for name, given_ms in (("window_ms", self.window_ms), ("exec_ms", self.exec_ms)):
            if given_ms < least_ms:
                return (
                    f"rounds.{name} is {given_ms}, and with {parameter_count} parameters no host "
                    f"is done so soon: set it to {least_ms} at least, ten times that on slow disks"
                )
        return None


class EndConfig(BaseModel):
    """When the job is done: at whichever of these comes first; at least one is set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int | None = Field(None, ge=1, le=10**9, description="finalized outer rounds")
    tokens: int | None = Field(None, ge=1, le=10**18, description="of all contributors together")
    target_loss: float | None = Field(None, gt=0, le=100, description="held-out, nats a byte")

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.rounds is None and self.tokens is None and self.target_loss is None:
            raise ValueError("a job ends by rounds, tokens or target_loss: set at least one")
        return self
