"""How long a peer's round trips took: the mean of each minute of the last hour, of one peer.

Half a kilobyte each, so that a thousand peers are half a megabyte.
"""

from array import array

MINUTES_KEPT = 60
MINUTE_S = 60.0


class RoundTrips:
    """Times are of a monotonic clock in seconds."""

    __slots__ = ("_counts", "_newest", "_sums_s")

    def __init__(self) -> None:
        self._sums_s = array("f", bytes(4 * MINUTES_KEPT))  # by minute, in a ring
        self._counts = array("H", bytes(2 * MINUTES_KEPT))
        self._newest = 0  # minute

    def note(self, rtt_s: float, now_s: float) -> None:
        self._go_on(now_s)
        at = self._newest % MINUTES_KEPT
        if self._counts[at] < 0xFFFF:
            self._counts[at] += 1
            self._sums_s[at] += rtt_s

    def has_any(self, now_s: float) -> bool:
        """Whether anything was measured in the hour."""
        self._go_on(now_s)
        return any(self._counts)

    def told_ms(self, now_s: float) -> list[float | None]:
        """The oldest minute first, the one that is under way last; None: nothing was measured."""
        self._go_on(now_s)
        told: list[float | None] = []
        for minute in range(self._newest - MINUTES_KEPT + 1, self._newest + 1):
            at = minute % MINUTES_KEPT
            count = self._counts[at]
            told.append(round(self._sums_s[at] / count * 1e3, 1) if count else None)
        return told

    def _go_on(self, now_s: float) -> None:
        """Forget the minutes whose place those since then take."""
        minute = int(now_s // MINUTE_S)
        for passed in range(min(minute - self._newest, MINUTES_KEPT)):
            at = (minute - passed) % MINUTES_KEPT
            self._sums_s[at], self._counts[at] = 0.0, 0
        self._newest = max(self._newest, minute)
