"""What happens when: calls at points in virtual time, in integer nanoseconds.

Calls of one moment are made in the order in which they were asked for, so that a run depends on
nothing else. Times ahead are kept by slots of about a millisecond (a calendar queue: R. Brown,
CACM 31(10), 1988): only the slot that is due is a heap, and a heap of a few hundred is cheap where
one of a million is not.

Invariant: time never goes back; whoever asks for a moment in the past has a bug.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

SLOT_BITS = 20  # 2^20 ns: links take tenths of a millisecond up to half a second

Call = Callable[..., None]
Event = tuple[int, int, Call, tuple[Any, ...]]  # (when, the how-manieth asked for, what)


class Engine:
    """The clock of one simulated world, and everything that is still to happen in it."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0  # calls made so far
        self._asked = 0
        self._slot = 0  # of `_due`; everything later is in `_later`
        self._due: list[Event] = []  # a heap
        self._later: dict[int, list[Event]] = {}
        self._slots: list[int] = []  # the keys of `_later`, a heap

    @property
    def pending(self) -> int:
        """Calls that are still to be made."""
        return self._asked - self.events

    def at(self, when_ns: int, call: Call, *args: Any) -> None:
        """Make `call(*args)` at `when_ns`, after everything that was asked for that moment."""
        assert when_ns >= self.now_ns, f"{when_ns} ns is over, it is {self.now_ns} ns"
        self._asked = asked = self._asked + 1
        slot = when_ns >> SLOT_BITS
        if slot <= self._slot:
            heappush(self._due, (when_ns, asked, call, args))
        elif slot in self._later:
            self._later[slot].append((when_ns, asked, call, args))
        else:
            self._later[slot] = [(when_ns, asked, call, args)]
            heappush(self._slots, slot)

    def run(self, until_ns: int) -> None:
        """Make all calls up to and at `until_ns`, those that they ask for included."""
        due = self._due
        while True:
            while due and due[0][0] <= until_ns:
                when_ns, _, call, args = heappop(due)
                self.now_ns = when_ns
                self.events += 1
                call(*args)
            if due or not self._slots or self._slots[0] << SLOT_BITS > until_ns:
                break
            self._slot = heappop(self._slots)
            due = self._due = self._later.pop(self._slot)
            heapify(due)
        self.now_ns = max(self.now_ns, until_ns)
