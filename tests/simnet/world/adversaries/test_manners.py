"""How puppet daemons serve and listen: shelves for each asker, late pages, streams hung up on."""

from functools import partial
from pathlib import Path
from random import Random
from typing import cast

import pytest
import trio
import trio.testing

from daa_dag import canonical
from daa_dag.ids import ChainId, NodeId
from daa_node.errors import Unavailable
from daa_node.network.blob_exchange import Want
from daa_node.network.mailbox import MESSAGE_COST_BYTES, READ_A_DELTA_MAX
from daa_node.seams import (
    BulkTransport,
    ByteStream,
    FrameHandler,
    IsMember,
    PeerId,
    Transport,
)
from daa_node.wire.framing import message_in_pieces, read_message, write_message
from simnet.world.adversaries.behaviour import Shelf
from simnet.world.adversaries.errands import Errands, answer
from simnet.world.adversaries.lying_blobs import DRIP_S, LyingBulk
from simnet.world.adversaries.manners import SHELVES, Manners
from simnet.world.adversaries.message_filter import Hearing, MessageFilter, Rewritten
from simnet.world.adversaries.puppet import Puppet
from tests.daa_node.network.bulk_stage import (
    CHUNK_COUNT,
    KIND,
    MANIFEST,
    PAYLOAD,
    MemoryWriter,
    Scene,
    on_stage,
    scripted,
    truth,
)
from tests.daa_node.network.test_mailbox import ALICE, BOB, MESSAGE_BYTES_MAX, two_boxes
from tests.simnet.world.adversaries.test_errands import mind

WANT = Want(KIND, MANIFEST.root, len(PAYLOAD))


class Door:
    """Of a bulk transport: who is let in."""

    handler: FrameHandler

    def set_handler(self, handler: FrameHandler, _is_member: IsMember) -> None:
        self.handler = handler


def liar(shelf: Shelf) -> FrameHandler:
    """A server with the whole blob, behind such a shelf."""
    door = Door()
    LyingBulk(cast(BulkTransport, door), lambda _: shelf, Random(1)).set_handler(
        scripted(truth), bool
    )
    return door.handler


def test_of_a_short_shelf_all_but_the_last_piece_is_had(tmp_path: Path) -> None:
    writer = MemoryWriter()

    async def play(scene: Scene) -> None:
        source = scene.bulk.add("liar", liar(Shelf.SHORT))
        with pytest.raises(Unavailable):
            await scene.fetcher.fetch(WANT, [source], writer.begin, 100)
        assert scene.faults == []

    on_stage(tmp_path, play, virtual=True)
    assert 1 <= len(writer.missing()) <= 4  # what is asked for together


def test_who_misses_the_last_piece_gets_it_from_somebody_else(tmp_path: Path) -> None:
    writer = MemoryWriter()

    async def play(scene: Scene) -> None:
        source = scene.bulk.add("liar", liar(Shelf.SHORT))
        holder = scene.bulk.add("holder", scripted(truth))
        await scene.fetcher.fetch(WANT, [source], writer.begin, 100, lambda: [holder])

    assert on_stage(tmp_path, play, virtual=True) < 4.0
    assert writer.committed


def test_a_dripping_shelf_gives_all_a_little_at_a_time(tmp_path: Path) -> None:
    writer = MemoryWriter()

    async def play(scene: Scene) -> None:
        source = scene.bulk.add("liar", liar(Shelf.DRIPPING))
        await scene.fetcher.fetch(WANT, [source], writer.begin, 100)
        assert scene.faults == []

    assert on_stage(tmp_path, play, virtual=True) > CHUNK_COUNT / 4 * DRIP_S
    assert writer.committed


def test_each_asker_finds_a_shelf_of_its_own_which_stays() -> None:
    askers = [NodeId(bytes([n]) * 32) for n in range(4)]
    found = set[Shelf]()
    told_apart = 0
    for seed in range(200):
        manners = Manners.drawn(Random(seed))
        shelves = [manners.shelf_of(asker) for asker in askers]
        assert [manners.shelf_of(asker) for asker in askers] == shelves
        assert manners.tells_apart or len(set(shelves)) == 1
        told_apart += len(set(shelves)) > 1
        found.update(shelves)
    assert found == set(SHELVES) == set(Shelf)
    assert told_apart > 60


class Pipe:
    """A ByteStream that two ends of a test write to and read from."""

    peer_id = PeerId("somebody")

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_closed = False

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        self.written += payload

    async def receive_some(self, size_bytes_max: int) -> bytes:
        piece = bytes(self.written[:size_bytes_max])
        del self.written[:size_bytes_max]
        return piece

    async def aclose(self) -> None:
        self.is_closed = True


class Ears:
    def hears(self, _payload: bytes) -> None:
        pass


async def test_a_stream_of_messages_is_hung_up_on_after_as_many_as_it_likes() -> None:
    pipe = Pipe()
    for number in range(5):
        await write_message(cast(ByteStream, pipe), b"letter %d" % number)
    hearing = Hearing(cast(ByteStream, pipe), cast(MessageFilter, Ears()), messages_left=2)
    read = [await read_message(cast(ByteStream, hearing), 100) for _ in range(2)]
    assert read == [b"letter 0", b"letter 1"]
    assert not pipe.is_closed
    assert await hearing.receive_some(4) == b""
    assert pipe.is_closed


async def test_a_page_comes_late_and_as_it_is(autojump_clock: trio.testing.MockClock) -> None:
    pipe, manners = Pipe(), Manners.drawn(Random(1))
    manners.changes_pages, manners.pages_late_s = False, 20.0
    puppet = Puppet()
    puppet.mind = mind(1)
    answering = Rewritten(cast(ByteStream, pipe), partial(answer, puppet, manners))
    page = canonical.encode(["ok", bytes(50)])
    began_s = trio.current_time()
    for piece in message_in_pieces(page, 16):  # as long ones come
        await answering.send_all(piece)
    assert trio.current_time() - began_s == pytest.approx(20.0)
    assert await read_message(cast(ByteStream, pipe), 100) == page


async def test_many_streams_with_a_message_each_are_read_at_the_pace_of_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_boxes() as (_, alice, bob, _):
        await trio.sleep(1)
        manners = Manners.drawn(Random(1))
        manners.streams_at_once = 32
        transport = cast(Transport, alice.transport)
        errands = Errands(transport, ChainId(bytes(32)), ALICE, Puppet(), manners)
        await errands.chatter(mind(1), BOB.peer_id)
        await trio.sleep(0.01)
        assert 0 < len(bob.got) <= 1 + 2 * READ_A_DELTA_MAX * MESSAGE_BYTES_MAX / MESSAGE_COST_BYTES
