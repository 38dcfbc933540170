"""A process that was forked from a warm parent is what it would be if it were started anew."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.warm import ROOT, WarmPopen, WarmPrograms, warmed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all is started anew")

WAIT_S = 120.0
MODULE = "tests.telling_process"
USUAL = [sys.executable, "-m", MODULE]
WITH_PATH = {**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_TRIM_THRESHOLD_": "1000000"}
LITTLE = {name: text for name, text in os.environ.items() if name.startswith("PYTHON")} | {
    "LC_ALL": "C.UTF-8"
}


def started(command: list[str], **options: Any) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    usual: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe}
    return subprocess.Popen(command, text=True, **{**usual, **options})


def lived(command: list[str], **options: Any) -> tuple[int, list[str], list[str]]:
    """How it ended, and the lines that it said and complained of."""
    with started(command, **options) as process:
        said, complained = process.communicate(timeout=WAIT_S)
        assert type(process).__name__ == subprocess.Popen.__name__
        return process.returncode, said.splitlines(), (complained or "").splitlines()


def is_warm(pid: int) -> bool:
    return "tests.warm" in Path(f"/proc/{pid}/cmdline").read_text()


def is_there(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@contextmanager
def reading() -> Iterator["subprocess.Popen[str]"]:
    """A process that waits for the end of its input, and has begun to."""
    with started([*USUAL, "read"], stdin=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


# Told apart from what a library of ours has put into the environment behind Python's back.
HERE = {"env": dict(os.environ)}
WAYS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "as any": ([*USUAL, "--flag", "end"], HERE),
    "in a session of its own": ([*USUAL, "end"], HERE | {"start_new_session": True}),
    "in a group of its own": ([*USUAL, "end"], HERE | {"process_group": 0}),
    "with its errors said": ([*USUAL, "end"], HERE | {"stderr": subprocess.STDOUT}),
    "elsewhere": ([*USUAL, "end"], {"cwd": "/", "env": WITH_PATH}),
    "as a worker": ([sys.executable, "-P", "-m", MODULE, "end"], {"env": WITH_PATH}),
    "with little around it": ([*USUAL, "end"], {"env": LITTLE}),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_has_all_that_it_would_have_if_it_were_started_anew(way: str) -> None:
    command, options = WAYS[way]
    read, write = os.pipe()
    options = {**options, "pass_fds": [read, write]}
    anew = lived(command, **options)
    with warmed():
        forked = lived(command, **options)
    os.close(read)
    os.close(write)
    (was,), (now,) = (map(json.loads, said) for _, said, _ in (anew, forked))
    assert {0, 1, 2, read, write} == set(was["descriptors"]) < set(now["descriptors"])
    assert len(now.pop("descriptors")) == len(was.pop("descriptors")) + 1  # the line to its parent
    assert now == was
    assert (anew[0], anew[2]) == (forked[0], forked[2]) == (0, [])


def signals_of(life: tuple[int, list[str], list[str]]) -> dict[str, Any]:
    """As masks without what the C library keeps for itself: Python 3.13's children ignore those."""
    told = json.loads(life[1][0])
    own = sum(1 << number - 1 for number in signal.valid_signals())
    masks = {name: int(told[name], 16) & own for name in ("SigIgn", "SigCgt")}
    return masks | {"python's signals": told["python's signals"]}


def test_it_ignores_what_who_starts_it_ignores_and_nothing_else() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        anew = lived([*USUAL, "end"])
        with warmed():
            assert signals_of(lived([*USUAL, "end"])) == signals_of(anew)
    finally:
        signal.signal(signal.SIGINT, before)


def test_it_has_the_limits_of_who_starts_it() -> None:
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with warmed():
        assert lived([*USUAL, "end"])[0] == 0  # its parent is there
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        with warmed():
            _, (told,), _ = lived([*USUAL, "end"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [soft - 1, hard] in json.loads(told)["limits"]


@pytest.mark.parametrize("end", ["raise", "exit", "thread", "child"])
def test_it_ends_as_it_would(end: str) -> None:
    anew = lived([*USUAL, end])
    with warmed():
        forked = lived([*USUAL, end])
    assert (forked[0], forked[2][-1:]) == (anew[0], anew[2][-1:])
    assert len(forked[1]) == len(anew[1]) == 1 + (end in ("thread", "child"))


def test_it_is_a_child_and_signals_end_it() -> None:
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        with warmed(), reading() as process:
            assert is_warm(process.pid)
            process.send_signal(number)
            assert process.wait(WAIT_S) == -number


def test_its_own_children_are_warm_and_its_parent_ends_with_it() -> None:
    with warmed(), reading() as process:
        (parent,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert is_there(int(parent))
        process.kill()
        process.wait(WAIT_S)
        deadline_s = time.monotonic() + WAIT_S
        while is_there(int(parent)):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)


def test_where_it_cannot_be_is_an_error_as_before(tmp_path: Path) -> None:
    with warmed():
        with pytest.raises(FileNotFoundError):
            started(USUAL, cwd=tmp_path / "nowhere")
        assert lived([*USUAL, "end"])[0] == 0  # and the next one is none


def test_two_of_one_parent_roll_other_dice() -> None:
    with warmed():
        rolled = [lived([*USUAL, "dice"])[1][1].split() for _ in range(2)]
    assert all(len(set(dice)) == 2 for dice in zip(*rolled, strict=True))


PROGRAM = (
    "import os, sys; print(sys.argv, sys.path, __name__, os.getppid()); print(sys.stdin.read())"
)


def test_a_program_is_warm_where_that_is_asked_for() -> None:
    command = [sys.executable, "-c", PROGRAM, "some", "words"]
    anew = lived(command)
    with warmed(WarmPrograms):
        assert lived(command) == anew
        with started([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            assert is_warm(process.pid)
            process.kill()


def test_no_parent_is_started_by_a_thread_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_parents", [])
    with warmed(), ThreadPoolExecutor(1) as threads:
        assert threads.submit(lived, [*USUAL, "exit"]).result()[0] == 7
    assert warm._parents == []


def test_all_other_commands_are_started_anew() -> None:
    with warmed():
        with started([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            assert not is_warm(process.pid)
            process.kill()
        assert lived(["cat", "/proc/self/cmdline"])[1] == ["cat\0/proc/self/cmdline\0"]
        assert subprocess.Popen is WarmPopen
    assert subprocess.Popen is not WarmPopen
