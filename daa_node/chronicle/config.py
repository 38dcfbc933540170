"""How long a node remembers each round by itself; what is older is told by the hour, then the day.

Off, unless the operator says so: the chain and the event log are there without it.
"""

from pydantic import BaseModel, ConfigDict, Field

# Four weeks: last month's bill can still be looked at round by round.
ROUNDS_DAYS = 28


class HistoryConfig(BaseModel):
    """The `history` section of config.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(
        False, description="keep rounds, decisions and contributions for years, in D/history"
    )
    rounds_days: int = Field(
        ROUNDS_DAYS,
        ge=1,
        le=3650,
        description="each round by itself for so long; then a row an hour, a year later a day",
    )
    baseline: str | None = Field(
        None, description="another run's `rounds --json` or `simnet run --json`, to compare with"
    )
