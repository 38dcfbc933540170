"""Turns at the worker between two trainings."""

import trio
from trio.testing import MockClock

from daa_node.disputes.bench import Bench


async def test_who_waits_gets_a_turn_and_keeps_it_where_no_time_is_left(
    autojump_clock: MockClock,
) -> None:
    bench, done = Bench(), trio.Event()

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
