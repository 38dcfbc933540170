"""Length-prefixed messages over a byte stream: 4 bytes big-endian, then that many bytes.

The reader states the largest message it accepts. `read_message` takes no byte beyond the message
from the stream, which may then carry something else; a `MessageReader` owns its stream to the end.
"""

import struct
from collections.abc import Iterator

import trio

from daa_node.errors import PeerFault
from daa_node.seams import ByteStream
from daa_node.wire.limits import LENGTH_PREFIX_BYTES

# The other side has gone, or was stopped, or gives up: where that is no lie, nobody is blamed.
TRUNCATED = "truncated"
_LENGTH = struct.Struct("!I")
# Taken at a time: a peer that announces much and sends little makes us hold only what it sent.
READ_BYTES_MAX = 256 * 1024
READ_AHEAD_BYTES = 64 * 1024  # of one long-lived stream: a dozen votes
# Of those that came together; then others have their turn: signatures to verify for 3 ms.
MESSAGES_A_TURN = 16


async def write_message(stream: ByteStream, payload: bytes | bytearray | memoryview) -> None:
    """Send `payload` with its length in front. Raises trio.BrokenResourceError when cut."""
    # one write: prefix and payload leave in one packet, and one frame of the multiplexer
    await stream.send_all(_LENGTH.pack(len(payload)) + bytes(payload))


def message_in_pieces(payload: bytes, piece_bytes: int) -> Iterator[bytes | memoryview]:
    """What write_message sends, cut up: no second copy of a long message is made."""
    yield _LENGTH.pack(len(payload)) + payload[:piece_bytes]
    for at in range(piece_bytes, len(payload), piece_bytes):
        yield memoryview(payload)[at : at + piece_bytes]


class MessageReader:
    """The messages of one long-lived stream, read ahead: a small one costs one read, not two."""

    def __init__(self, stream: ByteStream, size_bytes_max: int) -> None:
        self._stream = stream
        self._size_bytes_max = size_bytes_max
        self._ahead = bytearray()
        self._in_turn = 0  # messages taken, since others had theirs

    @property
    def ahead_bytes(self) -> int:
        """What has come of messages that were not taken yet."""
        return len(self._ahead)

    async def next(self) -> bytes | None:
        """The next message, or None when the stream ends between two. Raises PeerFault."""
        payload = self._whole()
        self._in_turn = (self._in_turn + 1) % MESSAGES_A_TURN
        if payload is not None and self._in_turn:
            await trio.lowlevel.checkpoint_if_cancelled()
        elif payload is not None:
            await trio.lowlevel.checkpoint()  # who sent many at once lets others have their turn
        while payload is None:
            piece = await self._stream.receive_some(READ_AHEAD_BYTES)
            if not piece and self._ahead:
                raise PeerFault(TRUNCATED, f"{len(self._ahead)} bytes of a message, then the end")
            if not piece:
                return None
            self._ahead += piece
            payload = self._whole()
        return payload

    def _whole(self) -> bytes | None:
        """The first message, if all of it is there. Raises PeerFault "oversize"."""
        ahead = self._ahead
        if len(ahead) < LENGTH_PREFIX_BYTES:
            return None
        (size_bytes,) = _LENGTH.unpack_from(ahead)
        if size_bytes > self._size_bytes_max:
            raise _oversize(size_bytes, self._size_bytes_max)
        end = LENGTH_PREFIX_BYTES + size_bytes
        if len(ahead) < end:
            return None
        payload = bytes(ahead[LENGTH_PREFIX_BYTES:end])
        del ahead[:end]
        return payload


async def read_message(stream: ByteStream, size_bytes_max: int) -> bytes:
    """The next message. Raises PeerFault "oversize" or "truncated" (also at a clean end)."""
    payload = await read_message_or_end(stream, size_bytes_max)
    if payload is None:
        raise PeerFault(TRUNCATED, "stream ended where a message was due")
    return payload


async def read_message_or_end(stream: ByteStream, size_bytes_max: int) -> bytes | None:
    """The next message, or None when the stream ends between two. Raises PeerFault."""
    prefix = await read_exactly(stream, LENGTH_PREFIX_BYTES, may_end=True)
    if not prefix:
        return None
    (size_bytes,) = _LENGTH.unpack(prefix)
    if size_bytes > size_bytes_max:
        raise _oversize(size_bytes, size_bytes_max)
    return await read_exactly(stream, size_bytes)


def _oversize(size_bytes: int, size_bytes_max: int) -> PeerFault:
    return PeerFault("oversize", f"message of {size_bytes} bytes, at most {size_bytes_max}")


async def read_exactly(stream: ByteStream, size_bytes: int, may_end: bool = False) -> bytes:
    """`size_bytes` bytes, however many reads it takes; b"" at once if it ends first and `may_end`.

    Raises PeerFault "truncated" when the stream ends inside.
    """
    taken = bytearray()
    while len(taken) < size_bytes:
        piece = await stream.receive_some(min(size_bytes - len(taken), READ_BYTES_MAX))
        if not piece:
            if may_end and not taken:
                return b""
            raise PeerFault(TRUNCATED, f"{len(taken)} of {size_bytes} bytes, then the end")
        taken += piece
    return bytes(taken)
