"""The BulkTransport seam without a handshake: who a light stream comes from is certain already.

    initiator                     responder
    a stream for BULK       -->
                            <--   TAKEN, or a refusal in words
    frames                 <->    frames

Frames have the limits, the patience and the end of real ones, and are not sealed. How sessions are
agreed, and given up for others' sake, the other fidelities show.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import trio

from daa_dag.ids import NodeId
from daa_node.adapters.bulk_channel import GUEST_FRAME_BYTES_MAX, HANDSHAKE_TIMEOUT_S
from daa_node.adapters.bulk_places import SESSIONS_PER_PEER_MAX
from daa_node.adapters.sealed_stream import CLOSE_TIMEOUT_S, FRAME_TIMEOUT_S, IDLE_TIMEOUT_S
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import (
    ByteStream,
    FrameHandler,
    FrameStream,
    IsMember,
    OnFault,
    PeerId,
    Transport,
)
from daa_node.wire.framing import MessageReader, write_message
from daa_node.wire.limits import FRAME_BYTES_MAX
from daa_node.wire.protocols import BULK

TAKEN = b"taken"
DATA, END = b"\x01", b"\x00"  # the first byte of a frame


class LightBulk:
    """One node's; `node_of` says whom a peer's hello has proved it to be."""

    def __init__(
        self,
        transport: Transport,
        node_of: Callable[[PeerId], NodeId | None],
        on_fault: OnFault,
    ) -> None:
        self._transport = transport
        self._node_of = node_of
        self._on_fault = on_fault
        self._inbound: Counter[PeerId] = Counter()

    def set_handler(self, handler: FrameHandler, is_member: IsMember) -> None:
        async def serve(stream: ByteStream) -> None:
            most = FRAME_BYTES_MAX if is_member(stream.peer_id) else GUEST_FRAME_BYTES_MAX
            self._inbound[stream.peer_id] += 1
            try:
                await self._serve(stream, handler, most)
            finally:
                self._inbound[stream.peer_id] -= 1

        self._transport.set_handler(BULK, serve)

    async def open(self, peer_id: PeerId) -> FrameStream:
        """Raises Unavailable."""
        node_id = self._node_of(peer_id)
        if node_id is None:
            raise Unavailable(f"{peer_id} has not said who it is")
        stream = await self._transport.open_stream(peer_id, BULK)
        session = _Frames(stream, node_id, FRAME_BYTES_MAX)
        answer: bytes | None = None
        try:
            with trio.move_on_after(HANDSHAKE_TIMEOUT_S):
                answer = await session.receive_frame()
        finally:
            if answer != TAKEN:
                await session.aclose()
        if answer != TAKEN:
            raise Unavailable("no answer" if answer is None else answer.decode())
        return session

    async def _serve(self, stream: ByteStream, handler: FrameHandler, frame_bytes_max: int) -> None:
        peer_id = stream.peer_id
        node_id = self._node_of(peer_id)
        if node_id is None:
            return
        session = _Frames(stream, node_id, frame_bytes_max)
        try:
            if self._inbound[peer_id] > SESSIONS_PER_PEER_MAX:
                await session.send_frame(f"busy: {SESSIONS_PER_PEER_MAX} sessions a peer".encode())
                return
            await session.send_frame(TAKEN)
            await handler(session)
        except PeerFault as fault:
            self._on_fault(peer_id, fault)
        except Unavailable:
            pass  # the peer left
        finally:
            await session.aclose()


class _Frames:
    """A FrameStream; a frame is written whole or not at all."""

    def __init__(self, stream: ByteStream, node_id: NodeId, received_bytes_max: int) -> None:
        self.node_id = node_id
        self._stream = stream
        self._frames = MessageReader(stream, len(DATA) + received_bytes_max)
        self._ended = False

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        """Raises Unavailable."""
        assert len(payload) <= FRAME_BYTES_MAX
        await self._send(DATA + bytes(payload))

    async def _send(self, frame: bytes) -> None:
        with trio.move_on_after(FRAME_TIMEOUT_S):
            try:
                return await write_message(self._stream, frame)
            except trio.BrokenResourceError as fault:
                raise Unavailable(f"session cut: {fault}") from None
        raise Unavailable(f"peer took over {FRAME_TIMEOUT_S} s to take a frame")

    async def receive_frame(self) -> bytes | None:
        """The next payload; None at the peer's end frame. Raises PeerFault and Unavailable."""
        if self._ended:
            return None
        with trio.move_on_after(IDLE_TIMEOUT_S):
            try:
                frame = await self._frames.next()
            except trio.BrokenResourceError as fault:
                raise Unavailable(f"session cut: {fault}") from None
            if frame is None:
                raise Unavailable("cut off before the end frame")
            self._ended = frame == END
            return None if self._ended else frame[len(DATA) :]
        raise Unavailable("peer fell silent")

    async def aclose(self) -> None:
        """Send the end frame if the session still works, and close."""
        try:
            with trio.move_on_after(CLOSE_TIMEOUT_S), suppress(Unavailable):
                await self._send(END)
        finally:
            await self._stream.aclose()
