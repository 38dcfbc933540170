"""Messages come out as they went in, in any pieces; what is too long or too short is a fault."""

import struct

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from daa_node.errors import PeerFault
from daa_node.seams import PeerId
from daa_node.wire.framing import (
    MESSAGES_A_TURN,
    READ_BYTES_MAX,
    MessageReader,
    read_exactly,
    read_message,
    read_message_or_end,
    write_message,
)


class Tape:
    """A stream that gives what was written, in pieces of `piece_bytes`, and counts what it gave."""

    def __init__(self, content: bytes = b"", piece_bytes: int = 3) -> None:
        self.content = bytearray(content)
        self.piece_bytes = piece_bytes
        self.asked_max = 0
        self.reads = 0

    @property
    def peer_id(self) -> PeerId:
        return PeerId("tape")

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        self.content += payload

    async def receive_some(self, size_bytes_max: int) -> bytes:
        self.asked_max = max(self.asked_max, size_bytes_max)
        self.reads += 1
        piece = bytes(self.content[: min(size_bytes_max, self.piece_bytes)])
        del self.content[: len(piece)]
        return piece

    async def aclose(self) -> None: ...


@given(payloads=st.lists(st.binary(max_size=300), max_size=6), piece_bytes=st.integers(1, 400))
def test_messages_survive_any_cutting_into_pieces(payloads: list[bytes], piece_bytes: int) -> None:
    async def scenario() -> None:
        tape = Tape(piece_bytes=piece_bytes)
        for payload in payloads:
            await write_message(tape, payload)
        for payload in payloads:
            assert await read_message(tape, 300) == payload
        assert await read_message_or_end(tape, 300) is None

    trio.run(scenario)


async def test_a_length_beyond_the_limit_is_refused_before_a_byte_of_it_is_read() -> None:
    tape = Tape(struct.pack("!I", 2**32 - 1) + bytes(1000))
    with pytest.raises(PeerFault, match="oversize.*4294967295 bytes, at most 999"):
        await read_message(tape, 999)
    assert len(tape.content) == 1000


@pytest.mark.parametrize("kept", [1, 3, 4, 10])
async def test_an_end_inside_a_message_is_a_fault(kept: int) -> None:
    tape = Tape((struct.pack("!I", 20) + bytes(20))[:kept])
    with pytest.raises(PeerFault, match="truncated"):
        await read_message_or_end(tape, 100)


async def test_an_end_between_messages_is_no_fault_unless_one_is_due() -> None:
    assert await read_message_or_end(Tape(), 100) is None
    with pytest.raises(PeerFault, match="truncated"):
        await read_message(Tape(), 100)


async def test_a_large_announced_size_does_not_ask_for_it_at_once() -> None:
    tape = Tape(bytes(100))
    with pytest.raises(PeerFault, match="100 of 1000000000 bytes"):
        await read_exactly(tape, 10**9)
    assert tape.asked_max == READ_BYTES_MAX


@given(payloads=st.lists(st.binary(max_size=300), max_size=6), piece_bytes=st.integers(1, 400))
def test_a_reader_gives_message_after_message(payloads: list[bytes], piece_bytes: int) -> None:
    async def scenario() -> None:
        tape = Tape(piece_bytes=piece_bytes)
        for payload in payloads:
            await write_message(tape, payload)
        reader = MessageReader(tape, 300)
        for payload in payloads:
            assert await reader.next() == payload
        assert await reader.next() is None

    trio.run(scenario)


async def test_a_reader_takes_small_messages_in_one_read_and_large_ones_in_pieces() -> None:
    tape = Tape(piece_bytes=READ_BYTES_MAX)
    for payload in (b"a", b"b" * 3000):
        await write_message(tape, payload)
    reader = MessageReader(tape, 3 * READ_BYTES_MAX)
    assert [await reader.next(), await reader.next()] == [b"a", b"b" * 3000]
    assert tape.reads == 1
    await write_message(tape, bytes(2 * READ_BYTES_MAX))
    assert await reader.next() == bytes(2 * READ_BYTES_MAX)
    assert tape.asked_max < READ_BYTES_MAX


async def test_messages_that_came_together_take_few_turns_and_leave_others_theirs() -> None:
    tape, turns = Tape(piece_bytes=READ_BYTES_MAX), 0
    for _ in range(4 * MESSAGES_A_TURN):
        await write_message(tape, b"small")

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    reader = MessageReader(tape, 300)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        for _ in range(4 * MESSAGES_A_TURN):
            assert await reader.next() == b"small"
        nursery.cancel_scope.cancel()
    assert 2 <= turns <= 5


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (struct.pack("!I", 2**32 - 1), "oversize.*4294967295 bytes, at most 999"),
        (struct.pack("!I", 10) + b"half", "truncated.*8 bytes of a message"),
        (b"\0", "truncated.*1 bytes of a message"),
    ],
)
async def test_a_reader_refuses_what_is_too_long_or_ends_too_early(
    content: bytes, reason: str
) -> None:
    with pytest.raises(PeerFault, match=reason):
        await MessageReader(Tape(content), 999).next()
