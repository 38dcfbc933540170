"""Members in one process that fetch one blob at the same time, in virtual time, without disks."""

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import cast

import trio
import trio.testing

from daa_dag.chunking import CHUNK_BYTES_MAX, Manifest, cut, manifest_of
from daa_dag.ids import BlobRoot, NodeId
from daa_node.errors import PeerFault, StorageFailed, Unavailable
from daa_node.network.blob_exchange import BlobFetcher, Want
from daa_node.network.blob_server import MANIFESTS, SNAPSHOTS, BlobServer
from daa_node.network.chunk_looks import CHUNKS
from daa_node.network.link_limits import LinkLimits
from daa_node.network.session_pool import Source
from daa_node.network.spreading import Spreading, Swarm, UnderWay
from daa_node.seams import BlobStore, FrameHandler, FrameStream, IsMember, PeerId
from tests.daa_node.network.bulk_stage import MemoryFrames, MemoryWriter, source

KIND = "updates"
KINDS = (KIND, "deltas", "boundaries", SNAPSHOTS)
PAYLOAD = os.urandom(20 * CHUNK_BYTES_MAX + 77)
MANIFEST = manifest_of(PAYLOAD, cut([len(PAYLOAD)]))
CHUNK_COUNT = len(MANIFEST.sizes)


def chunk(index: int) -> bytes:
    at = MANIFEST.offsets[index]
    return PAYLOAD[at : at + MANIFEST.sizes[index]]


class Shelf:
    """What of a BlobStore a server and a fetcher use."""

    def __init__(self, write_s: float) -> None:
        self.writer = MemoryWriter(write_s, CHUNK_COUNT)
        self.is_published = True  # what was committed: a state that was fetched is so later

    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        is_here = self.writer.committed and self.is_published
        return MANIFEST if is_here and root == MANIFEST.root else None

    async def read_into(
        self, kind: str, root: BlobRoot, indices: Sequence[int], target: memoryview
    ) -> None:
        if not self.writer.committed:
            raise StorageFailed("not here")
        await self.writer.read_into(indices, target)

    async def begin_blob(self, kind: str, manifest: Manifest) -> MemoryWriter:
        return self.writer

    async def get_record(self, kind: str, name: str) -> bytes | None:
        """Of the chain, where the blob is a snapshot."""
        if not (self.writer.committed and self.is_published):
            return None
        if kind == MANIFESTS:
            return MANIFEST.encode() if name == MANIFEST.root.hex() else None
        return chunk([digest.hex() for digest in MANIFEST.digests].index(name))

    async def record_names(self, kind: str) -> list[str]:
        assert kind == CHUNKS
        is_here = self.writer.committed and self.is_published
        return [digest.hex() for digest in MANIFEST.digests] if is_here else []


class Member:
    """A node, or what goes under its name: `handler` serves whoever opens a session with it."""

    def __init__(
        self, world: "World", name: str, chunk_s: float, limits: LinkLimits | None = None
    ) -> None:
        self.source = source(name)
        self.shelf = Shelf(0.0)
        self.faults: list[tuple[NodeId, str]] = []
        self.chunk_s = chunk_s  # how long its link takes for one chunk
        self.link: trio.Lock | None = None  # if all share it
        store = cast(BlobStore, self.shelf)
        swarm = Swarm(UnderWay(), world.source_of, lambda: os.urandom(16))
        slow = world.slowness
        self.spreading = Spreading(
            lambda: len(world.members) - 1, swarm, slow, lambda: world.stake_of
        )
        self.server = BlobServer(
            dict.fromkeys(KINDS, store),
            store,
            bool,
            spreading=self.spreading,
        )
        self.server.limits = limits
        self.handler: FrameHandler = self.server.serve
        self.bulk = Bulk(world, self)
        self.fetcher = BlobFetcher(self.source.node_id, self.bulk, self._blame, swarm, limits, slow)
        self.whole_s: float | None = None
        self.is_gone = False
        self.served: list[trio.CancelScope] = []  # its sessions, of those that opened them

    def die(self) -> None:
        """Killed: its sessions are cut, and none can be opened."""
        self.is_gone = True
        for scope in self.served:
            scope.cancel()

    def _blame(self, node: NodeId, fault: PeerFault) -> None:
        self.faults.append((node, fault.reason))

    @property
    def ratio(self) -> float:
        """Bytes of chunks that it has sent, over the blob's."""
        sent = sum(self.spreading.sent_bytes((kind, MANIFEST.root)) for kind in KINDS)
        return sent / len(PAYLOAD)

    async def fetch(
        self, sources: Sequence[Source], deadline_s: float = 60.0, kind: str = KIND
    ) -> None:
        store, want = cast(BlobStore, self.shelf), Want(kind, MANIFEST.root, len(PAYLOAD))
        await self.fetcher.fetch_blob(want, sources, store, deadline_s)
        self.whole_s = trio.current_time()
        assert self.shelf.writer.chunks == {index: chunk(index) for index in range(CHUNK_COUNT)}


class Bulk:
    """A BulkTransport between members."""

    def __init__(self, world: "World", member: Member) -> None:
        self._world = world
        self._member = member

    async def open(self, peer_id: PeerId) -> FrameStream:
        peer = self._world.members[peer_id]
        await trio.sleep(self._world.open_s)
        if peer.is_gone:
            raise Unavailable("gone")
        to_peer, from_us = trio.open_memory_channel[bytes](32)
        to_us, from_peer = trio.open_memory_channel[bytes](1)
        theirs = Paced(self._member.source.node_id, to_us, from_us)
        theirs.chunk_s, theirs.link = peer.chunk_s, peer.link
        self._world.nursery.start_soon(self._handle, peer, theirs)
        return MemoryFrames(peer.source.node_id, to_peer, from_peer)

    async def _handle(self, peer: Member, stream: MemoryFrames) -> None:
        try:
            with trio.CancelScope() as scope:
                peer.served.append(scope)
                await peer.handler(stream)
        except (PeerFault, Unavailable):
            pass
        finally:
            await stream.aclose()

    def set_handler(self, handler: FrameHandler, is_member: IsMember) -> None:
        raise AssertionError("members have their handlers")


class Paced(MemoryFrames):
    """The serving end: a chunk takes as long as its link needs."""

    chunk_s = 0.0
    link: trio.Lock | None = None  # that all sessions share; None: each has one of its own

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        async with self.link or nullcontext():
            await trio.sleep(self.chunk_s * len(payload) / CHUNK_BYTES_MAX)
        await super().send_frame(payload)


class World:
    """An author, who has the blob, and others, who want it."""

    def __init__(
        self, nursery: trio.Nursery, receivers: int, chunk_s: float, slowness: float = 1.0
    ) -> None:
        self.nursery = nursery
        self.slowness = slowness
        self.open_s = 0.0  # how long a session takes to open
        self.stake_of: dict[NodeId, int] | None = None  # None: all are equal
        self.members: dict[PeerId, Member] = {}
        self.author = self.add("author", chunk_s)
        self.author.shelf.writer.chunks = {index: chunk(index) for index in range(CHUNK_COUNT)}
        self.author.shelf.writer.committed = True
        self.receivers = [self.add(f"receiver {n}", chunk_s) for n in range(receivers)]

    def add(self, name: str, chunk_s: float = 0.01, limits: LinkLimits | None = None) -> Member:
        member = Member(self, name, chunk_s, limits)
        self.members[member.source.peer_id] = member
        return member

    def add_donor(self, name: str, chunk_s: float = 0.01) -> Member:
        """One more that has it all."""
        donor = self.add(name, chunk_s)
        donor.shelf.writer.chunks = dict(self.author.shelf.writer.chunks)
        donor.shelf.writer.committed = True
        return donor

    def source_of(self, node: NodeId) -> Source | None:
        found = [m.source for m in self.members.values() if m.source.node_id == node]
        return found[0] if found else None

    async def fetch_all(self, receivers: Sequence[Member] | None = None, kind: str = KIND) -> float:
        """All of them, from the author; when the last one is through."""
        began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            for member in self.receivers if receivers is None else receivers:
                nursery.start_soon(member.fetch, [self.author.source], 60.0, kind)
        return trio.current_time() - began_s


def one_uplink_each(world: World) -> None:
    """All that a member sends leaves one after the other."""
    for member in world.members.values():
        member.link = trio.Lock()


async def fetch_from_all(
    world: World,
    kind: str,
    askers: Sequence[Member] = (),
    donors: Sequence[Member] = (),
    after_s: float = 0.0,
) -> float:
    """Each asks all others, `after_s` after the one before; how long the slowest took.

    Without `askers` all receivers ask, and the author is a donor in any case.
    """
    took_s: list[float] = []

    async def fetch(member: Member, wait_s: float) -> None:
        await trio.sleep(wait_s)
        others = [world.author, *donors, *world.receivers]
        began_s = trio.current_time()
        await member.fetch([each.source for each in others if each is not member], kind=kind)
        took_s.append(trio.current_time() - began_s)

    async with trio.open_nursery() as nursery:
        for number, member in enumerate(askers or world.receivers):
            nursery.start_soon(fetch, member, number * after_s)
    return max(took_s)


Play = Callable[[World], Awaitable[None]]


def in_swarm(play: Play, receivers: int = 4, chunk_s: float = 0.01, slowness: float = 1.0) -> None:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(300):
                await play(World(nursery, receivers, chunk_s, slowness))
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
