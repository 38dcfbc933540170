"""How much of its own story a node keeps on disk."""

from pydantic import BaseModel, ConfigDict, Field


class LogConfig(BaseModel):
    """The event log's files: `events.jsonl`, then `events.jsonl.1` and so on, oldest last."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file_bytes_max: int = Field(
        8_000_000, ge=10_000, le=10**10, description="at which a file is rotated"
    )
    files_max: int = Field(4, ge=1, le=100, description="rotated files kept beside the newest")
    each_minute: bool = Field(
        False, description="say once a minute how the node stands where there is no terminal, too"
    )
