"""One seed, one order of steps; and a stopped process really stands still."""

import gc
from collections.abc import Iterator
from functools import partial
from math import inf
from weakref import ref

import pytest
import trio
from trio._core import _run as trio_run

from simnet.nodes.virtual import scheduling
from simnet.nodes.virtual.scheduling import NODE, Processes, now_ns


def order_of_steps(seed: int) -> list[int]:
    steps: list[int] = []

    async def walk(number: int) -> None:
        for _ in range(5):
            await trio.lowlevel.checkpoint()
            steps.append(number)

    async def main(_: Processes) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(walk, number)

    scheduling.run(main, seed)
    return steps


def test_a_seed_decides_who_runs_first() -> None:
    assert order_of_steps(1) == order_of_steps(1)
    assert order_of_steps(1) != order_of_steps(2)


def test_trio_is_as_it_was_afterwards() -> None:
    def names() -> list[dict[str, object]]:
        owners = (trio, trio_run, trio_run.Runner, trio.CancelScope, trio.Cancelled)
        return [{**vars(owner)} for owner in owners]

    before = names()
    order_of_steps(3)
    assert names() == before


def test_time_passes_only_while_everybody_waits() -> None:
    async def main(_: Processes) -> None:
        assert now_ns() == 0
        await trio.sleep(3600)
        assert now_ns() == 3600 * 10**9

    scheduling.run(main, 0)


def test_who_sleeps_is_cancelled_as_ever_and_held_on_to_by_nobody() -> None:
    class Thing:
        pass

    async def sleeper(thing: Thing) -> None:
        await trio.sleep(100)
        raise AssertionError(thing)

    async def main(_: Processes) -> None:
        thing = Thing()
        alive = ref(thing)
        with trio.move_on_after(1) as scope:
            await sleeper(thing)
        assert scope.cancelled_caught
        assert trio.current_time() == 1
        del thing
        await trio.lowlevel.checkpoint()  # of the step before, trio keeps what was sent
        gc.collect()
        assert alive() is None
        await trio.sleep(200)  # over the time of who was cancelled

    scheduling.run(main, 0)


def test_a_sleep_without_a_time_to_come_lets_others_run() -> None:
    steps: list[str] = []

    async def other() -> None:
        steps.append("other")

    async def main(_: Processes) -> None:
        for sleep in (partial(trio.sleep, 0), partial(trio.sleep_until, -1)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other)
                await sleep()
                steps.append("slept")
        with pytest.raises(ValueError, match="negative"):
            await trio.sleep(-1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await trio.sleep(0)
        assert scope.cancelled_caught
        assert now_ns() == 0

    scheduling.run(main, 0)
    assert sorted(steps[:2]) == sorted(steps[2:]) == ["other", "slept"]


def test_a_scope_ends_at_the_deadline_that_it_has_and_leaves_none_behind() -> None:
    async def main(_: Processes) -> None:
        def left_s() -> float:
            return trio.lowlevel.current_statistics().seconds_to_next_deadline

        with trio.CancelScope(deadline=5) as scope:
            assert left_s() == 5
            scope.deadline = 2
            assert left_s() == 2
            await trio.sleep(10)
        assert scope.cancelled_caught
        assert trio.current_time() == 2
        with trio.move_on_after(3):
            assert left_s() == 3
        with trio.move_on_after(4) as scope:
            scope.cancel()
            assert left_s() == inf
        assert left_s() == inf
        with trio.CancelScope(deadline=1) as scope:  # is past
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught

    scheduling.run(main, 0)


def test_a_stopped_process_notices_its_timers_when_it_goes_on() -> None:
    ticks: list[tuple[int, float]] = []

    async def tick(node: int) -> None:
        NODE.set(node)
        while True:
            await trio.sleep(1)
            ticks.append((node, trio.current_time()))

    async def main(processes: Processes) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick, 0)
            nursery.start_soon(tick, 1)
            await trio.sleep(2.5)
            processes.stop(1)
            assert processes.is_stopped(1)
            await trio.sleep(3)
            processes.go_on(1)
            await trio.sleep(1.2)
            nursery.cancel_scope.cancel()

    scheduling.run(main, 0)
    assert [at_s for node, at_s in ticks if node == 0] == [1, 2, 3, 4, 5, 6]
    assert [at_s for node, at_s in ticks if node == 1] == [1, 2, 5.5, 6.5]


def test_steps_are_taken_at_their_times_and_none_while_the_process_is_stopped() -> None:
    taken: list[float] = []

    def steps() -> Iterator[float]:
        for _ in range(3):
            yield 1
            taken.append(trio.current_time())

    async def work() -> None:
        NODE.set(0)
        await scheduling.elapse(steps())
        taken.append(trio.current_time())

    async def main(processes: Processes) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await trio.sleep(1.5)
            processes.stop(0)
            await trio.sleep(3)
            assert taken == [1]
            processes.go_on(0)

    scheduling.run(main, 0)
    assert taken == [1, 4.5, 5.5, 5.5]


def test_what_a_step_raises_ends_a_wait_and_a_cancel_does_not() -> None:
    def steps() -> Iterator[float]:
        yield 1
        yield 1
        raise ValueError(trio.current_time())

    async def main(_: Processes) -> None:
        with pytest.raises(ValueError, match=r"2\.0"), trio.move_on_after(0.5):
            await scheduling.elapse(steps())

    scheduling.run(main, 0)
