"""The BulkTransport seam without a handshake: who a light stream comes from is certain already.

    initiator                     responder
    a stream for BULK       -->
                            <--   TAKEN, or a refusal in words
    frames                 <->    frames

Frames are real ones, sealed with a key that everybody knows: so a run repeats. How sessions are
agreed, and given up for others' sake, the other fidelities show.
"""

from collections import Counter
from collections.abc import Callable

import trio

from daa_dag.ids import NodeId
from daa_node.adapters.bulk_channel import GUEST_FRAME_BYTES_MAX, HANDSHAKE_TIMEOUT_S
from daa_node.adapters.bulk_places import SESSIONS_PER_PEER_MAX
from daa_node.adapters.sealed_stream import RelayPipe, SealedStream
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.session import KEY_BYTES, SUITES, SessionKeys, Token
from daa_node.seams import (
    ByteStream,
    FrameHandler,
    FrameStream,
    IsMember,
    OnFault,
    PeerId,
    Transport,
)
from daa_node.wire.limits import FRAME_BYTES_MAX
from daa_node.wire.protocols import BULK

TAKEN = b"taken"
KEY = bytes(KEY_BYTES)


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
        session = _session(stream, node_id, is_initiator=True)
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
        session = _session(stream, node_id, False, frame_bytes_max)
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


def _session(
    stream: ByteStream, node_id: NodeId, is_initiator: bool, bytes_max: int = FRAME_BYTES_MAX
) -> SealedStream:
    keys = SessionKeys(SUITES[0], node_id, is_initiator, KEY, KEY, Token(KEY), KEY, ())
    return SealedStream(RelayPipe(stream), keys, bytes_max)
