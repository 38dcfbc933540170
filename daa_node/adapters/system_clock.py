"""The host's wall clock and its entropy."""

import os
import time


class SystemClock:
    """Unix time. For expiry dates only: intervals use trio's monotonic clock."""

    def wall_ns(self) -> int:
        return time.time_ns()


class SystemEntropy:
    """The kernel's random bytes."""

    def bytes(self, size_bytes: int) -> bytes:
        return os.urandom(size_bytes)
