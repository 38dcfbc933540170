"""Who holds the lock of a node's directory is found out without being in anybody's way."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daa_node.adapters import daemon_lock
from daa_node.adapters.control_socket import ask
from daa_node.errors import UserError


@contextmanager
def held(lock: Path, how: int) -> Iterator[None]:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def test_a_daemon_that_has_not_written_its_pid_yet_holds_it_as_well(tmp_path: Path) -> None:
    lock = tmp_path / daemon_lock.NAME
    with held(lock, fcntl.LOCK_EX):
        assert daemon_lock.holder(lock) == "unknown"
        lock.write_text("17\n")
        assert daemon_lock.holder(lock) == "17"
    assert daemon_lock.holder(lock) is None


def test_two_that_look_at_once_take_neither_for_a_daemon(tmp_path: Path) -> None:
    lock = tmp_path / daemon_lock.NAME
    with held(lock, fcntl.LOCK_SH):
        assert daemon_lock.holder(lock) is None


def test_looks_keep_no_file_open(tmp_path: Path) -> None:
    lock, before = tmp_path / daemon_lock.NAME, len(os.listdir("/proc/self/fd"))
    for how in (fcntl.LOCK_SH, fcntl.LOCK_EX):
        with held(lock, how):
            daemon_lock.holder(lock)
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_the_lock_cannot_be_read_it_is_said_that_no_daemon_answers(tmp_path: Path) -> None:
    (tmp_path / daemon_lock.NAME).symlink_to(daemon_lock.NAME)  # in a circle
    with pytest.raises(UserError, match="no daemon is running in"):
        ask(tmp_path / "control.sock", "status")
