"""The same work on many inputs, over several processes that never outlive who ordered it.

An interrupt is for the process that ordered the work alone to see; leaving the block ends the
others. If it was killed, they notice by their broken pipes, when they have ended what they were at.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from daa_node.errors import UserError

KILLED = "one of {} processes was killed, for want of memory perhaps: try fewer (--jobs)"
LOOK_S = 1.0  # how often it is looked whether everybody still works

Input = TypeVar("Input")
Output = TypeVar("Output")


def each(
    work: Callable[[Input], Output],
    inputs: Sequence[Input],
    jobs: int | None = None,
    chunk: int = 1,
) -> Iterator[Output]:
    """What `work` makes of each input, in their order; a process takes `chunk` of them at a time.

    `jobs`: processes; one a core if none. With one of either there is no other process. Raises
    UserError when one of them is killed: what it was at would never come.
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1 or len(inputs) <= chunk:
        yield from map(work, inputs)
        return
    # A pool that is interrupted while it is made would leave processes behind. What it starts keeps
    # the mask, and so never hears of interrupts.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        workers = set(multiprocessing.active_children())
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        batches = [inputs[at : at + chunk] for at in range(0, len(inputs), chunk)]
        results = pool.imap(partial(_all_of, work), batches)
        while True:
            try:
                yield from results.next(LOOK_S)
            except StopIteration:
                return
            except multiprocessing.TimeoutError:
                if not workers <= set(multiprocessing.active_children()):
                    raise UserError(KILLED.format(jobs), exit_code=1) from None


def _all_of(work: Callable[[Input], Output], inputs: Sequence[Input]) -> list[Output]:
    return list(map(work, inputs))
