"""Lessons: what was predicted, what happened, kept for a bounded number of rounds."""

from collections import deque
from dataclasses import dataclass

LESSONS_MAX = 64  # adapt looks at the newest few; the rest is for people


@dataclass(frozen=True, slots=True)
class Lesson:
    """One round's forecast against what came of it. Times in seconds."""

    round: int
    trained_s_predicted: float | None
    trained_s: float | None
    spread_s: float | None  # from our own update to the last contribution that counted
    left_out: int  # contributions that were offered and came too late
    own_in_time: bool | None  # None: we offered nothing, or saw no set


class Lessons:
    """The newest LESSONS_MAX lessons, oldest first."""

    def __init__(self) -> None:
        self._kept: deque[Lesson] = deque(maxlen=LESSONS_MAX)

    def add(self, lesson: Lesson) -> None:
        self._kept.append(lesson)

    def newest(self, count: int) -> list[Lesson]:
        return list(self._kept)[-count:]
