"""Processes that answer one question, and what somebody's code does meanwhile."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from daa_node.adapters.asked_process import probe_module
from daa_node.adapters.worker_process import interpreter_of
from daa_node.errors import UserError
from daa_node.training.config import TrainerConfig
from tests.daa_node.training.own_modules import PACKAGE, job_of, write_package

T = TypeVar("T")
LIMIT_S = 300.0  # of a start of torch, on a machine that others share
ENDS = """
import os


def build():
    os.write(2, b"\\xff is no text")
    os._exit(3)
"""

DIES = """
import os
import signal


def build():
    os.kill(os.getpid(), signal.SIGBUS)
"""
WAITS = """
import os
import time
from pathlib import Path


def build():
    with open(Path(__file__).with_name("pid"), "w") as file:
        print(os.getpid(), file=file)
    time.sleep(3600)
"""
ASKS = """
import sys
from pathlib import Path
from daa_node.adapters.asked_process import probe_module
from daa_node.training.config import TrainerConfig
from tests.daa_node.training.own_modules import PACKAGE, job_of

config = TrainerConfig(allow_modules=(PACKAGE,), module_path=Path(sys.argv[1]))
probe_module(job_of(), config, is_checked=True)
"""


def test_last_words_that_are_no_text_are_told_all_the_same(tmp_path: Path) -> None:
    write_package(tmp_path, ENDS)
    config = TrainerConfig(allow_modules=(PACKAGE,), module_path=tmp_path)
    with pytest.raises(UserError, match="ended: exit code 3; it said: .* is no text") as refused:
        probe_module(job_of(), config, is_checked=True)
    assert refused.value.exit_code == 1


def test_a_signal_is_told_in_words(tmp_path: Path) -> None:
    write_package(tmp_path, DIES)
    config = TrainerConfig(allow_modules=(PACKAGE,), module_path=tmp_path)
    with pytest.raises(UserError, match=r"killed by signal 7 \(SIGBUS\): a file .* was cut short"):
        probe_module(job_of(), config, is_checked=True)


def test_it_ends_with_whoever_asks(tmp_path: Path) -> None:
    write_package(tmp_path, WAITS)
    asker = subprocess.Popen([sys.executable, "-c", ASKS, str(tmp_path)])
    try:
        pid = until(lambda: pid_in(tmp_path))
        assert is_alive(pid)
    finally:
        asker.kill()
        asker.wait()
    until(lambda: not is_alive(pid))


def pid_in(directory: Path) -> int:
    """Zero until it is told."""
    told = [path.read_text() for path in directory.rglob("pid")]
    return int(told[0]) if told and told[0].endswith("\n") else 0


def until(found: Callable[[], T]) -> T:
    deadline_s = time.monotonic() + LIMIT_S
    while not (value := found()):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    return value


def is_alive(pid: int) -> bool:
    """Whoever waits to be reaped is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return not stat.rpartition(") ")[2].startswith("Z")


def test_an_interpreter_imports_nothing_from_the_directory_it_starts_in(tmp_path: Path) -> None:
    (tmp_path / "blake3.py").write_text("raise SystemExit(9)\n")
    command, environment = interpreter_of("daa_node.training.config", 1)
    done = subprocess.run(command, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0
