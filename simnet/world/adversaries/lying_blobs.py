"""A liar's shelf: whoever asks it for a blob gets nothing, too late, too little, or other bytes.

Each asker may find another shelf. Met by asking whoever else acknowledged the blob, by patience
with a limit, and by digests: each chunk is checked before it is kept, and its sender is scored
(daa_node/network/blob_exchange.py).
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from daa_dag.ids import BlobRoot, NodeId
from daa_node.errors import PeerFault, StorageFailed
from daa_node.network.blob_exchange import PATIENCE_S
from daa_node.seams import BulkTransport, FrameHandler, FrameStream, IsMember, PeerId
from daa_node.wire.blob_messages import ChunksRequest, Refusal, decode_request, encode_refused
from simnet.world.adversaries.behaviour import Shelf

SLOW_S = 5.0  # more than others' patience, less than their timeout for an answer
DRIP_S = 0.95 * PATIENCE_S
WITHHELD_S = 25.0  # more than their timeout; then the session ends

ChunkCount = Callable[[ChunksRequest], Awaitable[int | None]]
Given = dict[tuple[NodeId, BlobRoot], set[int]]  # chunks, to whom


class LyingBulk:
    """A BulkTransport whose server answers each asker as `shelf_of` says."""

    def __init__(
        self,
        inner: BulkTransport,
        shelf_of: Callable[[NodeId], Shelf],
        chunk_count: ChunkCount,
        chance: random.Random,
    ) -> None:
        """`chunk_count`: of the blob that a request is about; None if it is not here."""
        self._inner = inner
        self._shelf_of = shelf_of
        self._chunk_count = chunk_count
        self._chance = chance
        self._given: Given = {}  # off a short shelf

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
                    await handler(ShortFrames(stream, self._chunk_count, self._given))
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
        if self._late_s is not None:
            await trio.sleep(self._late_s)
            await self._inner.send_frame(payload)
            return
        damaged = bytearray(payload)
        damaged[self._chance.randrange(len(damaged))] ^= 1 << self._chance.randrange(8)
        await self._inner.send_frame(damaged)


class ShortFrames:
    """A FrameStream that ends when somebody asks for what would make a blob whole."""

    def __init__(
        self,
        inner: FrameStream,
        chunk_count: ChunkCount,
        given: dict[tuple[NodeId, BlobRoot], set[int]],
    ) -> None:
        self._inner = inner
        self._chunk_count = chunk_count
        self._given = given
        self.node_id = inner.node_id
        self.send_frame, self.aclose = inner.send_frame, inner.aclose

    async def receive_frame(self) -> bytes | None:
        frame = await self._inner.receive_frame()
        if frame is None:
            return None
        with suppress(PeerFault, StorageFailed):
            request = decode_request(frame)
            if isinstance(request, ChunksRequest):
                given = self._given.setdefault((self.node_id, request.root), set())
                if len(given.union(request.indices)) == await self._chunk_count(request):
                    await trio.sleep(WITHHELD_S)
                    return None
                given.update(request.indices)
        return frame
