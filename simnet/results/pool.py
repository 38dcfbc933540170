"""The same work on many inputs, over several processes that never outlive who ordered it.

An interrupt is for the process that ordered the work alone to see. Each of the others reads a pipe
that nobody writes to, and ends when its other end closes: as the work is over, or broken off, or as
whoever ordered it was killed.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from daa_node.errors import UserError

LOOK_S = 1.0  # how often it is looked whether who ordered the work is still there
KILLED = "one of {} processes was killed, for want of memory perhaps: try fewer (--jobs)"

# Held in each of the processes but while it works: as it takes an order, and sends what came of it.
_between = threading.Lock()

Input = TypeVar("Input")
Output = TypeVar("Output")


def each(
    work: Callable[[Input], Output],
    inputs: Sequence[Input],
    jobs: int | None = None,
    chunk: int = 1,
) -> Generator[Output, None, None]:
    """What `work` makes of each input, in their order; a process takes `chunk` of them at a time.

    `jobs`: processes; one a core if none. With one of either there is no other process. Raises
    UserError when one of them is killed: what it was at would never come.
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1 or len(inputs) <= chunk:
        yield from map(work, inputs)
        return
    batches = [inputs[at : at + chunk] for at in range(0, len(inputs), chunk)]
    count = min(jobs, len(batches))
    reading, writing = os.pipe()
    pool = ProcessPoolExecutor(
        count,
        multiprocessing.get_context("fork"),
        initializer=_end_with,
        initargs=(reading, writing, os.getpid()),
    )
    try:
        # The first batch starts all of them. They keep the mask, and so never hear of interrupts.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            results = [pool.submit(_all_of, work, batches[0])]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        results += [pool.submit(_all_of, work, batch) for batch in batches[1:]]
        results.reverse()
        while results:
            yield from results.pop().result()
    except BrokenProcessPool as broken:
        if broken.__cause__ is not None:  # not killed: a result that could not be sent, say
            raise
        raise UserError(KILLED.format(count), exit_code=1) from None
    finally:
        os.close(writing)
        pool.shutdown(cancel_futures=True)
        os.close(reading)


def _end_with(reading: int, writing: int, orderer: int) -> None:
    """End this process when nobody has `writing` any more. Ours is a copy, and would keep it."""
    os.close(writing)
    _between.acquire()

    def watch() -> None:
        os.read(reading, 1)
        # Half a result would be waited for without end. Who is killed waits for none.
        while not _between.acquire(timeout=LOOK_S) and os.getppid() == orderer:
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _all_of(work: Callable[[Input], Output], inputs: Sequence[Input]) -> list[Output]:
    _between.release()
    try:
        return list(map(work, inputs))
    finally:
        _between.acquire()
