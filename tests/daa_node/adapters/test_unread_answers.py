"""Guests that ask for bulk data and read nothing hold a bounded room, and others get theirs.

Real sockets on loopback; bytes are counted, in this process and in the kernel's queues.
"""

import os
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from daa_dag.chunking import CHUNK_BYTES_MAX, Manifest, cut, manifest_of
from daa_dag.ids import NodeId
from daa_node.adapters.bulk_channel import GUEST_FRAME_BYTES_MAX, GUEST_QUEUE_BYTES
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.blob_exchange import BlobFetcher, Want
from daa_node.network.blob_server import BlobServer
from daa_node.network.session_pool import Source
from daa_node.network.untaken import ROOM_BYTES
from daa_node.wire.blob_messages import ChunksRequest, encode_request
from daa_node.wire.limits import MIB
from tests.daa_node.adapters.bulk_nodes import Node, World, nodes, until

KIND = "updates"
PAYLOAD = os.urandom(6 * MIB)
MANIFEST = manifest_of(PAYLOAD, cut([len(PAYLOAD)]))
GUESTS = 40
SESSIONS_OF_A_GUEST = 2
SESSIONS = GUESTS * SESSIONS_OF_A_GUEST
SLACK_BYTES = 12 * MIB  # eighty sessions, their handshakes, and a member's transfer
ASKED = encode_request(ChunksRequest(KIND, MANIFEST.root, (0, 1, 2, 3)))


async def shelf(directory: Path) -> DiskBlobStore:
    store = DiskBlobStore(directory)
    writer = await store.begin_blob(KIND, MANIFEST)
    for index in writer.missing():
        await writer.write_chunk(
            index, PAYLOAD[index * CHUNK_BYTES_MAX : (index + 1) * CHUNK_BYTES_MAX]
        )
    await writer.commit()
    return store


def unsent_bytes(port: int) -> int:
    """What the kernel keeps of ours that the other ends have not taken."""
    queued = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, _, queues, *_ = line.split()
        if int(local.split(":")[1], 16) == port:
            queued += int(queues.split(":")[0], 16)
    return queued


async def hoard(guest: Node, victim: Node, opened: list[int]) -> None:
    """Ask for a mebibyte, sixteen times over, and read nothing; again when we are cut off."""
    while True:
        with suppress(Unavailable, PeerFault):
            stream = await guest.bulk.open(victim.peer_id)
            opened[0] += 1
            for _ in range(16):
                await stream.send_frame(ASKED)
            await trio.sleep_forever()
        await trio.sleep(1.0)


class Siege:
    """A server, its besiegers, and who else fetches from it."""

    def __init__(self, nursery: trio.Nursery, store: DiskBlobStore) -> None:
        self._nursery = nursery
        self._world = World(nursery)
        self.victim = Node(self._world, b"victim")
        self.server = BlobServer({KIND: store}, None, self._is_member)
        self.victim.bulk.set_handler(self.server.serve, self.victim.members.__contains__)
        self.opened = [0]

    def _is_member(self, node_id: NodeId) -> bool:
        return any(self.victim.known[peer_id] == node_id for peer_id in self.victim.members)

    async def joined(self, name: bytes) -> Node:
        node = Node(self._world, name, False)
        node.known[self.victim.peer_id] = self.victim.keys.node_id
        self.victim.known[node.peer_id] = node.keys.node_id
        await self._nursery.start(node.run)
        return node

    async def begin(self) -> None:
        await self._nursery.start(self.victim.run)
        for number in range(GUESTS):
            guest = await self.joined(b"guest %d" % number)
            for _ in range(SESSIONS_OF_A_GUEST):
                self._nursery.start_soon(hoard, guest, self.victim, self.opened)

    async def fetch(self, node: Node, directory: Path) -> Manifest:
        fetcher = BlobFetcher(node.keys.node_id, node.bulk, lambda *_: None)
        want = Want(KIND, MANIFEST.root, len(PAYLOAD))
        source = Source(self.victim.keys.node_id, self.victim.peer_id)
        try:
            return await fetcher.fetch_blob(want, [source], DiskBlobStore(directory), 60.0)
        finally:
            await fetcher.aclose()


@asynccontextmanager
async def siege(directory: Path) -> AsyncIterator[Siege]:
    async with trio.open_nursery() as nursery:
        scene = Siege(nursery, await shelf(directory))
        await scene.begin()
        yield scene
        nursery.cancel_scope.cancel()


async def held_bytes(scene: Siege, seconds: float) -> tuple[int, int]:
    """The most that this process held, and the kernel for it, in that time."""
    ours = kernel = 0
    for _ in range(round(10 * seconds)):
        await trio.sleep(0.1)
        ours = max(ours, tracemalloc.get_traced_memory()[0])
        kernel = max(kernel, unsent_bytes(scene.victim.port))
    return ours, kernel


@pytest.mark.long
async def test_what_guests_do_not_read_holds_a_bounded_room(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        async with siege(tmp_path / "shelf") as scene:
            with trio.fail_after(60):
                while scene.opened[0] < SESSIONS:
                    await trio.sleep(0.1)
            ours, kernel = await held_bytes(scene, 5.0)
            member, guest = await scene.joined(b"member"), await scene.joined(b"guest")
            scene.victim.members |= {member.peer_id}
            await scene.fetch(member, tmp_path / "member")
            await scene.fetch(guest, tmp_path / "guest")
            reasons = {reason for _, reason in scene.victim.faults}
            blamed = {peer_id for peer_id, _ in scene.victim.faults}
    finally:
        tracemalloc.stop()
    assert ours < ROOM_BYTES + SLACK_BYTES
    assert kernel < SESSIONS * 2 * GUEST_QUEUE_BYTES
    assert reasons == {"unread"}
    assert not blamed & {member.peer_id, guest.peer_id}


async def test_a_guest_may_not_announce_a_frame_that_no_request_needs() -> None:
    async with nodes() as (guest, victim):
        stream = await guest.bulk.open(victim.peer_id)
        with suppress(Unavailable):
            await stream.send_frame(bytes(GUEST_FRAME_BYTES_MAX + 1))
        await until(lambda: victim.faults == [(guest.peer_id, "oversize")])
        victim.members |= {guest.peer_id}
        stream = await guest.bulk.open(victim.peer_id)
        await stream.send_frame(bytes(GUEST_FRAME_BYTES_MAX + 1))
        assert await stream.receive_frame() == bytes(GUEST_FRAME_BYTES_MAX + 1)
