"""Blocking work on threads, so that the event loop keeps turning.

Cancelling the caller does not abandon the thread: what was begun on disk is finished, and a
cancelled caller learns of it at its next checkpoint.
"""

from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")

# Disk and hashing, not waiting: more threads than this only fight over two cores and one disk.
THREADS_MAX = 8


class ThreadOffload:
    """Runs each piece of work on one of at most THREADS_MAX threads."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(THREADS_MAX)

    async def run(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limiter)
