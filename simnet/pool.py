"""The same work on many inputs, over several processes that never outlive who ordered it.

An interrupt is for the process that ordered the work alone to see; leaving the block ends the
others. If it was killed, they notice by their broken pipes, when they have ended what they were at.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Input = TypeVar("Input")
Output = TypeVar("Output")


def each(
    work: Callable[[Input], Output],
    inputs: Sequence[Input],
    jobs: int | None = None,
    chunk: int = 1,
) -> Iterator[Output]:
    """What `work` makes of each input, in their order; a process takes `chunk` of them at a time.

    `jobs`: processes; one a core if none. With one of either there is no other process.
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1 or len(inputs) <= chunk:
        yield from map(work, inputs)
        return
    # A pool that is interrupted while it is made would leave processes behind. What it starts keeps
    # the mask, and so never hears of interrupts.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield from pool.imap(work, inputs, chunk)
