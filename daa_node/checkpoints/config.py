"""What is kept of a chain: how often a whole state, said by the genesis; how much, by each node."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from daa_dag.retention import Retention


class CheckpointsConfig(BaseModel):
    """What a network keeps of its chain beside the deltas: of the genesis, the same for all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # A snapshot costs 8 bytes a parameter, a delta 1.02: at 8 both cost the same, and a restore
    # replays seven deltas at most.
    snapshot_every: int = Field(8, ge=1, le=1024, description="vertices from snapshot to snapshot")


# Of a pruned node that does not say. Four hours of rounds of a minute: who was away for a night
# takes a whole state instead.
PRUNED_VERTICES = 256
EPOCHS_WHOLE = 2  # who is behind by so many still follows page by page


class StorageConfig(BaseModel):
    """The `storage` section of config.yaml: how far back this node can restore, and so others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Vertices and blocks are always kept, and a certificate an epoch: so a chain can be verified
    # back to its genesis, its states from its oldest whole one on.
    history: Literal["archive", "pruned"] = Field(
        "archive", description="pruned: of old epochs one certificate each, and no old states"
    )
    # Who was away for longer takes up the chain at a whole state.
    vertices_restorable: int | None = Field(
        None,
        ge=1,
        description="the newest so many; null keeps every delta and whole state of an archive, "
        f"and {PRUNED_VERTICES} of a pruned history",
    )

    bytes_max: int | None = Field(
        None,
        ge=2**20,
        description="of chain/ and work/ together; old states go before, then, if pruned, proofs",
    )

    @property
    def retention(self) -> Retention:
        if self.history == "archive":
            return Retention(self.vertices_restorable, bytes_max=self.bytes_max)
        return Retention(self.vertices_restorable or PRUNED_VERTICES, EPOCHS_WHOLE, self.bytes_max)
