"""How long a round may take and how much work it asks for: part of the genesis."""

from pydantic import BaseModel, ConfigDict, Field


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
