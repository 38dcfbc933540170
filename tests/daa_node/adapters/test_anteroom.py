"""Whoever has connected and says nothing gives way, and whoever has something to say is found."""

import errno
import os
import select
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
import trio
import trio.testing

from daa_node.adapters.anteroom import (
    BURST,
    HANDFUL,
    HANDFUL_S,
    LOOK_S,
    Anteroom,
    serve_who_speaks,
)
from daa_node.adapters.descriptors import Gate, Shortage
from daa_node.adapters.waiting_room import SHARES, Familiar
from tests.daa_node.adapters.http_asking import connected

PLACES, SILENT_S = 4, 5.0


@dataclass
class Served:
    """An anteroom at a port, and the first words of those who came through it."""

    anteroom: Anteroom
    port: int
    clock: trio.testing.MockClock | None
    words: list[bytes] = field(default_factory=list)
    came: list[trio.SocketStream] = field(default_factory=list)

    async def come(self, local: str = "127.0.0.1") -> trio.SocketStream:
        self.came.append(await connected(self.port, local))
        return self.came[-1]

    async def say(self, words: bytes, local: str = "127.0.0.1") -> trio.SocketStream:
        """It comes, and has been heard."""
        visitor = await self.come(local)
        await visitor.send_all(words)
        await self.until(lambda: words in self.words)
        return visitor

    async def crowd(self, hosts: Sequence[str]) -> list[trio.SocketStream]:
        """One from each host; all of them have been let in."""
        crowd = [await self.come(host) for host in hosts]
        await self.until(lambda: self.gone + len(self.anteroom) == len(self.came))
        return crowd

    @property
    def gone(self) -> int:
        """How many have been shown out again, or served; none of them has left by itself."""
        return len(select.select([stream.socket for stream in self.came], [], [], 0)[0])

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Handfuls come in meanwhile, also where the clock stands."""
        while not is_so():
            await trio.testing.wait_all_tasks_blocked(0.01)
            if self.clock is not None:
                self.clock.jump(HANDFUL_S)

    async def until_here(self, count: int) -> None:
        while len(self.anteroom) != count:
            await trio.testing.wait_all_tasks_blocked(0.01)


@asynccontextmanager
async def served(
    clock: trio.testing.MockClock | None = None, places: int = PLACES, per_s: float = 1.0
) -> AsyncIterator[Served]:
    """`per_s`: of those who speak; twice as many at once."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    familiar = Familiar()
    familiar.note("127.0.0.9")
    port = listener.socket.getsockname()[1]
    subject = Served(Anteroom(places, SILENT_S, familiar), port, clock)

    async def hear(stream: trio.SocketStream) -> None:
        subject.words.append(await stream.receive_some(100))

    gate = Gate(places, per_s, Shortage())
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(serve_who_speaks, listener, hear, gate, subject.anteroom)
        yield subject
        nursery.cancel_scope.cancel()


async def is_shown_out(stream: trio.SocketStream) -> bool:
    try:
        return await stream.receive_some(1) == b""
    except trio.BrokenResourceError:
        return True


async def test_a_silent_crowd_takes_no_turn_of_whoever_speaks(
    mock_clock: trio.testing.MockClock,  # it stands: two are served at once, and then nobody
) -> None:
    async with served(mock_clock) as subject:
        crowd = await subject.crowd(10 * PLACES * ["127.0.0.2"])
        visitor = await subject.say(b"here")
        assert subject.words == [b"here"]
        assert await is_shown_out(visitor)  # served to the end
        stay = PLACES - 1  # for the visitor was one of those here
        assert len(subject.anteroom) == stay
        assert all([await is_shown_out(stream) for stream in crowd[:-stay]])
        for stream in crowd:
            await trio.aclose_forcefully(stream)
        await subject.until_here(0)  # nobody of them is left behind, and none took a turn
        assert not subject.anteroom._held  # nor the name of where they came from
        await subject.say(b"too")
        assert len(subject.words) == 2


async def test_of_the_address_with_most_here_the_first_that_came_goes(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with served(mock_clock) as subject:
        (alone,) = await subject.crowd(["127.0.0.2"])
        crowd = await subject.crowd(PLACES * ["127.0.0.3"])
        assert await is_shown_out(crowd[0])
        await alone.send_all(b"still here")
        await subject.until(lambda: bool(subject.words))
        assert subject.words == [b"still here"]
        assert len(subject.anteroom) == PLACES - 1


async def test_who_has_come_and_gone_counts_no_more_and_gives_its_place_to_the_next() -> None:
    async with served(per_s=100.0) as subject:
        with trio.fail_after(30):
            for number in range(PLACES + 1):
                visitor = await subject.come("127.0.0.2")
                await visitor.send_all(b"%d" % number)
                assert await is_shown_out(visitor)
            assert subject.words == [b"%d" % number for number in range(PLACES + 1)]
            alone = await subject.come("127.0.0.2")
            await subject.until_here(1)
            crowd = [await subject.come("127.0.0.3") for _ in range(PLACES)]
            assert await is_shown_out(crowd[0])
            await alone.send_all(b"still here")
            assert await is_shown_out(alone)
        assert subject.words[-1] == b"still here"


async def test_whoever_comes_from_a_familiar_address_stays_and_is_served_first(
    mock_clock: trio.testing.MockClock,  # it stands: two are served at once
) -> None:
    async with served(mock_clock) as subject:
        for word in (b"first", b"second"):
            await subject.say(word, "127.0.0.2")
        (known,) = await subject.crowd(["127.0.0.9"])
        crowd = await subject.crowd([f"127.0.0.{host}" for host in range(10, 10 + 3 * PLACES)])
        for stream in crowd[-2:]:
            await stream.send_all(b"of a crowd")
        await known.send_all(b"known")
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(1.0)  # one turn
        while len(subject.words) < 3:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert subject.words == [b"first", b"second", b"known"]


async def test_a_crowd_from_a_familiar_address_keeps_nobody_else_out(
    mock_clock: trio.testing.MockClock,  # it stands: two are served at once
) -> None:
    async with served(mock_clock, places=2 * SHARES) as subject:
        for word in (b"first", b"second"):
            await subject.say(word, "127.0.0.2")
        crowd = await subject.crowd(2 * SHARES * ["127.0.0.9"])
        (alone,) = await subject.crowd(["127.0.0.3"])
        crowd += await subject.crowd(2 * SHARES * ["127.0.0.9"])
        assert len(subject.anteroom) == 2 * SHARES
        for stream in crowd[-SHARES:]:
            await stream.send_all(b"of a crowd")
        await alone.send_all(b"alone")
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(1.0)  # one turn
        while len(subject.words) < 3:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert subject.words == [b"first", b"second", b"alone"]


async def test_whoever_is_silent_for_long_goes_also_where_there_is_room(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with served() as subject:
        stream = await subject.come()
        await subject.until_here(1)
        mock_clock.jump(SILENT_S - LOOK_S / 2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(subject.anteroom) == 1
        mock_clock.jump(2 * LOOK_S)
        assert await is_shown_out(stream)
        assert len(subject.anteroom) == 0


async def test_more_than_its_pace_wait_in_the_kernel_and_are_let_in_with_time(
    mock_clock: trio.testing.MockClock,
) -> None:
    at_once = int(BURST) + HANDFUL  # what is not earned yet is owed
    crowd = at_once + 2 * HANDFUL
    async with served(places=1000) as subject:
        for _ in range(crowd):
            await subject.come()
        turns = 0
        while True:
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert len(subject.anteroom) <= at_once + turns * HANDFUL
            if len(subject.anteroom) == crowd:
                break
            mock_clock.jump(HANDFUL_S)
            turns += 1


async def test_whoever_hangs_up_at_once_counts_in_the_pace_too(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with served(places=1000) as subject:
        for _ in range(int(BURST) + 2 * HANDFUL):
            await trio.aclose_forcefully(await connected(subject.port))
        visitor = await subject.come()
        await visitor.send_all(b"here")
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert subject.words == []
        mock_clock.jump(2 * HANDFUL_S)
        assert await is_shown_out(visitor)
        assert subject.words == [b"here"]


async def test_a_full_room_is_entered_by_handfuls_and_nobody_waits_behind_a_crowd_for_the_next(
    mock_clock: trio.testing.MockClock,  # it stands
) -> None:
    async with served() as subject:
        for count in range(PLACES):
            await subject.come()
            await subject.until_here(count + 1)
        for _ in range(HANDFUL // 2):
            await subject.come()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert subject.gone == 0
        for _ in range(HANDFUL):  # while the loop is busy elsewhere, say
            await subject.come()
        visitor = await subject.come()
        await visitor.send_all(b"here")
        mock_clock.jump(HANDFUL_S)
        assert await is_shown_out(visitor)
        assert subject.words == [b"here"]


async def test_when_it_is_closed_everybody_is_shown_out_and_it_can_be_entered_again() -> None:
    async with served() as subject:
        stream = await subject.come()
        await subject.until_here(1)
    assert await is_shown_out(stream)
    assert len(subject.anteroom) == 0


async def test_whoever_gives_way_while_it_is_listened_to_is_not_served() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        for steps in range(8):  # of other tasks, before the next one comes
            anteroom, found = Anteroom(1, SILENT_S, Familiar()), list[socket.socket]()
            ours, theirs = list[socket.socket](), list[socket.socket]()
            for _ in range(2):
                theirs.append(socket.create_connection(door.getsockname()))
                theirs[-1].sendall(b"here")
                ours.append(door.accept()[0])
                await trio.lowlevel.wait_readable(ours[-1])
            anteroom.enter(ours[0], "127.0.0.1")

            async def find(
                anteroom: Anteroom = anteroom, found: list[socket.socket] = found
            ) -> None:
                found.append(await anteroom.speaker())

            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(find)
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    anteroom.enter(ours[1], "127.0.0.1")
            assert found[0].fileno() >= 0
            assert not found[0].getblocking()
            anteroom.close()
            for each in (*theirs, *found):
                each.close()


async def test_a_lack_of_files_is_outlasted_and_who_is_gone_already_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accept, met = socket.socket.accept, [errno.ECONNABORTED, errno.EMFILE, errno.ENETDOWN]

    def lacking(door: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
        if met:
            raise OSError(met.pop(), "as the system says")
        return accept(door)

    monkeypatch.setattr(socket.socket, "accept", lacking)
    with trio.fail_after(30):
        async with served() as subject:
            visitor = await subject.come()
            await visitor.send_all(b"here")
            assert await is_shown_out(visitor)
            assert subject.words == [b"here"]
    assert met == []


async def test_whoever_seemed_to_speak_and_did_not_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    recv, met = socket.socket.recv, [errno.EAGAIN]

    def not_yet(visitor: socket.socket, count: int, flags: int = 0) -> bytes:
        if met and flags:
            raise BlockingIOError(met.pop(), "as the system says")
        return recv(visitor, count, flags)

    monkeypatch.setattr(socket.socket, "recv", not_yet)
    with trio.fail_after(30):
        async with served() as subject:
            assert await is_shown_out(await subject.say(b"here"))
    assert met == []


async def test_who_has_no_address_any_more_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS says it."""
    accept, passed = socket.socket.accept, list[socket.socket]()

    def nameless(door: socket.socket) -> tuple[socket.socket, tuple[str, int] | None]:
        visitor, address = accept(door)
        if passed:
            return visitor, address
        passed.append(visitor)
        return visitor, None

    monkeypatch.setattr(socket.socket, "accept", nameless)
    with trio.fail_after(30):
        async with served() as subject:
            await subject.come()
            assert await is_shown_out(await subject.say(b"here"))
            assert passed[0].fileno() == -1


async def test_a_door_that_is_broken_is_not_asked_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_door: socket.socket) -> NoReturn:
        raise OSError(errno.EINVAL, "not listening")

    monkeypatch.setattr(socket.socket, "accept", broken)
    with trio.fail_after(30), pytest.RaisesGroup(OSError, flatten_subgroups=True):
        async with served() as subject, await subject.come():
            await trio.sleep_forever()


@pytest.mark.parametrize("full", [False, True])
async def test_a_door_that_somebody_closes_is_left_and_one_that_is_left_stays_open(
    full: bool, mock_clock: trio.testing.MockClock
) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    name = listener.socket.getsockname()
    anteroom, gate = Anteroom(1, SILENT_S, Familiar()), Gate(1, 1.0, Shortage())
    serve = partial(serve_who_speaks, listener, trio.aclose_forcefully, gate, anteroom)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert listener.socket.getsockname() == name
    with pytest.RaisesGroup(trio.ClosedResourceError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            if full:  # it pauses, and does not listen
                nursery.start_soon(connected, name[1])
                while not anteroom.is_full:
                    await trio.testing.wait_all_tasks_blocked(0.01)
            await trio.testing.wait_all_tasks_blocked()
            await listener.aclose()
            mock_clock.jump(HANDFUL_S)
    socket.create_server(name).close()  # nobody listens there any more
    assert len(anteroom) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere files are watched, too")
async def test_what_the_system_does_not_watch_stays_nowhere(tmp_path: Path) -> None:
    """No socket is refused so while there is memory; a file is."""
    anteroom = Anteroom(1, SILENT_S, Familiar())
    with socket.socketpair()[0] as here, (tmp_path / "file").open("wb") as file:
        anteroom.enter(here, "127.0.0.1")
        nothing = socket.socket()
        os.dup2(file.fileno(), nothing.fileno())
        with pytest.raises(PermissionError):
            anteroom.enter(nothing, "127.0.0.2")
        assert nothing.fileno() == -1
        assert len(anteroom) == 1
        assert here.fileno() >= 0  # it gave way to nobody
        anteroom.close()
        assert here.fileno() == -1
