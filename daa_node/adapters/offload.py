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
    """Runs each piece of work on one of at most `threads_max` threads."""

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._limiter = trio.CapacityLimiter(threads_max)

    async def run(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limiter)
