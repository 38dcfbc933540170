"""Work in many processes: all of it, in order, and none that outlives who ordered it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import psutil
import pytest

from daa_node.errors import UserError
from simnet.results import pool

SLOW = (
    "import time; from simnet.results import pool; list(pool.each(time.sleep, [0.1] * 100_000, 2))"
)


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


@pytest.mark.parametrize(("jobs", "chunk"), [(1, 1), (2, 1), (2, 3)])
def test_every_input_is_worked_on_once_and_in_order(jobs: int, chunk: int) -> None:
    done = list(pool.each(square, range(20), jobs, chunk))
    assert [result for result, _ in done] == [number * number for number in range(20)]
    assert (os.getpid() in {process for _, process in done}) == (jobs == 1)


def killed_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_process_that_is_killed_ends_the_work_with_a_word_on_why() -> None:
    with pytest.raises(UserError, match="2 processes was killed"):
        list(pool.each(killed_at_three, range(20), 2))


def killed_at_once_or_slow(directory: Path, number: int) -> None:
    (directory / str(os.getpid())).touch()
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)


def test_nobody_comes_in_place_of_a_process_that_was_killed(tmp_path: Path) -> None:
    """It would be forked while other threads run, whose locks nobody ever gives back in it."""
    with pytest.raises(UserError, match="was killed"):
        list(pool.each(partial(killed_at_once_or_slow, tmp_path), range(20), 2))
    assert len(list(tmp_path.iterdir())) <= 2


def large(_number: int) -> bytes:
    return bytes(200_000)


def test_work_that_is_broken_off_while_results_are_sent_ends_at_once() -> None:
    """Half a result lay in the pipe, and whoever had ordered it waited for the other half."""
    for _ in range(10):
        results = pool.each(large, range(100), 2)
        next(results)
        results.close()
    assert not multiprocessing.active_children()


class Unsendable(Exception):
    def __init__(self, what: str, why: str) -> None:
        super().__init__(what)


def fault(_number: int) -> None:
    raise Unsendable("a", "b")


def test_a_fault_that_cannot_be_sent_is_not_told_as_a_want_of_memory() -> None:
    with pytest.raises(BrokenProcessPool) as broken:
        list(pool.each(fault, range(4), 2))
    assert "Unsendable" in str(broken.value.__cause__)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_one_that_ordered_the_work(number: signal.Signals) -> None:
    ordering = subprocess.Popen(
        [sys.executable, "-c", SLOW],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # whoever runs the tests in the background may ignore interrupts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until_s = time.monotonic() + 60
    while len(workers := psutil.Process(ordering.pid).children()) < 2:
        assert time.monotonic() < until_s
        time.sleep(0.05)
    ordering.send_signal(number)
    ordering.wait(timeout=120)
    gone, alive = psutil.wait_procs(workers, timeout=120)
    assert (len(gone), alive) == (2, [])
    with pytest.raises(ProcessLookupError):  # nor has anybody come in their place
        os.killpg(ordering.pid, 0)
