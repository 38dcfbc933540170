"""`daa-node top`: a picture of the running daemon that follows its events.

    follow   hears the daemon's events, and says that there is news
    ask      asks for status, and for rounds when there is a new height
    meet     asks for peers, which may take two seconds
    keys, signals    end it
    draw     once for all the news of a moment, and once a second

A daemon that stops is told of, and asked for again until it is back.
"""

import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from daa_node.adapters import control_socket
from daa_node.cli import local, remote, report
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.top import screen
from daa_node.cli.top.board import Board, Job
from daa_node.cli.top.picture import Room, lines
from daa_node.errors import NodeError, UserError
from daa_node.observability.events import TAIL_EVENTS_MAX

DRAWN_EACH_S = 1.0  # the clock and the open round go on
MOMENT_S = 0.05  # what happens within it is one picture
ASKED_EACH_S, ASKED_PAUSE_S = 2.0, 0.2
MET_EACH_S = 5.0
AGAIN_S = 1.0  # after nobody answered
PIPED_COLUMNS = 500  # a pipe has no width
QUITS = frozenset("qQ\x04")  # also Ctrl-D


@dataclass(frozen=True, slots=True)
class Daemon:
    """What is asked of it; each blocks, and raises UserError if nobody answers."""

    ask: Callable[[str], Mapping[str, Any]]
    follow: Callable[[Callable[[Mapping[str, Any]], None]], None]  # until it hangs up


def top(root: Path) -> None:
    """Raises UserError for what is no node's directory; where there is no screen, for no daemon."""
    directory = DataDirectory(root)
    directory.check()
    board = Board(str(root), _job_of(directory))
    blocks = screen.has_blocks(sys.stdout)
    if not screen.is_screen():
        once(board, partial(remote.ask, root), blocks)
        return
    daemon = Daemon(partial(control_socket.ask, directory.control), partial(_follow, directory))
    keys = sys.stdin.fileno() if sys.stdin.isatty() else None
    with screen.opened(sys.stdout, keys):
        trio.run(Watch(board, daemon, blocks, keys).run)


def once(board: Board, ask: Callable[[str], Mapping[str, Any]], blocks: bool) -> None:
    """For a pipe, and for a terminal that knows no cursor. Raises UserError."""
    board.status = ask("status")
    board.rounds, board.peers = ask("rounds")["rounds"], ask("peers")["peers"]
    told = lines(board, Room(PIPED_COLUMNS, None, blocks), time.time())
    while told and not told[-1]:
        told.pop()
    for line in told:
        report.put(line)


class Watch:
    """One screen, for as long as a person looks."""

    def __init__(self, board: Board, daemon: Daemon, blocks: bool, keys: int | None) -> None:
        self._board = board
        self._daemon = daemon
        self._blocks = blocks
        self._keys = keys
        self._changed = trio.Event()
        self._news = trio.Event()
        self._height: object = None  # of which the rounds are known
        self._is_anew = True  # nothing was heard yet of the daemon that runs now

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._obey_signals, nursery.cancel_scope)
            if self._keys is not None:
                nursery.start_soon(self._obey_keys, self._keys, nursery.cancel_scope)
            nursery.start_soon(self._follow)
            nursery.start_soon(self._ask)
            nursery.start_soon(self._meet)
            with suppress(OSError):  # the terminal is gone
                await self._draw()
            nursery.cancel_scope.cancel()

    async def _draw(self) -> None:
        while True:
            room = Room(*screen.size(sys.stdout), self._blocks)
            screen.draw(sys.stdout, lines(self._board, room, time.time()))
            with trio.move_on_after(DRAWN_EACH_S):
                await self._changed.wait()
            self._changed = trio.Event()
            await trio.sleep(MOMENT_S)

    async def _follow(self) -> None:
        while True:
            self._is_anew = True
            with suppress(UserError, ValueError, OSError):  # it is gone: whoever asks says why
                await trio.to_thread.run_sync(
                    self._daemon.follow, self._heard_in_a_thread, abandon_on_cancel=True
                )
            self._news.set()
            await trio.sleep(AGAIN_S)

    def _heard_in_a_thread(self, event: Mapping[str, Any]) -> None:
        trio.from_thread.run_sync(self._hear, event)

    def _hear(self, event: Mapping[str, Any]) -> None:
        if self._is_anew:
            self._board.begin()  # what is heard first are the newest that were
            self._is_anew = False
        self._board.note(event)
        self._changed.set()
        self._news.set()

    async def _ask(self) -> None:
        while True:
            self._board.asked_ts = time.time()
            answer = await self._answer("status")
            self._board.asked_ts = None
            if answer is not None:
                self._board.status = answer
                if answer.get("height") != self._height:
                    rounds = await self._answer("rounds")
                    if rounds is not None:
                        self._board.rounds = rounds.get("rounds") or ()
                        self._height = answer.get("height")
            self._changed.set()
            with trio.move_on_after(ASKED_EACH_S):
                await self._news.wait()
            self._news = trio.Event()
            await trio.sleep(ASKED_PAUSE_S)

    async def _meet(self) -> None:
        while True:
            answer = await self._answer("peers")
            if answer is not None and self._board.status is not None:
                self._board.peers = answer.get("peers") or ()
                self._changed.set()
            await trio.sleep(AGAIN_S if self._board.status is None else MET_EACH_S)

    async def _answer(self, command: str) -> Mapping[str, Any] | None:
        try:
            return await trio.to_thread.run_sync(self._daemon.ask, command, abandon_on_cancel=True)
        # ValueError: what answers is no daemon of ours. OSError: this host is short of something
        except (UserError, ValueError, OSError) as fault:
            self._board.gone(str(fault))
            self._height = None
            return None

    async def _obey_keys(self, keys: int, scope: trio.CancelScope) -> None:
        while True:
            await trio.lowlevel.wait_readable(keys)
            typed = screen.pressed(keys)
            if not typed or QUITS & set(typed):
                scope.cancel()

    async def _obey_signals(self, scope: trio.CancelScope) -> None:
        ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        with trio.open_signal_receiver(*ends, signal.SIGWINCH) as signals:
            async for number in signals:
                if number in ends:
                    scope.cancel()
                self._changed.set()


def _follow(directory: DataDirectory, hear: Callable[[Mapping[str, Any]], None]) -> None:
    for event in control_socket.follow(directory.control, TAIL_EVENTS_MAX, keep_on=True):
        hear(event)


def _job_of(directory: DataDirectory) -> Job:
    """Of a genesis that cannot be read: nothing, as the daemon has it in memory."""
    try:
        job = local.read_genesis(directory.genesis).job
    except NodeError:
        return Job()
    return Job(job.rounds.window_ms / 1000, job.end.rounds)
