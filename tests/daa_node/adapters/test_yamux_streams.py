"""What a stream counts for, when it counts no more, and who is woken by its end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from libp2p.stream_muxer.exceptions import MuxedConnUnavailable, MuxedStreamEOF

from daa_node.adapters.libp2p_frames import (
    ACK,
    DATA,
    FIN,
    HEADER,
    HEADER_BYTES,
    PING,
    RST,
    SYN,
    WINDOW_UPDATE,
)
from daa_node.adapters.libp2p_yamux import YamuxSession
from daa_node.adapters.yamux_streams import LINGER_S, WINDOW_BYTES, YamuxStream
from daa_node.wire.limits import MIB, STREAMS_PER_PEER_MAX
from tests.daa_node.adapters.libp2p_stranger import frame
from tests.daa_node.adapters.test_libp2p_limits import PEER, Wire, wires

WINDOW_FULL = frame(DATA, 0, 1, WINDOW_BYTES, bytes(WINDOW_BYTES))[HEADER_BYTES:]


@asynccontextmanager
async def member() -> AsyncIterator[tuple[Wire, YamuxSession]]:
    """A session of ours, and the bare wire of a member that may say anything on it."""
    them, ours = wires()
    session = YamuxSession(ours, PEER)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.start)
        await session.event_started.wait()
        session.admit(lambda: True, None)
        with trio.fail_after(60):
            yield them, session
        nursery.cancel_scope.cancel()


async def full_stream(them: Wire, stream_id: int) -> None:
    await them.write(frame(DATA, SYN, stream_id, 0))
    await them.write(HEADER.pack(0, DATA, 0, stream_id, WINDOW_BYTES) + WINDOW_FULL)


async def accepted(session: YamuxSession) -> YamuxStream:
    with trio.fail_after(1):
        return await session.accept_stream()


async def test_streams_that_died_while_they_were_served_make_room_once_they_are_released(
    autojump_clock: object,
) -> None:
    async with member() as (them, session):
        ids = iter(range(1, 10_000, 2))
        for _ in range(3):
            served: list[YamuxStream] = []
            for stream_id in (next(ids) for _ in range(STREAMS_PER_PEER_MAX)):
                await them.write(frame(DATA, SYN, stream_id, 0))
                served.append(await accepted(session))
                await them.write(frame(DATA, RST, stream_id, 0))
            await trio.testing.wait_all_tasks_blocked()
            for stream in served:
                stream.release()


@pytest.mark.parametrize("how", ["read", "reset by the peer", "closed by us"])
async def test_what_is_unread_no_more_makes_room_for_what_comes(
    how: str, autojump_clock: object
) -> None:
    async with member() as (them, session):
        for stream_id in range(1, 1 + 2 * 4 * MIB // WINDOW_BYTES, 2):
            await full_stream(them, stream_id)
            stream = await accepted(session)
            while len(stream.inbox) < WINDOW_BYTES:
                await trio.sleep(0.01)
            if how == "read":
                assert len(await stream.read()) == WINDOW_BYTES
            elif how == "closed by us":
                await stream.close()
            else:
                await them.write(frame(DATA, RST, stream_id, 0))


async def test_a_session_that_waited_for_its_reader_goes_on_once_it_reads(
    autojump_clock: object,
) -> None:
    async with member() as (them, session):
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                for stream_id in range(1, 21, 2):
                    await full_stream(them, stream_id)

            nursery.start_soon(write)
            await trio.sleep(1)
            for _ in range(10):
                stream, taken = await accepted(session), 0
                while taken < WINDOW_BYTES:
                    taken += len(await stream.read())
        assert not session.is_closed


async def test_whoever_waits_for_a_stream_hears_that_the_connection_is_gone(
    autojump_clock: object,
) -> None:
    async with member() as (_, session), trio.open_nursery() as nursery:

        async def accept() -> None:
            with pytest.raises(MuxedConnUnavailable), trio.fail_after(5):
                await session.accept_stream()

        nursery.start_soon(accept)
        await trio.sleep(1)
        await session.close()


async def test_whoever_waits_for_words_hears_that_there_will_be_none(
    autojump_clock: object,
) -> None:
    async with member() as (them, session), trio.open_nursery() as nursery:
        await them.write(frame(DATA, SYN, 1, 0))
        stream = await accepted(session)

        async def read() -> None:
            with pytest.raises(MuxedStreamEOF), trio.fail_after(5):
                await stream.read()

        nursery.start_soon(read)
        await trio.sleep(1)
        await them.write(frame(DATA, FIN, 1, 0))


BROKEN = {
    "data after the end": frame(DATA, SYN | FIN, 1, 0) + frame(DATA, 0, 1, 1, b"x"),
    "an id that was used": frame(DATA, SYN | RST, 3, 0) + frame(DATA, SYN, 3, 0),
    "an id of ours": frame(DATA, SYN, 2, 0),
    "a window without end": frame(DATA, SYN, 1, 0) + frame(WINDOW_UPDATE, 0, 1, 2**32 - 1),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_who_breaks_the_format_of_streams_loses_the_connection(
    name: str, autojump_clock: object
) -> None:
    async with member() as (them, session):
        await them.write(BROKEN[name])
        with trio.fail_after(1):
            await session.event_closed.wait()


async def test_a_stream_that_the_peer_leaves_half_closed_is_reset_and_the_peer_told(
    autojump_clock: object,
) -> None:
    async with member() as (them, session):
        await them.write(frame(DATA, SYN, 1, 0))
        await (await accepted(session)).close()
        said = bytearray()
        with trio.move_on_after(2 * LINGER_S):
            while True:
                said += await them.read()
        assert session.streams.all() == []
        assert HEADER.pack(0, WINDOW_UPDATE, RST, 1, 0) in said


async def test_what_two_tasks_write_to_one_stream_comes_one_after_the_other(
    autojump_clock: object,
) -> None:
    """Each is longer than the window: both wait within."""
    one, two = (YamuxSession(wire, PEER) for wire in wires())  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        for side in (one, two):
            nursery.start_soon(side.start)
            await side.event_started.wait()
        writer = await one.open_stream()
        for message in (b"a", b"b"):
            nursery.start_soon(writer.write, message * 2 * WINDOW_BYTES)
        reader, received = await two.accept_stream(), bytearray()
        with trio.fail_after(5):
            while len(received) < 4 * WINDOW_BYTES:
                received += await reader.read(65_536)
                await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    half = 2 * WINDOW_BYTES
    assert len({*received[:half]}) == len({*received[half:]}) == 1


async def pinged(them: Wire) -> int:
    """The number of the next ping that comes."""
    while True:
        _, kind, flags, _, number = HEADER.unpack(await them.read())
        if (kind, flags) == (PING, SYN):
            return int(number)


async def test_a_round_trip_is_from_our_newest_ping_to_the_first_answer_to_it(
    autojump_clock: object,
) -> None:
    heard: list[float] = []
    async with member() as (them, session):
        session.on_round_trip = heard.append
        first = await pinged(them)
        await trio.sleep(1.0)
        await them.write(frame(PING, ACK, 0, first))
        await trio.sleep(1.0)
        await them.write(frame(PING, ACK, 0, first))  # again
        second = await pinged(them)
        guesses = {(first + step) % 2**32 for step in range(-2, 3)} | {0, 1, 2}
        assert second not in guesses  # so that nobody answers before it has come
        for number in sorted(guesses):
            await them.write(frame(PING, ACK, 0, number))
        await trio.testing.wait_all_tasks_blocked()
        assert [round(rtt_s, 3) for rtt_s in heard] == [1.0]
        await them.write(frame(PING, ACK, 0, second))
        await trio.testing.wait_all_tasks_blocked()
    assert len(heard) == 2
    assert session.rtt_s == heard[1]
