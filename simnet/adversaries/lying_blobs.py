"""A liar's shelf: whoever asks it for a blob gets nothing, gets it late, or gets other bytes.

Met by asking whoever else acknowledged the blob, by patience with a limit, and by digests: each
chunk is checked before it is kept, and its sender is scored (daa_node/network/blob_exchange.py).
"""

import random

import trio

from daa_dag.ids import NodeId
from daa_node.seams import BulkTransport, FrameHandler, FrameStream, IsMember, PeerId
from daa_node.wire.blob_messages import Refusal, encode_refused
from simnet.adversaries.conduct import Shelf

SLOW_S = 5.0  # more than others' patience, less than their timeout for an answer


class LyingBulk:
    """A BulkTransport whose server answers as `shelf` says."""

    def __init__(self, inner: BulkTransport, shelf: Shelf, chance: random.Random) -> None:
        self._inner = inner
        self._shelf = shelf
        self._chance = chance

    async def open(self, peer_id: PeerId) -> FrameStream:
        return await self._inner.open(peer_id)

    def set_handler(self, handler: FrameHandler, is_member: IsMember) -> None:
        async def lying(stream: FrameStream) -> None:
            if self._shelf is Shelf.CLOSED:
                await _refuse_all(stream)
            else:
                await handler(LyingFrames(stream, self._shelf, self._chance))

        self._inner.set_handler(lying, is_member)


async def _refuse_all(stream: FrameStream) -> None:
    while await stream.receive_frame() is not None:
        await stream.send_frame(encode_refused(Refusal.UNKNOWN))


class LyingFrames:
    """A FrameStream that sends late, or one bit differently."""

    def __init__(self, inner: FrameStream, shelf: Shelf, chance: random.Random) -> None:
        self._inner = inner
        self._shelf = shelf
        self._chance = chance
        self.receive_frame, self.aclose = inner.receive_frame, inner.aclose

    @property
    def node_id(self) -> NodeId:
        return self._inner.node_id

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        if self._shelf is Shelf.SLOW:
            await trio.sleep(SLOW_S)
            await self._inner.send_frame(payload)
            return
        damaged = bytearray(payload)
        damaged[self._chance.randrange(len(damaged))] ^= 1 << self._chance.randrange(8)
        await self._inner.send_frame(damaged)
