"""`top` follows a daemon, tells when it stops, goes on when it is back, and ends with q."""

import os
import pty
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import trio

from daa_node.cli.top import command as top_command
from daa_node.cli.top.board import Board
from daa_node.cli.top.command import Daemon, Watch
from daa_node.errors import UserError
from tests.daa_node.cli.conftest import Command
from tests.daa_node.cli.doctor.scenes import made_node
from tests.daa_node.cli.top.test_picture import STATUS, peer

WAIT_S = 60.0  # what takes milliseconds on a machine that does nothing else


class Fake:
    """A daemon that says what it is told to."""

    def __init__(self) -> None:
        self.runs = True
        self.height = 7
        self.events: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self.daemon = Daemon(self.ask, self.follow)

    def ask(self, what: str) -> Mapping[str, Any]:
        if not self.runs:
            raise UserError("no daemon is running in alice", exit_code=1)
        answers: dict[str, dict[str, Any]] = {
            "status": {**STATUS, "height": self.height},
            "rounds": {"rounds": [{"height": self.height, "loss_nats": 1.0}]},
            "peers": {"peers": [peer("aa" * 32)]},
        }
        return answers[what]

    def follow(self, hear: Callable[[Mapping[str, Any]], None]) -> None:
        if not self.runs:
            raise UserError("no daemon is running in alice", exit_code=1)
        while (event := self.events.get()) is not None:
            hear(event)


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(WAIT_S):
        while not holds():
            await trio.sleep(0.01)


async def test_it_follows_events_a_stop_and_a_start_and_ends_with_q(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top_command, "AGAIN_S", 0.01)
    ours, theirs = pty.openpty()
    fake, board = Fake(), Board("alice")
    watch = Watch(board, fake.daemon, True, theirs)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            await until(lambda: bool(board.status and board.peers and board.rounds))
            fake.events.put({"ts": 1.0, "name": "decision", "decision": "train", "reason": "r"})
            await until(lambda: bool(board.news))
            fake.height = 8
            fake.events.put({"ts": 2.0, "name": "round_finalized", "round": 8})
            await until(lambda: bool(board.rounds and board.rounds[0]["height"] == 8))
            fake.runs = False
            fake.events.put(None)
            await until(lambda: board.status is None)
            assert "no daemon is running" in board.down
            assert board.news  # what led to it stays
            fake.runs = True
            await until(lambda: board.status is not None)
            os.write(ours, b"xq\n")  # no terminal of keys here
            with trio.fail_after(WAIT_S):
                while nursery.child_tasks:
                    await trio.sleep(0.01)
    finally:
        fake.events.put(None)  # lets the thread end
        os.close(theirs)
        os.close(ours)
    assert "phase    training" in capsys.readouterr().out


def test_a_pipe_gets_one_picture(capsys: pytest.CaptureFixture[str]) -> None:
    top_command.once(Board("alice"), Fake().ask, blocks=True)
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert told.splitlines()[0].startswith("daa-node top alice")
    assert "phase    training: the state is here" in told
    assert told.rstrip("\n") == told[:-1]


def test_a_pipe_without_a_daemon_is_an_error(command: Command, tmp_path: Path) -> None:
    done = command("top", "--dir", made_node(tmp_path / "n"))
    assert (done.code, done.out) == (1, "")
    assert "no daemon is running in" in done.err
    done = command("top", "--dir", tmp_path / "none")
    assert (done.code, "daa-node init" in done.err) == (2, True)


def test_a_socket_that_a_dead_daemon_has_left_is_told_as_no_daemon(
    command: Command, tmp_path: Path
) -> None:
    root = made_node(tmp_path / "n")
    (root / "control.sock").touch()
    done = command("top", "--dir", root)
    assert (done.code, "no daemon is running in" in done.err) == (1, True)
