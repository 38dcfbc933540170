"""A session's frames over a pipe: a TCP socket, or the libp2p stream that agreed on the session.

Seals and opens in buffers of its own, so that a frame costs one AEAD call and no copy beside it.
Whatever interrupts a frame, cancellation included, ends the session: half a frame is no use.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import trio

from daa_dag.ids import NodeId
from daa_node.adapters.libp2p_peer_stream import count_elsewhere
from daa_node.errors import Unavailable
from daa_node.identity.frames import DATA, END, HEADER_BYTES, TAG_BYTES, read_header
from daa_node.identity.session import SessionKeys
from daa_node.prompt_lock import PromptLock
from daa_node.seams import IDLE_TIMEOUT_S, ByteStream
from daa_node.wire.limits import FRAME_BYTES_MAX

# A full frame at 17 kB/s; whoever is slower than that holds a session for nothing.
FRAME_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 1.0


class Pipe(Protocol):
    """Ordered bytes that may be read straight into a buffer."""

    async def send_all(self, payload: memoryview) -> None: ...

    async def receive_into(self, target: memoryview) -> int:
        """Bytes read, at least one; 0 at the end."""

    def cut(self) -> None:
        """From now on closing drops what the other end has not taken."""

    async def aclose(self) -> None: ...


class SocketPipe:
    """A TCP socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def send_all(self, payload: memoryview) -> None:
        await self._stream.send_all(payload)

    async def receive_into(self, target: memoryview) -> int:
        return await self._stream.socket.recv_into(target)

    def cut(self) -> None:
        # else the kernel keeps it for minutes, for a peer that reads nothing
        with suppress(OSError):
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def aclose(self) -> None:
        await self._stream.aclose()


class RelayPipe:
    """The authenticated stream itself, where no socket can be had."""

    def __init__(self, stream: ByteStream) -> None:
        count_elsewhere(stream)  # as bulk
        self._stream = stream

    async def send_all(self, payload: memoryview) -> None:
        await self._stream.send_all(payload)

    async def receive_into(self, target: memoryview) -> int:
        piece = await self._stream.receive_some(len(target))
        target[: len(piece)] = piece
        return len(piece)

    def cut(self) -> None:
        """What waits, waits with the peer's window, and goes with us."""

    async def aclose(self) -> None:
        await self._stream.aclose()


class SealedStream:
    """A FrameStream over any pipe. Raises PeerFault and Unavailable; either ends it."""

    def __init__(
        self, pipe: Pipe, keys: SessionKeys, received_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        """`received_bytes_max`: of one frame; a longer one is refused before it is read."""
        self._pipe = pipe
        self._received_bytes_max = received_bytes_max
        self._node_id = keys.remote_node_id
        self._sealer = keys.sealer()
        self._opener = keys.opener()
        self._send_lock = PromptLock()
        # Grown to the largest frame seen: a session that only asks never holds a megabyte.
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._header = bytearray(HEADER_BYTES)
        self._ended = False
        self._broken = False

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        """Raises Unavailable when the peer is gone, or takes longer than 60 s for one frame."""
        assert len(payload) <= FRAME_BYTES_MAX
        await self._send(payload, DATA)

    async def _send(self, payload: bytes | bytearray | memoryview, kind: int) -> None:
        async with self._send_lock:
            if self._broken:
                raise Unavailable("the session is broken")
            size_bytes = HEADER_BYTES + len(payload) + TAG_BYTES
            if len(self._outgoing) < size_bytes:
                self._outgoing = bytearray(size_bytes)
            target = memoryview(self._outgoing)
            self._sealer.seal_into(payload, kind, target)
            with self._whole(FRAME_TIMEOUT_S, f"took over {FRAME_TIMEOUT_S} s to take a frame"):
                await self._pipe.send_all(target[:size_bytes])

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes | None:
        """The next payload; None at the peer's end frame. Raises PeerFault and Unavailable.

        Not to be called again after it was cancelled: half a frame may be lost.
        """
        if self._ended:
            return None
        if self._broken:
            raise Unavailable("the session is broken")
        with self._whole(within_s, "fell silent") as scope:
            await self._fill(memoryview(self._header))
            sealed_bytes, kind = read_header(self._header, self._received_bytes_max)
            if len(self._incoming) < sealed_bytes:
                self._incoming = bytearray(sealed_bytes)
            sealed = memoryview(self._incoming)[:sealed_bytes]
            scope.deadline = trio.current_time() + FRAME_TIMEOUT_S
            await self._fill(sealed)
            payload = self._opener.open(bytes(self._header), sealed)
        if kind == END:
            self._ended = True
            return None
        return payload

    async def _fill(self, target: memoryview) -> None:
        at = 0
        while at < len(target):
            size_bytes = await self._pipe.receive_into(target[at:])
            if not size_bytes:
                raise Unavailable("cut off before the end frame")
            at += size_bytes

    @contextmanager
    def _whole(self, within_s: float, slow: str) -> Iterator[trio.CancelScope]:
        """A frame: what keeps it from being whole in time ends the session."""
        whole = False
        try:
            with trio.move_on_after(within_s) as scope:
                yield scope
                whole = True
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as fault:
            raise Unavailable(f"session cut: {fault}") from None
        finally:
            self._broken = self._broken or not whole
        if not whole:
            raise Unavailable(f"peer {slow}")

    async def aclose(self) -> None:
        """Send the end frame if the session still works, and close."""
        try:
            with trio.move_on_after(CLOSE_TIMEOUT_S), suppress(Unavailable):
                await self._send(b"", END)
        finally:
            if self._broken:
                self._pipe.cut()
            self._broken = True
            await close_quietly(self._pipe)


class Closable(Protocol):
    async def aclose(self) -> None: ...


async def close_quietly(resource: Closable) -> None:
    """Close, even when we are being cancelled; whether the other end is still there is all one."""
    gone = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
    with trio.move_on_after(CLOSE_TIMEOUT_S) as scope, suppress(*gone):
        scope.shield = True
        await resource.aclose()
