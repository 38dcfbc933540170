"""What came of a check, and which part of a contribution it concerns."""

from dataclasses import dataclass
from enum import StrEnum

from daa_node.seams import SegmentCheck


class Finding(StrEnum):
    """What came of one check."""

    SOUND = "sound"  # within the tolerance
    DOUBTED = "doubted"  # within it, and further off than these two devices' rounding explains
    DIFFERS = "differs"  # beyond it
    UNSHOWN = "unshown"  # the author did not bring what it had committed to
    UNCHECKED = "unchecked"  # no time for it here, or our own worker failed: says nothing


class Part(StrEnum):
    """Of what an author claims."""

    START = "start"  # the round's first boundary does not continue what is certified
    OWED = "owed"  # the residual of error feedback changed before the seal
    STEPS = "steps"  # their count
    WEIGHTS = "weights"
    FIRST = "first_moment"
    SECOND = "second_moment"
    RESIDUAL = "residual"  # that the seal has left
    UPDATE = "update"  # what the last boundary was sealed into


@dataclass(frozen=True, slots=True)
class Difference:
    """What does not come out as its author says."""

    parts: tuple[Part, ...]  # the furthest off first
    distance: float  # of that one, relative L2; infinite where nothing may differ


def distance_of(found: SegmentCheck) -> float:
    """Of the part that is furthest off."""
    return max(_distances(found).values())


def difference(found: SegmentCheck, tolerance: float) -> Difference | None:
    """Which parts are further off than the tolerance, as relative L2; None if none is."""
    far = {part: d for part, d in _distances(found).items() if d > tolerance}
    if not far:
        return None
    parts = sorted(far, key=lambda part: -far[part])
    return Difference(tuple(parts), far[parts[0]])


def doubt(found: SegmentCheck, tolerance: float) -> Difference | None:
    """Which of a segment's steps' parts are further off than that; None if none is.

    The seal's are left out: a code's rounding makes little of nothing, and no canary has one.
    """
    steps = SegmentCheck(found.weights, found.first, found.second, 0.0, None, steps_agree=True)
    return difference(steps, tolerance)


def _distances(found: SegmentCheck) -> dict[Part, float]:
    return {
        Part.STEPS: 0.0 if found.steps_agree else float("inf"),
        Part.WEIGHTS: found.weights,
        Part.FIRST: found.first,
        Part.SECOND: found.second,
        Part.RESIDUAL: found.residual,
        Part.UPDATE: 0.0 if found.sealed is None else found.sealed,
    }
