"""How one volunteer's session ends, whatever its stream does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from daa_dag import canonical
from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.gateway.task_desk import SLOWEST_BYTES_PER_S, Seat
from daa_node.gateway.volunteer_session import (
    IDLE_S,
    PARTING_S,
    PIECE_BYTES,
    SILENT_S,
    VolunteerSession,
)
from daa_node.seams import PeerId
from daa_node.wire.limits import MIB


class Cut:
    """A ByteStream that breaks as soon as it is read."""

    peer_id = PeerId("somebody")

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        raise trio.BrokenResourceError("cut")

    async def receive_some(self, size_bytes_max: int) -> bytes:
        raise trio.BrokenResourceError("cut")

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("says", [False, True])
async def test_a_stream_that_is_cut_has_ended_as_one_that_was_closed(says: bool) -> None:
    session = VolunteerSession(Cut(), Seat(b"s", NodeId(b"n"), b"key", "a"), lambda message: None)
    if says:
        session.send(b"welcome")
    await session.run()


class Dripping:
    """One that says something every few seconds, and takes a piece now and then."""

    peer_id = PeerId("somebody")

    def __init__(self, says: bytes, taking_s: float = 0.0) -> None:
        self._says = len(says).to_bytes(4) + says
        self._taking_s = taking_s

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        await trio.sleep(self._taking_s if len(payload) >= PIECE_BYTES else 0)

    async def receive_some(self, size_bytes_max: int) -> bytes:
        await trio.sleep(5.0)
        return self._says

    async def aclose(self) -> None:
        pass


@asynccontextmanager
async def ended(stream: Dripping, within_s: float, *frames: bytes) -> AsyncIterator[PeerFault]:
    """The reason by which a session ends on it."""
    seat = Seat(b"s", NodeId(b"n"), b"key", "a")
    session = VolunteerSession(stream, seat, lambda message: None)
    for frame in frames:
        session.send(frame)
    with trio.fail_after(within_s), pytest.raises(PeerFault) as fault:
        await session.run()
    yield fault.value


@pytest.mark.parametrize("says", [["ready", 0, ["dag"]], ["ready", 1, []], ["ready", 2, ["new"]]])
async def test_who_takes_nothing_is_idle_however_often_it_says_so(
    says: list[Any], autojump_clock: trio.testing.MockClock
) -> None:
    async with ended(Dripping(canonical.encode(says)), IDLE_S + 10) as fault:
        assert fault.reason == "idle"
        assert trio.current_time() > IDLE_S


async def test_who_takes_a_piece_now_and_then_holds_no_task_for_hours(
    autojump_clock: trio.testing.MockClock,
) -> None:
    beat = canonical.encode(["beat", 1])
    fair_s = SILENT_S + MIB / SLOWEST_BYTES_PER_S
    async with ended(Dripping(beat, SILENT_S - 1), fair_s + 1, bytes(MIB)) as fault:
        assert fault.reason == "silent"


class Slow(Dripping):
    """One that takes everything, after a while, and keeps it."""

    def __init__(self, says: bytes) -> None:
        super().__init__(says)
        self.taken = b""

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        await trio.sleep(0.5)
        self.taken += payload


@pytest.mark.parametrize("end_s", [7.0, 9.5])  # the next beat comes later, or while this is sent
async def test_what_was_said_before_the_end_comes_before_it(
    end_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    stream, heard = Slow(canonical.encode(["beat", 1])), list[object]()
    session = VolunteerSession(stream, Seat(b"s", NodeId(b"n"), b"key", "a"), heard.append)

    async def judge() -> None:
        await trio.sleep(end_s)  # one beat was heard
        for frame in (b"a task", b"that result was wrong"):
            session.send(frame)
        session.end("standing", "come back in a day")
        session.send(b"another task")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(judge)
        with pytest.raises(PeerFault, match="come back"):
            await session.run()
    assert stream.taken.endswith(b"that result was wrong")
    assert len(heard) == 1
    assert trio.current_time() < end_s + PARTING_S  # no longer than it takes to send it


async def test_who_takes_nothing_is_not_waited_for_at_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    stream = Dripping(canonical.encode(["beat", 1]), SILENT_S)
    session = VolunteerSession(stream, Seat(b"s", NodeId(b"n"), b"key", "a"), lambda message: None)
    session.send(bytes(2 * PIECE_BYTES))
    session.end("standing", "come back in a day")

    async def end_again() -> None:
        while True:
            await trio.sleep(PARTING_S / 2)
            session.end("idle", "you answered nothing")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_again)
        with pytest.raises(PeerFault, match="come back"):
            await session.run()
        nursery.cancel_scope.cancel()
    assert trio.current_time() < 2 * PARTING_S
