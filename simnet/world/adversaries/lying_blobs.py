"""A liar's shelf: whoever asks it for a blob gets nothing, too late, too little, or other bytes.

Each asker may find another shelf. Met by asking whoever else acknowledged the blob, by patience
with a limit, and by digests: each chunk is checked before it is kept, and its sender is scored
(daa_node/network/blob_exchange.py).
"""

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import trio

from daa_dag.chunking import decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, NodeId
from daa_node.errors import PeerFault
from daa_node.network.blob_exchange import PATIENCE_S
from daa_node.seams import (
    IDLE_TIMEOUT_S,
    BulkTransport,
    FrameHandler,
    FrameStream,
    IsMember,
    PeerId,
)
from daa_node.wire.blob_messages import (
    IN_TURN,
    ChunksRequest,
    FindRequest,
    Found,
    Refusal,
    Request,
    decode_answer,
    decode_request,
    encode_refused,
    missing_bytes,
)
from simnet.world.adversaries.behaviour import Shelf

SLOW_S = 5.0  # more than others' patience, less than their timeout for an answer
DRIP_S = 0.95 * PATIENCE_S
WITHHELD_S = 25.0  # more than their timeout; then the session ends


class LyingBulk:
    """A BulkTransport whose server answers each asker as `shelf_of` says."""

    def __init__(
        self, inner: BulkTransport, shelf_of: Callable[[NodeId], Shelf], chance: random.Random
    ) -> None:
        self._inner = inner
        self._shelf_of = shelf_of
        self._chance = chance
        self._counts: dict[BlobRoot, int] = {}  # of the chunks of blobs whose manifests were sent
        self._given: dict[tuple[NodeId, BlobRoot], set[int]] = {}  # chunks, off a short shelf

    async def open(self, peer_id: PeerId) -> FrameStream:
        return await self._inner.open(peer_id)

    def set_handler(self, handler: FrameHandler, is_member: IsMember) -> None:
        async def lying(stream: FrameStream) -> None:
            match shelf := self._shelf_of(stream.node_id):
                case Shelf.OPEN:
                    await handler(stream)
                case Shelf.CLOSED:
                    await _refuse_all(stream)
                case Shelf.SHORT:
                    with suppress(_Withheld):
                        await handler(ShortFrames(stream, self._counts, self._given))
                case _:
                    await handler(LyingFrames(stream, shelf, self._chance))

        self._inner.set_handler(lying, is_member)


async def _refuse_all(stream: FrameStream) -> None:
    while await stream.receive_frame() is not None:
        await stream.send_frame(encode_refused(Refusal.UNKNOWN))


class LyingFrames:
    """A FrameStream that sends late, or one bit differently."""

    def __init__(self, inner: FrameStream, shelf: Shelf, chance: random.Random) -> None:
        self._inner = inner
        self._late_s = {Shelf.SLOW: SLOW_S, Shelf.DRIPPING: DRIP_S}.get(shelf)
        self._chance = chance
        self.node_id = inner.node_id
        self.receive_frame, self.aclose = inner.receive_frame, inner.aclose

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        if len(payload) == len(IN_TURN) and bytes(payload) == IN_TURN:
            await self._inner.send_frame(payload)  # the answer is still to come
            return
        if self._late_s is not None:
            await trio.sleep(self._late_s)
            await self._inner.send_frame(payload)
            return
        damaged = bytearray(payload)
        damaged[self._chance.randrange(len(damaged))] ^= 1 << self._chance.randrange(8)
        await self._inner.send_frame(damaged)


class _Withheld(Exception):
    """The session ends with what was never sent."""


class ShortFrames:
    """A FrameStream on which nobody is sent what would make a blob whole."""

    def __init__(
        self,
        inner: FrameStream,
        counts: dict[BlobRoot, int],
        given: dict[tuple[NodeId, BlobRoot], set[int]],
    ) -> None:
        self._inner = inner
        self._counts = counts
        self._given = given
        self._asked: deque[Request] = deque()  # not answered yet
        self._rest = bytearray()  # of the answer that is being sent: a manifest, or pieces
        self._rest_bytes = 0  # still to come of it
        self.node_id, self.aclose = inner.node_id, inner.aclose

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes | None:
        frame = await self._inner.receive_frame(within_s)
        if frame is not None:
            with suppress(PeerFault):
                self._asked.append(decode_request(frame))
        return frame

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        if self._rest_bytes:
            self._rest += payload
            self._rest_bytes -= len(payload)
        elif self._asked:
            await self._begin(self._asked[0], bytes(payload))
        if self._asked and not self._rest_bytes:
            self._end(self._asked.popleft())
        await self._inner.send_frame(payload)

    async def _begin(self, request: Request, frame: bytes) -> None:
        """An answer's first frame. Raises _Withheld for what would make the blob whole."""
        if isinstance(request, FindRequest):
            found = decode_answer(frame)
            if isinstance(found, Found):
                self._rest += found.manifest
                self._rest_bytes = found.following_bytes
        if not isinstance(request, ChunksRequest):
            return
        given = self._given.setdefault((self.node_id, request.root), set())
        if len(given.union(request.indices)) == self._counts.get(request.root):
            await trio.sleep(WITHHELD_S)
            raise _Withheld
        given.update(request.indices)
        self._rest_bytes = missing_bytes(frame)

    def _end(self, request: Request) -> None:
        if isinstance(request, FindRequest) and self._rest:
            with suppress(DagError):
                self._counts[request.root] = len(decode_manifest(bytes(self._rest)).sizes)
        self._rest.clear()
