"""Frames of yamux on the wire (hashicorp/yamux spec.md, version 0), and how they leave us."""

import struct
from collections import deque
from collections.abc import Callable

import trio
from libp2p.abc import ISecureConn

from daa_node.wire.limits import KIB

HEADER = struct.Struct("!BBHII")  # version, kind, flags, stream id, length
HEADER_BYTES = 12
DATA, WINDOW_UPDATE, PING, GO_AWAY = range(4)
SYN, ACK, FIN, RST = 1, 2, 4, 8

# A whole frame fits one noise message of 65535 bytes less its tag: a quarter of the CPU time.
NOISE_BYTES_MAX = 65519
FRAME_BYTES_MAX = NOISE_BYTES_MAX - HEADER_BYTES
PENDING_BYTES_MAX = 64 * KIB  # given and not yet written; then whoever writes waits
CONTROL_BYTES_MAX = 64 * KIB  # 5,000 frames of 12 bytes that a peer made us owe it
WRITE_STALL_S = 30.0  # a frame of 64 KiB at 2 kB/s


class FrameWriter:
    """Whole frames to one connection, in the order in which they were given.

    One task writes. What is given while it waits for its turn, or for the socket, leaves together:
    one noise message and one packet.
    """

    def __init__(self, conn: ISecureConn, end: Callable[[], None]) -> None:
        self._conn = conn
        self._end = end
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._owed_bytes = 0  # of control frames among them
        self._given = trio.Event()
        self._room = trio.Event()
        self._since_s: float | None = None  # a write is under way
        self.closed = False

    async def wait_for_room(self) -> None:
        """Return at once unless the peer takes nothing off the connection."""
        while self._bytes >= PENDING_BYTES_MAX and not self.closed:
            await self._room.wait()

    def give(self, frame: bytes) -> None:
        """After `wait_for_room`, with nothing awaited in between."""
        self._frames.append(frame)
        self._bytes += len(frame)
        self._given.set()

    def owe(self, kind: int, flags: int, stream_id: int, length: int) -> None:
        """Queue a control frame; never waits, so that reading never waits for writing."""
        if self.closed:
            return
        self._frames.append(HEADER.pack(0, kind, flags, stream_id, length))
        self._bytes += HEADER_BYTES
        self._owed_bytes += HEADER_BYTES
        # A stream's beginning leaves with its first bytes: whoever opens one speaks, and whoever is
        # spoken to answers.
        if kind != WINDOW_UPDATE or flags not in (SYN, ACK):
            self._given.set()
        if self._owed_bytes > CONTROL_BYTES_MAX:
            self._end()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._given.wait()
            while self._frames:
                await self._write()
            self._given = trio.Event()

    async def _write(self) -> None:
        payload, self._since_s = self._take(), trio.current_time()
        await self._conn.write(payload)
        self._since_s = None
        self._room.set()
        self._room = trio.Event()

    def _take(self) -> bytes:
        """As many frames as fit one noise message."""
        size, count = 0, 0
        for frame in self._frames:
            if count and size + len(frame) > NOISE_BYTES_MAX:
                break
            size += len(frame)
            count += 1
        taken = [self._frames.popleft() for _ in range(count)]
        self._bytes -= size
        # no frame of data is as small as a header
        self._owed_bytes -= HEADER_BYTES * sum(len(frame) == HEADER_BYTES for frame in taken)
        return b"".join(taken)

    async def flush(self) -> None:
        """Return when all is written, or the connection is closed."""
        while (self._frames or self._since_s is not None) and not self.closed:
            self._given.set()
            await self._room.wait()

    def is_stalled(self, now_s: float) -> bool:
        """Whether the peer takes nothing; asked now and then, since a deadline a write is dear."""
        return self._since_s is not None and now_s - self._since_s > WRITE_STALL_S

    def close(self) -> None:
        self.closed = True
        self._frames.clear()
        self._room.set()
