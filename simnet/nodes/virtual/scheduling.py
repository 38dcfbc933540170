"""One trio run whose every step follows from the seed, and in which a node can be stopped dead.

trio offers neither, so this module uses four private names of it and is why trio is pinned:

  * `_ALLOW_DETERMINISTIC_SCHEDULING` and `_r`: runnable tasks are put in the order in which they
    were spawned and then shuffled by `_r`, which we seed. Without it sets of tasks, ordered by
    address, would decide who runs first.
  * `Runner.runq`: what a stopped process would run is held aside until the process goes on. Its
    timers expire meanwhile, as behind a real SIGSTOP, and are noticed afterwards.
  * `Runner.io_manager`: nothing comes from outside, so we seldom ask.

A task belongs to the node in whose context it was started.

The clock is the world's. What the world does at a time (bytes arrive, a disk is done) is called by
the clock between two rounds of trio's tasks, so that it costs neither a task nor a cancel scope.
"""

import gc
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count
from math import inf
from typing import Any, TypeVar

import trio
from trio._core import _run as trio_run

T = TypeVar("T")

OUTSIDE = -1  # the world itself
# Objects more, before Python looks for dead cycles: its own 700 are little where millions live, and
# looking took a fifth of the time of 24 validators. As many as a hundred have under way at once: at
# 50,000 it was an eighth of theirs. Fifty megabytes, of what would have gone.
COLLECT_EVERY = 500_000
ROUNDS_UNASKED = 256  # of trio's, some 20 ms
NODE: ContextVar[int] = ContextVar("simnet_node", default=OUTSIDE)


class VirtualClock(trio.abc.Clock):
    """Virtual seconds, from 0 on, which pass only while everybody waits."""

    def __init__(self) -> None:
        self.now_ns = 0  # the same time, asked for more often than it changes
        self._now_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self._now_s

    def at(self, at_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_s, next(self._numbers), what))

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Asked when nobody can run: it is then when a task wakes up, or something is due."""
        due = self._due
        next_s = due[0][0] if due and due[0][0] < deadline else deadline
        if next_s == inf:
            return next_s  # only a signal can end this
        if next_s > self._now_s:
            self._now_s, self.now_ns = next_s, round(next_s * 1e9)
        while due and due[0][0] <= self._now_s:
            heapq.heappop(due)[2]()
        return 0.0


_clock: VirtualClock | None = None  # of the run under way


def at(at_ns: int, what: Callable[[], None]) -> None:
    """Call `what` then; what is due at the same time is called in the order of asking."""
    assert _clock is not None, "time is not ours"
    _clock.at(at_ns / 1e9, what)


async def elapse(seconds: float) -> None:
    """Time passes, whoever may be cancelled meanwhile; a part may be tried in other time, too."""
    if _clock is None:
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
        return
    task = trio.lowlevel.current_task()
    at(_clock.now_ns + round(seconds * 1e9), partial(trio.lowlevel.reschedule, task))
    await trio.lowlevel.wait_task_rescheduled(_not_to_be_called_back)


def _not_to_be_called_back(_raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


class Processes:
    """Which nodes' processes are stopped, and what they will run when they go on."""

    def __init__(self) -> None:
        self._held: dict[int, list[trio.lowlevel.Task]] = {}
        self._runnable: deque[trio.lowlevel.Task] = deque()

    def stop(self, node: int) -> None:
        """Nothing of the node's runs from now on."""
        if not self._held:
            self._take_over()
        self._held.setdefault(node, [])
        waiting = [task for task in self._runnable if _node_of(task) == node]
        for task in waiting:
            self._runnable.remove(task)
            self._held[node].append(task)

    def go_on(self, node: int) -> None:
        for task in self._held.pop(node, []):
            self._runnable.append(task)
        if not self._held:
            self._hand_back()

    def is_stopped(self, node: int) -> bool:
        return node in self._held

    def _take_over(self) -> None:
        """Put our queue in the place of the running trio's."""
        runner = trio_run.GLOBAL_RUN_CONTEXT.runner
        runner.runq = self._runnable = _Runnable(runner.runq, self._held)

    def _hand_back(self) -> None:
        """A plain queue again, which is quicker: nobody is stopped."""
        runner = trio_run.GLOBAL_RUN_CONTEXT.runner
        runner.runq = deque(runner.runq)


class _Runnable(deque[Any]):
    """trio's queue of runnable tasks, without those of stopped nodes."""

    def __init__(
        self, tasks: "deque[trio.lowlevel.Task]", held: dict[int, list[trio.lowlevel.Task]]
    ) -> None:
        super().__init__(tasks)
        self._held = held

    def append(self, task: trio.lowlevel.Task) -> None:
        if (node := _node_of(task)) in self._held:
            self._held[node].append(task)
        else:
            super().append(task)


def _node_of(task: trio.lowlevel.Task) -> int:
    return task.context.get(NODE, OUTSIDE)


def run(main: Callable[[Processes], Awaitable[T]], seed: int) -> T:
    """`main` in virtual time, from 0 s on, which passes only while everybody waits."""
    processes = Processes()

    async def quickly(processes: Processes) -> T:
        runner: Any = trio_run.GLOBAL_RUN_CONTEXT.runner
        runner.io_manager = _SeldomAsked(runner.io_manager)
        return await main(processes)

    with _seeded(seed), _collecting_seldom(), _our_time() as clock:
        return trio.run(quickly, processes, clock=clock)


class _SeldomAsked:
    """trio's view of the operating system, of which a simulated world wants Ctrl-C alone."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._rounds = 0
        self.process_events = inner.process_events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_events(self, timeout_s: float) -> Any:
        self._rounds += 1
        asks = timeout_s or self._rounds % ROUNDS_UNASKED == 0
        return self._inner.get_events(timeout_s) if asks else []


@contextmanager
def _our_time() -> Iterator[VirtualClock]:
    global _clock
    _clock = VirtualClock()
    try:
        yield _clock
    finally:
        _clock = None


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    before = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r.getstate()
    names = vars(trio_run)  # the flag is Final to type checkers
    names["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    trio_run._r.seed(seed)
    try:
        yield
    finally:
        names["_ALLOW_DETERMINISTIC_SCHEDULING"] = before[0]
        trio_run._r.setstate(before[1])


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def now_ns() -> int:
    """Virtual nanoseconds since the run began."""
    return round(trio.current_time() * 1e9) if _clock is None else _clock.now_ns
