"""How much of what contributors say they trained is trained again by others: of the genesis."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from daa_consensus.bft.limits import OPENED_MAX, SNAPSHOTS_MAX
from daa_node.updates.grid import RATE_TERM_MAX

SEGMENTS_MAX = SNAPSHOTS_MAX - 1  # a boundary at each end of a segment


class SpotChecksConfig(BaseModel):
    """The lot, and what it draws from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    share: tuple[int, int] = Field(
        (1, 10), description="of a round's contributions: [1, 10] draws a tenth, [0, 1] none"
    )
    # A check costs its segment's part of a round's training, a boundary 16 bytes a parameter.
    segments: int = Field(4, ge=1, le=SEGMENTS_MAX, description="that a full round is cut into")
    checkers: int = Field(1, ge=1, le=16, description="that train a drawn segment again")

    # Of ten thousand honest segments on mixed machines the furthest was 3.1e-3 off, and a single
    # step 9.5e-4, where AdamW divides a gradient that is all rounding; the mildest cheat is 1.7e-2.
    tolerance: tuple[int, int] = Field(
        (1, 200), description="relative L2 of what is trained again, [1, 200] for 5e-3"
    )

    @model_validator(mode="after")
    def _are_parts_of_one(self) -> Self:
        # a tolerance of nothing would find honest devices false, one of more than all nobody
        for name, terms, least in (("share", self.share, 0), ("tolerance", self.tolerance, 1)):
            numerator, denominator = terms
            if denominator == 0 or not least <= numerator <= denominator <= RATE_TERM_MAX:
                bound = "above 0" if least else "at least 0"
                raise ValueError(
                    f"{name} is [{numerator}, {denominator}], as a fraction; it must be {bound} "
                    f"and at most 1, its terms at most {RATE_TERM_MAX}"
                )
        return self

    def why_too_long(self, inner_steps_max: int) -> str | None:
        """Why nobody could open a segment of so long a round; None if anybody can."""
        steps, most = self.segment_steps(inner_steps_max), OPENED_MAX - 1
        if steps <= most:
            return None
        enough = -(-inner_steps_max // most)
        remedy = f"set spot_checks.segments to {enough}"
        if enough > SEGMENTS_MAX:
            remedy = f"set inner_steps_max to {SEGMENTS_MAX * most} or less, or share to [0, 1]"
        return (
            f"spot_checks: {self.segments} segments of rounds.inner_steps_max {inner_steps_max} "
            f"have {steps} steps each, and a dispute opens {most} at most; {remedy}"
        )

    @property
    def is_on(self) -> bool:
        """Whether anybody is ever checked, and so whether anybody keeps boundaries."""
        return self.share[0] > 0

    def segment_steps(self, inner_steps_max: int) -> int:
        """Inner steps of a segment; 0 if nobody is checked."""
        return -(-inner_steps_max // self.segments) if self.is_on else 0
