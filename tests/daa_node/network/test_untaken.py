"""What guests have not taken fits one room; who reads, however slowly, gets what it asks for."""

from collections.abc import Iterable
from contextlib import suppress
from typing import cast

import pytest
import trio
import trio.testing

from daa_dag.chunking import Manifest, cut, manifest_of
from daa_dag.ids import BlobRoot, NodeId
from daa_node.errors import PeerFault
from daa_node.network.blob_server import BlobServer
from daa_node.network.directory import Directory
from daa_node.network.untaken import ROOM_BYTES, Untaken
from daa_node.observability.events import EventLog
from daa_node.seams import IDLE_TIMEOUT_S, BlobStore, FrameStream, PeerId
from daa_node.wire.blob_messages import PIECE_BYTES, ChunksRequest, encode_request
from daa_node.wire.limits import KIB, MIB
from tests.daa_node.agreement.memory_disk import Disk, MemoryStore

BLOB = bytes(MIB)
MANIFEST = manifest_of(BLOB, cut([len(BLOB)]))
ALL = ChunksRequest("updates", MANIFEST.root, tuple(range(len(MANIFEST.sizes))))
STATE_BYTES = 60 * 10**6
SLOW_BYTES_PER_S = 125_000  # 1 Mbit/s
KERNEL_BYTES = 128 * KIB  # taken off us at once, read or not


class Session:
    """A guest that asks for a mebibyte again and again, over a link of its own."""

    def __init__(self, node_id: NodeId, bytes_per_s: float, count: float = float("inf")) -> None:
        self.node_id = node_id
        self._bytes_per_s = bytes_per_s
        self.wanted = count
        self._queued_bytes = 0.0
        self.taken_bytes = 0
        self.begun_s = 0.0

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes | None:
        await trio.sleep(0.001)
        return encode_request(ALL) if self.taken_bytes < self.wanted else None

    async def send_frame(self, payload: bytes) -> None:
        assert len(payload) <= PIECE_BYTES
        if self._queued_bytes + len(payload) <= KERNEL_BYTES:
            self._queued_bytes += len(payload)
        elif self._bytes_per_s:
            await trio.sleep(len(payload) / self._bytes_per_s)
        else:
            await trio.sleep_forever()
        self.taken_bytes += len(payload)


class Store(MemoryStore):
    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        return MANIFEST

    async def read_into(self, *_: object) -> None:
        await trio.lowlevel.checkpoint()


class Server:
    def __init__(self) -> None:
        self.untaken = Untaken()
        shelves = {"updates": cast(BlobStore, Store(Disk()))}
        self.server = BlobServer(shelves, None, lambda _node: False, self.untaken)
        self.given_up: list[NodeId] = []

    async def serve(self, session: Session) -> None:
        try:
            await self.server.serve(cast(FrameStream, session))
        except PeerFault as fault:
            if fault.reason == "unread":
                self.given_up.append(session.node_id)

    async def hoard(self, node_id: NodeId, bytes_per_s: float) -> None:
        """Comes again as often as a peer may open sessions."""
        while True:
            await self.serve(Session(node_id, bytes_per_s))
            await trio.sleep(2.0)


def names(count: int) -> Iterable[NodeId]:
    return (NodeId(bytes([n]) * 32) for n in range(1, count + 1))


HONEST = NodeId(b"h" * 32)


async def besieged(server: Server, bytes_per_s: float, wanted: int) -> float:
    """Seconds that a slow honest guest needs among sixty-three that read so fast."""
    async with trio.open_nursery() as nursery:
        for name in names(63):
            nursery.start_soon(server.hoard, name, bytes_per_s)
        await trio.sleep(10.0)
        began_s = trio.current_time()
        await server.serve(Session(HONEST, SLOW_BYTES_PER_S, wanted))
        seconds = trio.current_time() - began_s
        assert server.untaken.held_bytes <= ROOM_BYTES
        nursery.cancel_scope.cancel()
    return seconds


@pytest.mark.long
async def test_a_slow_guest_gets_a_state_among_guests_that_read_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server()
    alone_s = STATE_BYTES / SLOW_BYTES_PER_S
    beside_s = await besieged(server, 0.0, STATE_BYTES)
    assert HONEST not in server.given_up
    assert len(set(server.given_up)) == 63
    assert beside_s < 4 * alone_s


async def test_who_reads_at_all_makes_others_wait_and_does_not_shut_them_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for bytes_per_s in (2_000.0, 80_000.0, 140_000.0):
        server = Server()
        seconds = await besieged(server, bytes_per_s, 8 * MIB)
        assert HONEST not in server.given_up
        assert seconds < 8 * 60.0
        assert (len(server.given_up) > 0) == (bytes_per_s < 70_000)


@pytest.mark.long
async def test_who_reads_too_slowly_for_a_crowd_is_given_up_and_not_banned(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server, very_slow, seconds = Server(), 12_500, 1200.0
    directory = Directory(trio.current_time, {}, EventLog(lambda: 0))
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for name in names(63):
                nursery.start_soon(server.hoard, name, 0.0)
            while True:
                await server.serve(Session(HONEST, very_slow))
                assert not directory.blame(PeerId("honest"), PeerFault("unread"))
                await trio.sleep(0.2)
    assert server.given_up.count(HONEST) > 50


async def test_nobody_is_given_up_while_there_is_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server()
    with trio.move_on_after(300.0):
        async with trio.open_nursery() as nursery:
            for name in names(ROOM_BYTES // (2 * MIB)):
                nursery.start_soon(server.hoard, name, 0.0)
    assert not server.given_up


async def test_a_place_is_free_again_whoever_leaves(
    autojump_clock: trio.testing.MockClock,
) -> None:
    untaken = Untaken(room_bytes=MIB)

    async def take(ends: bool) -> None:
        with trio.move_on_after(1.0), suppress(RuntimeError):
            async with untaken.room(MIB):
                if ends:
                    raise RuntimeError
                await trio.sleep_forever()

    for ends in (True, False, True, False):
        await take(ends)
        assert not untaken.held_bytes
    async with untaken.room(2 * MIB):  # larger than the room, and alone in it
        assert untaken.held_bytes == 2 * MIB
