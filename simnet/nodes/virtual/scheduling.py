"""One trio run whose every step follows from the seed, and in which a node can be stopped dead.

trio offers neither, so this module uses private names of it and is why trio is pinned:

  * `_ALLOW_DETERMINISTIC_SCHEDULING` and `_r`: runnable tasks are put in the order in which they
    were spawned and then shuffled by `_r`, which is ours. Without it sets of tasks, ordered by
    address, would decide who runs first.
  * `Runner.runq`: what a stopped process would run is held aside until the process goes on. Its
    timers expire meanwhile, as behind a real SIGSTOP, and are noticed afterwards.
  * `Runner.io_manager` and `Runner.instruments`: nothing comes from outside, so we seldom ask; and
    mostly nobody watches, which a dict tells at once.
  * `CancelScope._might_change_registered_deadline`: a generator, and a third of a scope's price.
  * `Runner.reschedule`: who is woken gets an outcome, which costs more than all else that it does.

A task belongs to the node in whose context it was started.

The clock is the world's. What the world does at a time (bytes arrive, a disk is done) is called by
the clock between two rounds of trio's tasks, so that it costs neither a task nor a cancel scope. So
is who sleeps: `trio.sleep` is ours while a run lasts, and so is `trio.current_time`.
"""

import heapq
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, MutableSequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count
from math import inf
from typing import Any, TypeVar

import trio
from outcome import Error, Outcome, Value, capture
from trio._core import _run as trio_run
from trio._core._instrumentation import Instruments

T = TypeVar("T")

OUTSIDE = -1  # the world itself
ROUNDS_UNASKED = 256  # of trio's, some 20 ms
NODE: ContextVar[int] = ContextVar("simnet_node", default=OUTSIDE)
Due = list[Any]  # when in seconds, a number that orders what is due together, what is called


class VirtualClock(trio.abc.Clock):
    """Virtual seconds, from 0 on, which pass only while everybody waits."""

    def __init__(self) -> None:
        self.now_ns = 0  # the same time, asked for more often than it changes
        self._now_s = 0.0
        self._due: list[Due] = []
        self._numbers = count()
        self._runner: Any = None  # trio's

    def start_clock(self) -> None:
        self._runner = trio_run.GLOBAL_RUN_CONTEXT.runner

    def current_time(self) -> float:
        return self._now_s

    def at(self, at_s: float, what: Callable[[], None]) -> Due:
        due: Due = [at_s, next(self._numbers), what]
        heapq.heappush(self._due, due)
        return due

    async def sleep(self, seconds: float) -> None:
        """As trio's, which is a cancel scope that expires: a twentieth of a run's time."""
        if seconds < 0:
            raise ValueError("seconds must not be negative")
        await self.sleep_until(self._now_s + seconds)

    async def sleep_until(self, at_s: float) -> None:
        if at_s <= self._now_s:
            await trio.lowlevel.checkpoint()
            return
        task = trio.lowlevel.current_task()
        due = self.at(at_s, partial(trio.lowlevel.reschedule, task))

        def give_up(_raise_cancel: object) -> trio.lowlevel.Abort:
            due[-1] = _nothing  # it holds on to nobody
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)

    async def take(self, steps: Iterator[float], wait_s: float) -> None:
        """The steps that follow after a wait, up to the last, or until the task's process stops."""
        task = trio.lowlevel.current_task()

        def go_on() -> None:
            is_held = _node_of(task) in getattr(self._runner.runq, "held", ())
            taken: Outcome[Any] = Value(None) if is_held else capture(next, steps, None)
            if isinstance(taken, Error) or taken.value is None:
                trio.lowlevel.reschedule(task, taken)
            else:
                self._in(taken.value, go_on)

        self._in(wait_s, go_on)
        await trio.lowlevel.wait_task_rescheduled(_stay)

    def _in(self, wait_s: float, what: Callable[[], None]) -> None:
        self.at((self.now_ns + round(wait_s * 1e9)) / 1e9, what)

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Asked when nobody can run: it is then when a task wakes up, or a deadline has come."""
        due, runner = self._due, self._runner
        while True:
            next_s = due[0][0] if due and due[0][0] < deadline else deadline
            if next_s == inf:
                return next_s  # only a signal can end this
            if next_s > self._now_s:
                self._now_s, self.now_ns = next_s, round(next_s * 1e9)
            while due and due[0][0] <= self._now_s:
                heapq.heappop(due)[2]()
            if runner.runq or next_s == deadline:
                return 0.0
            deadline = runner.deadlines.next_deadline()


def _nothing() -> None:
    """Somebody slept until then, and was cancelled."""


def _stay(_raise_cancel: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


_clock: VirtualClock | None = None  # of the run under way


def at(at_ns: int, what: Callable[[], None]) -> None:
    """Call `what` then; what is due at the same time is called in the order of asking."""
    assert _clock is not None, "time is not ours"
    _clock.at(at_ns / 1e9, what)


async def elapse(steps: Iterator[float]) -> None:
    """Each step says how many seconds pass before the next, whoever may be cancelled meanwhile.

    The clock takes the steps at their times, and the task goes on after the last; while its process
    is stopped, none is taken. A part may be tried in other time, too.
    """
    for wait_s in steps:
        if _clock is None:
            with trio.CancelScope(shield=True):
                await trio.sleep(wait_s)
        else:
            await _clock.take(steps, wait_s)


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
        self.held = held

    def append(self, task: trio.lowlevel.Task) -> None:
        if (node := _node_of(task)) in self.held:
            self.held[node].append(task)
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
        runner.instruments = _Instruments(runner.instruments)
        return await main(processes)

    ours = {"_ALLOW_DETERMINISTIC_SCHEDULING": True, "_r": _Lots(seed)}
    woken = replaced(trio_run.Runner, reschedule=_reschedule)
    with replaced(trio_run, **ours), woken, _our_time() as clock:
        return trio.run(quickly, processes, clock=clock)


class _Lots(random.Random):
    """Who runs first: mostly one alone can run."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        if len(x) > 1:
            super().shuffle(x)


class _Woken:
    """What a task goes on with that waited for no value: trio makes one anew for each."""

    def unwrap(self) -> None:
        pass


_WOKEN = _Woken()


def _reschedule(runner: Any, task: Any, next_send: Any = trio_run._NO_SEND) -> None:
    """As trio does, without guests or watchers."""
    assert task._next_send_fn is None
    task._next_send_fn = task.coro.send
    task._next_send = _WOKEN if next_send is trio_run._NO_SEND else next_send
    task._abort_func = task.custom_sleep_data = None
    runner.runq.append(task)


class _Instruments(dict[str, Any], Instruments):  # type: ignore[misc]
    """trio's own, which it asks six times a round whether it has any."""

    data = property(lambda self: self)


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
    told = {"current_time": _clock.current_time}
    slept = {"sleep": _clock.sleep, "sleep_until": _clock.sleep_until}
    scopes = replaced(trio.CancelScope, _might_change_registered_deadline=_changes)
    # In full it is told to each nursery that it ends, for a reason that nobody reads.
    cancelled = replaced(trio.Cancelled, __repr__=BaseException.__repr__)
    try:
        with replaced(trio, **told, **slept), replaced(trio_run, **told), scopes, cancelled:
            yield _clock
    finally:
        _clock = None


class _ScopeChanges:
    """What trio's generator does: after the block the run knows the deadline that a scope has."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Any) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        pass

    @trio.lowlevel.enable_ki_protection
    def __exit__(self, *_raised: object) -> None:
        scope = self._scope
        is_over = scope._cancel_status is None or scope._cancel_called
        old_s, new_s = scope._registered_deadline, inf if is_over else scope._deadline
        if old_s != new_s:
            scope._registered_deadline = new_s
            deadlines = trio_run.GLOBAL_RUN_CONTEXT.runner.deadlines
            if old_s != inf:
                deadlines.remove(old_s, scope)
            if new_s != inf:
                deadlines.add(new_s, scope)


def _changes(scope: trio.CancelScope) -> _ScopeChanges:
    return _ScopeChanges(scope)


@contextmanager
def replaced(owner: Any, **replacements: Any) -> Iterator[None]:
    """These names of a module's or a class's mean something else, until the block ends."""
    before = {name: vars(owner)[name] for name in replacements}
    for name, what in replacements.items():
        setattr(owner, name, what)
    try:
        yield
    finally:
        for name, what in before.items():
            setattr(owner, name, what)


def now_ns() -> int:
    """Virtual nanoseconds since the run began."""
    return round(trio.current_time() * 1e9) if _clock is None else _clock.now_ns
