"""How often a network keeps a whole state: part of the genesis, the same for all."""

from pydantic import BaseModel, ConfigDict, Field


class CheckpointsConfig(BaseModel):
    """What is kept of the chain beside its deltas."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # A snapshot costs 8 bytes a parameter, a delta 1.02: at 8 both cost the same, and a restore
    # replays seven deltas at most.
    snapshot_every: int = Field(8, ge=1, le=1024, description="vertices from snapshot to snapshot")
