"""What happens when: calls at points in virtual time, in integer nanoseconds.

Calls of one moment are made in the order in which they were asked for, so that a run depends on
nothing else.

Invariant: time never goes back; whoever asks for a moment in the past has a bug.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Call = Callable[..., None]


class Engine:
    """The clock of one simulated world, and everything that is still to happen in it."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0  # calls made so far
        self._asked = 0
        # a heap of (when, the how-manieth asked for, what)
        self._due: list[tuple[int, int, Call, tuple[Any, ...]]] = []

    def at(self, when_ns: int, call: Call, *args: Any) -> None:
        """Make `call(*args)` at `when_ns`, after everything that was asked for that moment."""
        assert when_ns >= self.now_ns, f"{when_ns} ns is over, it is {self.now_ns} ns"
        self._asked += 1
        heappush(self._due, (when_ns, self._asked, call, args))

    def run(self, until_ns: int) -> None:
        """Make all calls up to and at `until_ns`, those that they ask for included."""
        due = self._due
        while due and due[0][0] <= until_ns:
            self.now_ns, _, call, args = heappop(due)
            self.events += 1
            call(*args)
        self.now_ns = max(self.now_ns, until_ns)
