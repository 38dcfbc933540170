"""An allowance in bytes a second that is spent first and earned afterwards.

One piece of work may cost more than what is left, whatever its size; the next one waits until the
debt is earned. So no allowance has to be as large as the largest piece.
"""

import trio


class Purse:
    """`bytes_per_s` in the long run, `burst_bytes` at once. Starts full; needs a running trio."""

    def __init__(self, bytes_per_s: float, burst_bytes: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._burst_bytes = burst_bytes
        self._left = burst_bytes
        self._at_s = trio.current_time()

    @property
    def debt_s(self) -> float:
        """Seconds until something may be spent again; 0 if it may now."""
        self._earn()
        return max(0.0, -self._left / self._bytes_per_s)

    def spend(self, size_bytes: float) -> None:
        self._earn()
        self._left -= size_bytes

    def _earn(self) -> None:
        now_s = trio.current_time()
        earned = self._left + (now_s - self._at_s) * self._bytes_per_s
        self._left, self._at_s = min(self._burst_bytes, earned), now_s
