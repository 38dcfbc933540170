"""Threads, wall clock and entropy of the host behind their seams."""

import threading
import time

import pytest
import trio

from daa_node.adapters.offload import THREADS_MAX, ThreadOffload
from daa_node.adapters.system_clock import SystemClock, SystemEntropy


async def test_the_event_loop_keeps_turning_while_work_blocks() -> None:
    offload, release = ThreadOffload(), threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(offload.run, release.wait)
        await trio.sleep(0.01)  # never returns if the loop is blocked
        release.set()


async def test_results_and_faults_come_back_from_the_thread() -> None:
    offload = ThreadOffload()
    assert await offload.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await offload.run(lambda: 1 // 0)


async def test_no_more_threads_than_the_limit_work_at_once() -> None:
    offload, busy, most = ThreadOffload(), [], [0]

    def work() -> None:
        busy.append(1)
        most[0] = max(most[0], len(busy))
        time.sleep(0.01)
        busy.pop()

    async with trio.open_nursery() as nursery:
        for _ in range(3 * THREADS_MAX):
            nursery.start_soon(offload.run, work)
    assert 1 < most[0] <= THREADS_MAX


async def test_begun_work_is_finished_though_its_caller_is_cancelled() -> None:
    offload, begun, done = ThreadOffload(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        time.sleep(0.02)
        done.set()

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(offload.run, work)
            while not begun.is_set():
                await trio.sleep(0.001)
            scope.cancel()
    assert done.is_set()


def test_the_clock_is_unix_time_in_nanoseconds() -> None:
    assert abs(SystemClock().wall_ns() / 1e9 - time.time()) < 5


def test_entropy_has_the_size_asked_for_and_does_not_repeat() -> None:
    first, second = SystemEntropy().bytes(32), SystemEntropy().bytes(32)
    assert len(first) == len(second) == 32
    assert first != second
