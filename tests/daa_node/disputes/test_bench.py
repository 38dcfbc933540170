"""Turns at the worker between two trainings."""

from contextlib import suppress
from itertools import pairwise

import trio
from trio.testing import MockClock

from daa_node.disputes.bench import Bench
from daa_node.errors import Unavailable


async def after_a_round() -> Bench:
    """One that gives turns."""
    bench = Bench()
    await bench.work_off(1.0)
    return bench


async def test_the_first_round_is_our_own_training_alone(autojump_clock: MockClock) -> None:
    """How long it would be was measured by nobody: turns might take far longer than our steps."""
    bench, done = Bench(), trio.Event()

    async def work() -> None:
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.do, work)
        await trio.testing.wait_all_tasks_blocked()
        await bench.work_off(5.0)
        assert not done.is_set()
        await bench.work_off(5.0)
    assert done.is_set()


async def test_who_waits_gets_a_turn_and_keeps_it_where_no_time_is_left(
    autojump_clock: MockClock,
) -> None:
    bench, done = await after_a_round(), trio.Event()

    async def work() -> None:
        await trio.sleep(1)
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.do, work)
        await trio.testing.wait_all_tasks_blocked()
        await bench.work_off(-0.5)  # a check took longer than there was
        await bench.work_off(0.0)
        assert not done.is_set()
        await bench.work_off(5.0)
        assert done.is_set()


async def test_what_does_not_fit_into_a_round_any_more_is_begun_in_the_next(
    autojump_clock: MockClock,
) -> None:
    """Else it would be cut off, and what is cut off again and again gets ever fewer rounds."""
    bench, steps_done, rounds = await after_a_round(), list[float](), list[int]()

    async def step() -> None:
        await trio.sleep(3)
        steps_done.append(trio.current_time())

    async def walk() -> None:
        for _ in range(7):
            await bench.do(step, least_s=3.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(walk)
        await trio.testing.wait_all_tasks_blocked()
        while len(steps_done) < 7:
            before = len(steps_done)
            await bench.work_off(10.0)
            rounds.append(len(steps_done) - before)
    assert rounds == [3, 0, 3, 0, 1]


async def test_the_first_of_a_round_is_begun_however_long_it_may_take(
    autojump_clock: MockClock,
) -> None:
    bench, done = await after_a_round(), trio.Event()

    async def work() -> None:
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.do, work, 1000.0)
        await trio.testing.wait_all_tasks_blocked()
        await bench.work_off(1.0)
    assert done.is_set()


ROUND_S = 10.0


async def rounds_taken(bench: Bench, rounds: int, works_s: list[float]) -> list[bool]:
    """Of which rounds turns took more than half, where these are asked for again and again."""

    async def ask(work_s: float) -> None:
        while True:
            with suppress(Unavailable):
                await bench.do(lambda: trio.sleep(work_s))
            await trio.sleep(0.1)

    taken = []
    async with trio.open_nursery() as nursery:
        for work_s in works_s:
            nursery.start_soon(ask, work_s)
        for _ in range(rounds):
            await trio.sleep(1)
            began_s = trio.current_time()
            await bench.work_off(ROUND_S)
            taken.append(trio.current_time() - began_s > ROUND_S / 2)
        nursery.cancel_scope.cancel()
    return taken


async def test_what_no_round_has_time_for_takes_ever_fewer_of_them(
    autojump_clock: MockClock,
) -> None:
    """A false accusation of a step that nobody can replay in time is never decided."""
    taken = await rounds_taken(await after_a_round(), 32, [100.0])
    assert taken[:3] == [True, False, True]
    assert 3 <= sum(taken) <= 6


async def test_training_has_every_other_round_whatever_others_ask_for(
    autojump_clock: MockClock,
) -> None:
    for works_s in ([9.0], [2.0, 2.0, 3.0], [1.0, 100.0], [4.0, 9.0, 100.0]):
        taken = await rounds_taken(await after_a_round(), 32, works_s)
        assert any(taken), works_s
        assert not any(one and other for one, other in pairwise(taken)), works_s


async def test_short_turns_rest_no_round(autojump_clock: MockClock) -> None:
    bench, done = await after_a_round(), 0

    async def work() -> None:
        nonlocal done
        await trio.sleep(2)
        done += 1

    async with trio.open_nursery() as nursery:
        for number in range(1, 6):
            nursery.start_soon(bench.do, work)
            await trio.testing.wait_all_tasks_blocked()
            await bench.work_off(ROUND_S)
            assert done == number


async def test_a_turn_that_the_end_of_the_round_cuts_off_leaves_the_next_to_our_training(
    autojump_clock: MockClock,
) -> None:
    """Others are quicker: rounds end before the plan's time, and nothing of ours is in them."""
    bench, own_rounds = await after_a_round(), list[bool]()

    async def ask() -> None:
        while True:
            with suppress(Unavailable):
                await bench.do(lambda: trio.sleep(100.0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        for _ in range(32):
            await trio.sleep(1)
            with trio.move_on_after(ROUND_S / 4) as others:
                await bench.work_off(ROUND_S)
            own_rounds.append(not others.cancelled_caught)
        nursery.cancel_scope.cancel()
    assert own_rounds[:3] == [False, True, False]
    assert 26 <= sum(own_rounds) <= 29
