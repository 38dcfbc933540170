"""Strangers fetch too, out of one allowance and after members; a member never waits for them."""

from typing import cast

import trio
import trio.testing

from daa_dag.chunking import cut, manifest_of
from daa_dag.ids import BlobRoot, NodeId
from daa_node.network.blob_server import (
    CHUNK_COST_BYTES,
    FIND_COST_BYTES,
    OPEN_FIND_COST_BYTES,
    STRANGER_WAITS_S,
    BlobServer,
)
from daa_node.network.shares import OF_ALL_STRANGERS
from daa_node.seams import IDLE_TIMEOUT_S, BlobStore, FrameStream
from daa_node.wire.blob_messages import (
    ChunksRequest,
    FindRequest,
    Refusal,
    Request,
    encode_refused,
    encode_request,
)
from tests.daa_node.agreement.memory_disk import Disk, MemoryStore

BLOB = bytes(1000)
MANIFEST = manifest_of(BLOB, cut([len(BLOB)]))
FIND = FindRequest("updates", MANIFEST.root, True)
ELSEWHERE = FindRequest("updates", BlobRoot(b"e" * 32), True)
MEMBER, OTHER = NodeId(b"m" * 32), NodeId(b"o" * 32)
STRANGERS = [NodeId(bytes([i]) * 32) for i in range(20)]


class Session:
    """One peer that asks the same thing for ever and reads at once, or slowly."""

    def __init__(self, node_id: NodeId, request: Request, reads_s: float = 0.0) -> None:
        self.node_id = node_id
        self._request = encode_request(request)
        self._reads_s = reads_s
        self.answers = 0
        self.said = b""

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes:
        await trio.sleep(0.001)
        return self._request

    async def send_frame(self, payload: bytes) -> None:
        await trio.sleep(self._reads_s)
        self.said = bytes(payload)
        self.answers += 1


class Link:
    """What one host sends at a time shares its link."""

    def __init__(self) -> None:
        self.flows = 0


class OnLink(Session):
    """A peer that asks for ever, over a link which it shares with others."""

    def __init__(self, node_id: NodeId, link: Link) -> None:
        super().__init__(node_id, CHUNK)
        self._link = link

    async def send_frame(self, payload: bytes) -> None:
        self._link.flows += 1
        await trio.sleep(0.1 * self._link.flows)
        self._link.flows -= 1
        self.answers += 1


class Store(MemoryStore):
    async def read_into(self, *_: object) -> None:
        await trio.lowlevel.checkpoint()


async def serve(sessions: list[Session], seconds: float) -> None:
    store = Store(Disk())
    store.put_blob("updates", BLOB)
    shelves = {"updates": cast(BlobStore, store)}
    server = BlobServer(shelves, None, {MEMBER, OTHER}.__contains__)
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(server.serve, cast(FrameStream, session))


async def test_twenty_strangers_may_together_what_one_may(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for request, cost in ((FIND, OPEN_FIND_COST_BYTES), (CHUNK, CHUNK_COST_BYTES)):
        sessions = [Session(node_id, request) for node_id in STRANGERS]
        await serve(sessions, 10.0)
        served = sum(session.answers for session in sessions)
        allowed = OF_ALL_STRANGERS.burst_bytes + 10 * OF_ALL_STRANGERS.bytes_per_s
        assert 0.9 * allowed / cost <= served <= 1 + allowed / cost
        assert min(session.answers for session in sessions) > 0


async def test_a_manifest_that_is_at_hand_costs_strangers_less_than_one_to_look_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    at_hand, elsewhere = Session(STRANGERS[0], FIND), Session(STRANGERS[0], ELSEWHERE)
    await serve([at_hand], 10.0)
    await serve([elsewhere], 10.0)
    allowed = OF_ALL_STRANGERS.burst_bytes + 10 * OF_ALL_STRANGERS.bytes_per_s
    assert elsewhere.answers <= 1 + allowed / FIND_COST_BYTES
    assert at_hand.answers > 0.9 * allowed / OPEN_FIND_COST_BYTES


async def test_a_member_is_served_as_if_there_were_no_strangers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    alone, beside = Session(MEMBER, FIND), Session(MEMBER, FIND)
    await serve([alone], 5.0)
    await serve([beside, *(Session(node_id, FIND) for node_id in STRANGERS)], 5.0)
    assert beside.answers >= 0.99 * alone.answers


async def test_a_stranger_waits_for_members_and_not_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    never_reads, stranger = Session(MEMBER, FIND, reads_s=1e6), Session(STRANGERS[0], CHUNK)
    await serve([never_reads, stranger], 10.5 * STRANGER_WAITS_S)
    assert 9 <= stranger.answers <= 11


CHUNK = ChunksRequest("updates", MANIFEST.root, (0,))


async def test_a_member_with_many_sessions_takes_no_more_of_a_link_than_with_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    greedy = 8
    alone, link = OnLink(MEMBER, Link()), Link()
    await serve([alone], 60.0)
    beside = OnLink(MEMBER, link)
    await serve([beside, *(OnLink(OTHER, link) for _ in range(greedy))], 60.0)
    assert beside.answers > 0.4 * alone.answers


async def test_what_is_for_members_is_not_here_for_strangers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = Store(Disk())
    store.put_blob("boundaries", BLOB)
    shelves = {"boundaries": cast(BlobStore, store)}
    server = BlobServer(shelves, None, {MEMBER}.__contains__, for_members={"boundaries"})
    requests: list[Request] = [
        FindRequest("boundaries", MANIFEST.root, True),
        ChunksRequest("boundaries", MANIFEST.root, (0,)),
    ]
    for request in requests:
        told = dict[NodeId, bytes]()
        for node_id in (MEMBER, STRANGERS[0]):
            session = Session(node_id, request)
            with trio.move_on_after(5.0):
                await server.serve(cast(FrameStream, session))
            told[node_id] = session.said
        assert told[STRANGERS[0]] == encode_refused(Refusal.UNKNOWN) != told[MEMBER]
