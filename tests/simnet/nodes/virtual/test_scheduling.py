"""One seed, one order of steps; and a stopped process really stands still."""

import gc

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
    flag = "_ALLOW_DETERMINISTIC_SCHEDULING"
    before = trio_run._r.getstate(), vars(trio_run)[flag]
    order_of_steps(3)
    assert (trio_run._r.getstate(), vars(trio_run)[flag]) == before


def test_a_run_looks_for_dead_cycles_seldom_and_others_as_before() -> None:
    async def main(_: Processes) -> int:
        return gc.get_threshold()[0]

    before = gc.get_threshold()
    assert scheduling.run(main, 0) > 10 * before[0]
    assert gc.get_threshold() == before


def test_time_passes_only_while_everybody_waits() -> None:
    async def main(_: Processes) -> None:
        assert now_ns() == 0
        await trio.sleep(3600)
        assert now_ns() == 3600 * 10**9

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
