"""How long a node remembers each round by itself; what is older is told by the hour, then the day.

Where there is an HTTP API, unless the operator says otherwise: its dashboard asks for the past.
Without it the chain and the event log are there.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

# Four weeks: last month's bill can still be looked at round by round.
ROUNDS_DAYS = 28


class HistoryConfig(BaseModel):
    """The `history` section of config.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool | None = Field(
        None,
        description="keep rounds, decisions and contributions for years, in D/history; "
        "null: where api.listen is set",
    )
    rounds_days: int = Field(
        ROUNDS_DAYS,
        ge=1,
        le=3650,
        description="each round by itself for so long; then a row an hour, a year later a day",
    )
    baseline: Path | None = Field(
        None, description="another run's `rounds --json` or `simnet run --json`, to compare with"
    )

    def is_kept(self, has_api: bool) -> bool:
        """`has_api`: whether this node serves its operator's HTTP API."""
        return has_api if self.enabled is None else self.enabled
