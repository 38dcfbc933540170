"""A fetcher, its store, and peers in one process that do as a test says, for several test files."""

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trio
import trio.testing

from daa_dag.chunking import CHUNK_BYTES_MAX, Manifest, cut, manifest_of
from daa_dag.fetch import WINDOW_BYTES_MAX, WINDOW_BYTES_START
from daa_dag.ids import NodeId
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.blob_exchange import (
    BlobFetcher,
    Want,
)
from daa_node.network.blob_server import BlobServer
from daa_node.network.session_pool import (
    Source,
)
from daa_node.seams import IDLE_TIMEOUT_S, BlobWriter, FrameHandler, FrameStream, IsMember, PeerId
from daa_node.wire.blob_messages import (
    ChunksRequest,
    FindRequest,
    Found,
    decode_request,
    encode_chunks,
    encode_found,
)

KIND = "updates"
PAYLOAD = os.urandom(10 * CHUNK_BYTES_MAX + 77)
MANIFEST = manifest_of(PAYLOAD, cut([len(PAYLOAD)]))
CHUNK_COUNT = len(MANIFEST.sizes)
START_CHUNKS = WINDOW_BYTES_START // CHUNK_BYTES_MAX
LOCAL = NodeId(b"l" * 32)
REQUESTS_UNDER_WAY = WINDOW_BYTES_MAX // CHUNK_BYTES_MAX  # small: a socket takes them


def chunk(index: int) -> bytes:
    at = MANIFEST.offsets[index]
    return PAYLOAD[at : at + MANIFEST.sizes[index]]


def source(name: str) -> Source:
    return Source(NodeId(name.encode().ljust(32, b".")), PeerId(name))


class MemoryFrames:
    """One end of a session that loses nothing and holds one answer, and the requests."""

    def __init__(
        self,
        node_id: NodeId,
        out: trio.MemorySendChannel[bytes],
        into: trio.MemoryReceiveChannel[bytes],
    ) -> None:
        self._node_id = node_id
        self._out = out
        self._into = into

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        try:
            await self._out.send(bytes(payload))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Unavailable("session cut") from None

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes | None:
        try:
            with trio.move_on_after(within_s):
                return await self._into.receive()
            raise Unavailable("no answer in time")
        except trio.EndOfChannel:
            return None
        except trio.ClosedResourceError:
            raise Unavailable("session cut") from None

    async def aclose(self) -> None:
        await self._out.aclose()
        await self._into.aclose()


class MemoryBulk:
    """A BulkTransport whose peers are handlers in this process."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.peers: dict[PeerId, FrameHandler] = {}
        self.opened: list[PeerId] = []

    def add(self, name: str, handler: FrameHandler) -> Source:
        self.peers[source(name).peer_id] = handler
        return source(name)

    async def open(self, peer_id: PeerId) -> FrameStream:
        if peer_id not in self.peers:
            raise Unavailable("not connected")
        self.opened.append(peer_id)
        to_peer, from_us = trio.open_memory_channel[bytes](REQUESTS_UNDER_WAY)
        to_us, from_peer = trio.open_memory_channel[bytes](1)
        theirs = MemoryFrames(LOCAL, to_us, from_us)
        self._nursery.start_soon(self._handle, self.peers[peer_id], theirs)
        return MemoryFrames(source(peer_id).node_id, to_peer, from_peer)

    async def _handle(self, handler: FrameHandler, stream: MemoryFrames) -> None:
        try:
            await handler(stream)
        except (PeerFault, Unavailable):
            pass
        finally:
            await stream.aclose()

    def set_handler(self, handler: FrameHandler, is_member: IsMember) -> None:
        raise AssertionError("peers are added by name")


class MemoryWriter:
    """A BlobWriter without a disk: on a virtual clock no thread may be waited for."""

    def __init__(self, write_s: float = 0.0, count: int = CHUNK_COUNT) -> None:
        self.chunks: dict[int, bytes] = {}
        self.committed = False
        self._write_s = write_s
        self._count = count

    def missing(self) -> list[int]:
        return [index for index in range(self._count) if index not in self.chunks]

    async def write_chunk(self, index: int, payload: bytes) -> None:
        await trio.sleep(self._write_s)
        self.chunks[index] = payload

    async def write_chunks(self, chunks: Sequence[tuple[int, bytes | memoryview]]) -> None:
        for index, payload in chunks:
            await self.write_chunk(index, bytes(payload))

    async def read_into(self, indices: Sequence[int], target: memoryview) -> None:
        joined = b"".join(self.chunks[index] for index in indices)
        target[: len(joined)] = joined

    async def commit(self, durable: bool = True) -> None:
        assert not self.missing()
        self.committed = True

    async def begin(self, manifest: Manifest) -> BlobWriter:
        return self


class Scene:
    """A fetcher with an empty store, and peers around it."""

    def __init__(self, nursery: trio.Nursery, directory: Path) -> None:
        self.directory = directory
        self.bulk = MemoryBulk(nursery)
        self.store = DiskBlobStore(directory / "local")
        self.faults: list[tuple[NodeId, str]] = []
        self.fetcher = BlobFetcher(
            LOCAL, self.bulk, lambda node, fault: self.faults.append((node, fault.reason))
        )

    async def honest(self, name: str) -> Source:
        store = DiskBlobStore(self.directory / name)
        await fill(await store.begin_blob(KIND, MANIFEST))
        return self.bulk.add(name, BlobServer({KIND: store}, None, bool).serve)

    async def fetch(self, sources: Sequence[Source], deadline_s: float = 60.0) -> Manifest:
        want = Want(KIND, MANIFEST.root, len(PAYLOAD))
        return await self.fetcher.fetch_blob(want, sources, self.store, deadline_s)

    async def fetch_into(
        self, writer: MemoryWriter, sources: Sequence[Source], deadline_s: float
    ) -> None:
        want = Want(KIND, MANIFEST.root, len(PAYLOAD))
        await self.fetcher.fetch(want, sources, writer.begin, deadline_s)
        assert writer.committed
        assert writer.chunks == {index: chunk(index) for index in range(CHUNK_COUNT)}

    async def check(self) -> None:
        view = await self.store.view_blob(KIND, MANIFEST.root)
        assert bytes(view) == PAYLOAD


async def fill(writer: BlobWriter) -> None:
    for index in writer.missing():
        await writer.write_chunk(index, chunk(index))
    await writer.commit()


Play = Callable[[Scene], Awaitable[None]]


def on_stage(directory: Path, play: Play, virtual: bool = False) -> float:
    """Run the play; the seconds that passed on its clock. A virtual one bears no threads."""

    async def run() -> float:
        async with trio.open_nursery() as nursery:
            scene = Scene(nursery, directory)
            started_s = trio.current_time()
            with trio.fail_after(300 if virtual else 20):
                await play(scene)
            await scene.fetcher.aclose()
            nursery.cancel_scope.cancel()
        return trio.current_time() - started_s

    clock = trio.testing.MockClock(autojump_threshold=0) if virtual else None
    seconds: float = trio.run(run, clock=clock)
    return seconds


Reply = Callable[[ChunksRequest], Awaitable[bytes | None]]


def scripted(reply: Reply, manifest: Manifest = MANIFEST) -> FrameHandler:
    """A peer that finds the blob honestly, and then answers as `reply` says; None: never."""

    async def serve(stream: FrameStream) -> None:
        while (frame := await stream.receive_frame()) is not None:
            request = decode_request(frame)
            if isinstance(request, FindRequest):
                encoded = manifest.encode() if request.with_manifest else b""
                await stream.send_frame(encode_found(Found(None, encoded)))
                continue
            assert isinstance(request, ChunksRequest)
            answer = await reply(request)
            if answer is None:
                await trio.sleep_forever()
            else:
                await stream.send_frame(answer)

    return serve


async def truth(request: ChunksRequest) -> bytes:
    return encode_chunks([chunk(index) for index in request.indices])


async def poison(request: ChunksRequest) -> bytes:
    return encode_chunks([bytes(MANIFEST.sizes[index]) for index in request.indices])


async def silence(request: ChunksRequest) -> None:
    return None
