"""What a message, a stream and a lock may cost: packets, round trips, turns of the event loop."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
import trio
import trio.testing
from libp2p.abc import IMultiselectCommunicator, ISecureConn
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.protocol_muxer.exceptions import MultiselectClientError
from libp2p.protocol_muxer.multiselect_client import MULTISELECT_PROTOCOL_ID
from libp2p.stream_muxer.exceptions import MuxedStreamReset

from daa_node.adapters.libp2p_frames import (
    ACK,
    CONTROL_BYTES_MAX,
    FRAME_BYTES_MAX,
    PENDING_BYTES_MAX,
    PING,
    WRITE_STALL_S,
)
from daa_node.adapters.libp2p_negotiation import PromptClient
from daa_node.adapters.libp2p_yamux import YamuxSession
from daa_node.adapters.yamux_streams import WINDOW_BYTES
from daa_node.prompt_lock import PromptLock

PEER = ID.from_pubkey(create_new_key_pair(bytes(32)).public_key)
ECHO = TProtocol("/echo")
HEADER = struct.Struct("!BBHII")


class Sink:
    """A secured connection whose peer only answers pings; what goes out is kept, while `takes`."""

    is_initiator = True

    def __init__(self, takes: bool = True) -> None:
        self.packets: list[bytes] = []
        self._takes = takes

    async def read(self, n: int | None = None) -> bytes:
        await trio.sleep(1)
        return HEADER.pack(0, PING, ACK, 0, 0)

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.packets.append(data)
        if not self._takes:
            await trio.sleep_forever()

    async def close(self) -> None: ...

    def get_remote_address(self) -> tuple[str, int] | None:
        return None


@asynccontextmanager
async def session_on(sink: Sink) -> AsyncIterator[YamuxSession]:
    session = YamuxSession(cast(ISecureConn, sink), PEER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.start)
        await trio.testing.wait_all_tasks_blocked()
        sink.packets.clear()  # the first ping
        yield session
        nursery.cancel_scope.cancel()


async def test_a_stream_and_all_that_is_said_on_it_at_once_leave_in_one_packet() -> None:
    async with session_on(sink := Sink()) as session:
        for _ in range(10):  # in whichever order tasks get their turns
            sink.packets.clear()
            stream = await session.open_stream()
            for word in (b"one", b"two", b"three"):
                await stream.write(word)
            await trio.testing.wait_all_tasks_blocked()
            (packet,) = sink.packets
            assert packet.endswith(b"three")
            assert len(packet) == 4 * HEADER.size + len(b"onetwothree")


async def test_a_packet_holds_whole_frames_and_fits_one_message_of_noise() -> None:
    async with session_on(sink := Sink()) as session:
        stream = await session.open_stream()
        await stream.write(bytes(FRAME_BYTES_MAX + 100))
        await trio.testing.wait_all_tasks_blocked()
        assert max(len(packet) for packet in sink.packets) <= FRAME_BYTES_MAX + HEADER.size
        for packet in sink.packets:
            while packet:
                _, kind, _, _, length = HEADER.unpack_from(packet)
                size = HEADER.size + (0 if kind else length)
                assert len(packet) >= size
                packet = packet[size:]


async def test_what_was_written_before_the_end_is_sent() -> None:
    async with session_on(sink := Sink()) as session:
        stream = await session.open_stream()
        await stream.write(b"last words")
        await session.close()
        assert b"last words" in b"".join(sink.packets)


async def test_nothing_follows_the_end_of_a_stream() -> None:
    async with session_on(sink := Sink()) as session:
        stream = await session.open_stream()
        await stream.close()
        with pytest.raises(MuxedStreamReset):
            await stream.write(b"one word more")
        await session.close()
        assert b"one word more" not in b"".join(sink.packets)


async def test_what_the_peer_takes_makes_room_for_data_and_for_what_is_owed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with session_on(sink := Sink()) as session:
        stream = await session.open_stream()
        with trio.fail_after(1):
            await stream.write(bytes(WINDOW_BYTES))
        for number in range(2 * CONTROL_BYTES_MAX // HEADER.size):
            session._writer.owe(PING, ACK, 0, number)
            if number % 1000 == 0:
                await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        assert session.is_established
        assert sum(map(len, sink.packets)) > WINDOW_BYTES + 2 * CONTROL_BYTES_MAX


async def test_whoever_is_told_to_hurry_while_it_closes_still_closes() -> None:
    async with session_on(Sink(takes=False)) as session:
        stream = await session.open_stream()
        await stream.write(b"never taken")
        with trio.CancelScope() as hurry:
            hurry.cancel()
            await session.close()
        with trio.fail_after(30):
            await session.event_closed.wait()


async def test_a_peer_that_takes_nothing_holds_little_of_us_and_loses_its_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with session_on(Sink(takes=False)) as session:
        stream = await session.open_stream()
        with pytest.raises(MuxedStreamReset):
            await stream.write(bytes(WINDOW_BYTES))
        given = WINDOW_BYTES - stream.allowance
        assert given <= PENDING_BYTES_MAX + FRAME_BYTES_MAX
        assert session.is_closed
        assert WRITE_STALL_S < trio.current_time() <= WRITE_STALL_S + 10


class Answers(IMultiselectCommunicator):
    """The other side of a negotiation, which says nothing before it has heard it all."""

    def __init__(self, *answers: str) -> None:
        self.heard: list[str] = []
        self._answers = list(answers)

    async def write(self, msg_str: str) -> None:
        self.heard.append(msg_str)

    async def read(self) -> str:
        assert self.heard == [MULTISELECT_PROTOCOL_ID, ECHO]
        if not self._answers:
            await trio.sleep_forever()
        return self._answers.pop(0)


async def test_a_stream_opens_in_one_round_trip() -> None:
    client = PromptClient()
    assert await client.select_one_of([ECHO], Answers(MULTISELECT_PROTOCOL_ID, ECHO)) == ECHO


async def test_whoever_does_not_speak_it_or_says_nothing_is_told_apart_from_who_does(
    autojump_clock: trio.testing.MockClock,
) -> None:
    client = PromptClient()
    with pytest.raises(MultiselectClientError, match="'na'"):
        await client.select_one_of([ECHO], Answers(MULTISELECT_PROTOCOL_ID, "na"))
    with pytest.raises(MultiselectClientError, match="'/other/2'"):
        await client.select_one_of([ECHO], Answers("/other/2", ECHO))
    with pytest.raises(MultiselectClientError, match="no answer"):
        await client.select_one_of([ECHO], Answers(MULTISELECT_PROTOCOL_ID))


async def test_a_free_lock_gives_no_turn_away_and_a_held_one_excludes() -> None:
    lock, order = PromptLock(), list[str]()

    async def hold(name: str) -> None:
        async with lock:
            order.append(name)
            await trio.sleep(0)
            order.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, "b")  # runnable from now on
        async with lock:
            order.append("a")
        assert order == ["a"]
        nursery.start_soon(hold, "c")
    assert order in (["a", "b", "b", "c", "c"], ["a", "c", "c", "b", "b"])
