"""Token buckets: how often something may happen, or how much of it, and how much at once.

What is spent before it is known how much it is becomes a debt: one piece of work may cost more than
what is left, whatever its size, and the next one waits until that is earned.
"""

from collections.abc import Callable

import trio

from daa_consensus.committee import VALIDATORS_MAX
from daa_dag.ids import NodeId

# Beyond so many the full ones are dropped, which are as good as new: a member can bring in ever new
# names that wait to join.
PACES_KEPT = 4 * VALIDATORS_MAX  # of this committee and the last, and of as many as may wait


class Pace:
    """`per_s` in the long run, `burst` at once. Starts full; needs a running trio."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at_s = trio.current_time()

    async def take(self, amount: float = 1.0) -> None:
        """Whoever is too fast waits, and loses nothing."""
        self.spend(amount)
        if self._left < 0:
            await trio.sleep(self.debt_s)

    @property
    def debt_s(self) -> float:
        """Seconds until nothing is owed; 0 if nothing is."""
        if self._left >= 0:
            return 0.0  # nothing was, and time makes it no more
        self._refill()
        return max(0.0, -self._left / self._per_s)

    @property
    def is_full(self) -> bool:
        self._refill()
        return self._left >= self._burst

    def spend(self, amount: float) -> None:
        """Whether there is enough or not."""
        self._refill()
        self._left -= amount

    def take_at_once(self, amount: float = 1.0) -> bool:
        """Whether there was enough; nothing is taken if not."""
        self._refill()
        if self._left < amount:
            return False
        self._left -= amount
        return True

    def _refill(self) -> None:
        now_s = trio.current_time()
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s


class Paces:
    """One pace each for members: so many bytes a delta in the long run, twice as many at once."""

    def __init__(self, delta_s: float, bytes_a_delta: Callable[[], int]) -> None:
        """`bytes_a_delta` grows with the committee, as messages do."""
        self._delta_s = delta_s
        self._bytes_a_delta = bytes_a_delta
        self._paces: dict[NodeId, tuple[int, Pace]] = {}  # of members: nobody else is served

    def of(self, member: NodeId) -> Pace:
        most = self._bytes_a_delta()
        of_most, pace = self._paces.get(member, (0, None))
        if pace is None or of_most < most:
            if len(self._paces) >= PACES_KEPT:
                self._paces = {n: held for n, held in self._paces.items() if not held[1].is_full}
            pace = Pace(most / self._delta_s, 2.0 * most)
            self._paces[member] = (most, pace)
        return pace

    def forget(self, member: NodeId) -> None:
        self._paces.pop(member, None)


class SharedPace:
    """A Pace of many: whoever asks first is served first, and who leaves the queue took nothing."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._pace = Pace(per_s, burst)
        self._turn = trio.Lock()

    async def take(self, amount: float) -> None:
        async with self._turn:
            await self._pace.take(amount)
