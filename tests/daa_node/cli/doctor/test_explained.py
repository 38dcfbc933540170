"""Below an error of `run` and `join` stands one fact more, where this host knows one."""

import errno
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daa_node.adapters import host_looks
from daa_node.adapters.host_looks import DiskLeft
from daa_node.adapters.libp2p_transport import cannot_listen
from daa_node.advice.of_messages import FACTS
from daa_node.advice.row import Row
from daa_node.advice.table import ALL_MESSAGES
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.doctor.explained import LOOK, Looks, advice_below, explained, fact_behind
from daa_node.errors import StorageFailed, UserError
from tests.daa_node.cli.conftest import Command
from tests.daa_node.cli.doctor.scenes import made_node

ROOMY = DiskLeft(10**12, 10**6)
QUIET = Looks(
    port_holder=lambda port: None, disk_left=lambda path: ROOMY, is_stopped=lambda pid: False
)
TAKEN = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
FULL = f"cannot write x: {os.strerror(errno.ENOSPC)}"


def test_who_has_a_port_is_told(tmp_path: Path) -> None:
    message = str(cannot_listen("/ip4/0.0.0.0/tcp/4001", TAKEN))
    looks = replace(QUIET, port_holder=lambda port: f"pid 17 (nginx:{port})")
    assert fact_behind(message, tmp_path, looks) == "pid 17 (nginx:4001) listens there"
    assert fact_behind(message, tmp_path, QUIET) is None
    other = str(cannot_listen("/ip4/192.0.2.9/tcp/1", OSError(errno.EADDRNOTAVAIL, "not here")))
    assert fact_behind(other, tmp_path, looks) is None


def test_of_the_daemon_that_runs_it_is_told_only_why_it_does_not_answer(tmp_path: Path) -> None:
    directory = DataDirectory(made_node(tmp_path / "n"))
    message = str(directory.in_use("17"))
    fact = fact_behind(message, directory.root, QUIET)
    assert fact is not None
    assert "it starts, or ends, just now" in fact
    directory.control.touch()
    assert fact_behind(message, directory.root, QUIET) is None
    stopped = fact_behind(message, directory.root, replace(QUIET, is_stopped=lambda pid: pid == 17))
    assert stopped is not None
    assert "kill -CONT 17" in stopped


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (DiskLeft(10, 10), "10 B are free on the disk where"),
        (DiskLeft(10**12, 0), "can hold no more files, though 1.0 TB are free"),
        (ROOMY, None),
        (DiskLeft(10**12, None), None),
    ],
)
def test_which_disk_is_full_and_of_what(tmp_path: Path, left: DiskLeft, words: str | None) -> None:
    fact = fact_behind(FULL, tmp_path / "not" / "yet", replace(QUIET, disk_left=lambda path: left))
    assert fact == words or (fact is not None and words is not None and words in fact)


def test_the_disk_of_temporary_files_may_be_the_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, other = tmp_path / "n", tmp_path / "tmp"
    root.mkdir()
    other.mkdir()
    monkeypatch.setenv("TMPDIR", str(other))
    looks = replace(QUIET, disk_left=lambda path: DiskLeft(0, 1) if path == other else ROOMY)
    assert fact_behind(FULL, root, looks) == "0 B are free on the disk of temporary files"


def test_how_far_the_way_to_an_inviter_goes(tmp_path: Path) -> None:
    said = "/ip4/127.0.0.1/tcp/%d/p2p/12D3 did not answer (%s): see that a node runs there"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        fact = fact_behind(said % (port, "closed"), tmp_path)
        assert fact is not None
        assert "does not greet as a node does" in fact
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        fact = fact_behind(said % (port, "no answer"), tmp_path)
        assert fact is not None
        assert os.strerror(errno.ECONNREFUSED) in fact
        refused = said % (port, os.strerror(errno.ECONNREFUSED))
        assert fact_behind(refused, tmp_path) is None  # it is in the message


def test_most_messages_stay_as_they_are(tmp_path: Path) -> None:
    for message in ("config.yaml:2:1: unknown key", "no keys at n/keys: restore them"):
        assert fact_behind(message, tmp_path) is None


def _fails(_asked: object) -> Any:
    raise PermissionError(errno.EACCES, "not ours to look at")


def test_the_error_goes_on_with_its_note(tmp_path: Path) -> None:
    looks = replace(QUIET, disk_left=lambda path: DiskLeft(5, 5))
    with pytest.raises(StorageFailed, match="cannot write x") as told, explained(tmp_path, looks):
        raise StorageFailed(FULL)
    assert told.value.__notes__ == [
        f"found: 5 B are free on the disk where {tmp_path} lies",
        "what to do: Make room on it, or bound what the node keeps with storage.bytes_max",
    ]
    with pytest.raises(StorageFailed), explained(tmp_path, replace(QUIET, disk_left=_fails)):
        raise StorageFailed(FULL)
    message = str(cannot_listen("/ip4/0.0.0.0/tcp/4001", TAKEN))
    blind = replace(QUIET, port_holder=_fails)
    with pytest.raises(UserError, match="cannot listen"), explained(tmp_path, blind):
        raise UserError(message)
    with pytest.raises(UserError) as plain, explained(tmp_path, looks):
        raise UserError("something else")
    assert not hasattr(plain.value, "__notes__")


def test_what_a_message_lacks_is_said_below_it_and_nothing_that_could_harm() -> None:
    lacks = f"cannot read n/wal: {os.strerror(errno.EIO)}"
    assert "look at the disk" in str(advice_below(lacks))
    assert advice_below("config.yaml:2:1: unknown key: write it as x") is None
    assert advice_below("nobody has heard of this") is None
    assert advice_below("no keys at n") == LOOK
    for row in ALL_MESSAGES:
        said = f"/ip4/192.0.2.1/tcp/1 and this node cannot work together: {row.key}"
        assert not (row.is_drastic and advice_below(said) == row.do), row.key


@pytest.mark.parametrize("row", FACTS, ids=lambda row: str(row.key))
def test_each_fact_has_its_advice(row: Row) -> None:
    assert advice_below("a message that says nothing of it", row.key) == row.advice


def test_run_prints_the_fact_on_a_line_of_its_own(command: Command, tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    with DataDirectory(root).locked():
        done = command("run", "--dir", root)
    assert done.code == 1
    error, fact = done.err.splitlines()[-2:]
    assert error.startswith("error: a daemon is already running in")
    assert fact == "found: it answers nobody: it starts, or ends, just now"


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells it by /proc")
def test_a_process_that_is_stopped_is_known_as_such() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert not host_looks.is_stopped(child.pid)
            child.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
            assert host_looks.is_stopped(child.pid)
        finally:
            child.kill()
    assert not host_looks.is_stopped(2**30)


def test_a_disk_tells_what_is_left(tmp_path: Path) -> None:
    left = host_looks.disk_left(tmp_path)
    assert left.bytes_left > 0
    assert left.files_left is None or left.files_left > 0
