"""What is kept of a chain: how often a whole state, said by the genesis; how much, by each node."""

from pydantic import BaseModel, ConfigDict, Field

from daa_dag.retention import Retention


class CheckpointsConfig(BaseModel):
    """What a network keeps of its chain beside the deltas: of the genesis, the same for all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # A snapshot costs 8 bytes a parameter, a delta 1.02: at 8 both cost the same, and a restore
    # replays seven deltas at most.
    snapshot_every: int = Field(8, ge=1, le=1024, description="vertices from snapshot to snapshot")


class StorageConfig(BaseModel):
    """The `storage` section of config.yaml: how far back this node can restore, and so others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Proofs (vertices, blocks, certificates) are always kept: a chain can be verified from its
    # oldest whole state on, and who was away for longer takes up the chain there.
    vertices_restorable: int | None = Field(
        None, ge=1, description="the newest so many; null keeps every delta and whole state"
    )

    @property
    def retention(self) -> Retention:
        return Retention(self.vertices_restorable)
