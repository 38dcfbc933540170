"""What the library raised where that ends no more than one task: counted, and told now and then."""

from collections import Counter
from collections.abc import Callable

import trio

TOLD_EVERY_S = 600.0  # of each kind of work: peers may provoke one with every message

# (where, what it raised last, how often there since the start)
Tell = Callable[[str, str, int], None]


class Mishaps:
    """`tell` hears of the first of each kind of work, and of the newest every TOLD_EVERY_S."""

    def __init__(self, tell: Tell | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._tell = tell
        self._told_at_s: dict[str, float] = {}

    def note(self, where: str, fault: Exception) -> None:
        """`where` is one of a few words of ours."""
        self.counts[where] += 1
        now_s = trio.current_time()
        if now_s - self._told_at_s.get(where, -TOLD_EVERY_S) >= TOLD_EVERY_S:
            self._told_at_s[where] = now_s
            if self._tell is not None:
                self._tell(where, repr(fault), self.counts[where])
