"""A node that was away for longer than others keep deltas comes back, and its chain is whole."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import Block
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, NodeId, VertexId
from daa_dag.retention import Retention
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.page_server import Pages, page_after
from daa_node.checkpoints.pages import check_page
from daa_node.checkpoints.publish import Page, state_of
from daa_node.checkpoints.replay import delta_bytes_max
from daa_node.checkpoints.restore import restore
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import PeerFault, StorageFailed, Unavailable, UserError
from daa_node.identity.validators import Validators
from daa_node.network.blob_exchange import BlobFetcher
from daa_node.network.blob_server import BlobServer
from daa_node.network.contacts import Contacts
from daa_node.network.directory import Directory
from daa_node.network.requests import Requests
from daa_node.network.session_pool import Source
from daa_node.observability.events import EventLog
from daa_node.rounds.job_runner import ChainPosition, RunnerParts
from daa_node.rounds.peers import Peers, Sizes
from daa_node.rounds.state_sync import CLOSING, StateSync
from daa_node.seams import IDLE_TIMEOUT_S, ByteStream, FrameStream, PeerId, Transport
from daa_node.wire.blob_messages import FindRequest, decode_request
from tests.daa_node.checkpoints.filling_disk import FillingDisk
from tests.daa_node.checkpoints.little_chain import (
    FACTS,
    KEYS,
    RULES,
    SNAPSHOT_EVERY,
    ChainMaker,
    Replays,
    delta_of,
    make_chain,
)
from tests.daa_node.network.bulk_stage import MemoryBulk, source

AWAY_SINCE = 3  # rounds that the laggard has
ROUNDS = 9  # rounds that the others have; the fifth was aborted: height 8 in two epochs more
LIMITS = FACTS.limits


class Line:
    """A Transport of which only streams to one member's handler are used."""

    def __init__(self, nursery: trio.Nursery, serve: Callable[[ByteStream], Awaitable[None]]):
        self._nursery = nursery
        self._serve = serve

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        ours, theirs = trio.testing.memory_stream_pair()
        for stream in (ours, theirs):
            stream.peer_id = peer_id  # type: ignore[attr-defined]
        self._nursery.start_soon(self._serve, cast(ByteStream, theirs))
        return cast(ByteStream, ours)


MEMBER = source("member")
SIZES = Sizes(LIMITS, delta_bytes_max(RULES), 5.0, ())


View = Callable[[FrameStream], FrameStream]  # of a session as a member serves it


@asynccontextmanager
async def member_of(
    served: ChainMaker,
    laggard: ChainStore,
    asked: list[BlobRoot],
    others: Mapping[Source, View] = MappingProxyType({}),
) -> AsyncIterator[Peers]:
    """A laggard's view of a member, who serves this chain and notes what it asks, and of others."""
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        server = BlobServer({"deltas": served.store}, served.store, bool)

        async def serve(view: View, stream: FrameStream) -> None:
            await server.serve(view(stream))

        views = {MEMBER: lambda stream: Noting(stream, asked), **others}
        for each, view in views.items():
            bulk.add(each.peer_id, partial(serve, view))
        log = EventLog(lambda: 0)
        names = {each.node_id: each.peer_id for each in views}
        directory = Directory(trio.current_time, names, log)
        fetcher = BlobFetcher(NodeId(bytes(32)), bulk, fault)
        away = cast(Transport, None)
        answering = Requests(away, directory, log)
        Pages(served.chain).serve(answering)
        asking = Requests(cast(Transport, Line(nursery, answering.serve)), directory, log)
        known = contacts(directory, {*names})
        yield Peers(fetcher, asking, known, laggard.work, SIZES)
        await fetcher.aclose()
        nursery.cancel_scope.cancel()


def contacts(directory: Directory, members: set[NodeId]) -> Contacts:
    known = SimpleNamespace(
        me=NodeId(bytes(32)),
        members=lambda: members,
        one_is_honest=bool,
        peer_of=directory.peer_of,
    )
    return cast(Contacts, known)


def fault(node: NodeId, fault: PeerFault) -> None:
    raise AssertionError(f"{node.hex()} was blamed: {fault}")


class Noting:
    """A bulk session of which is noted for what blobs it asks."""

    def __init__(self, inner: FrameStream, asked: list[BlobRoot]) -> None:
        self._inner = inner
        self._asked = asked

    @property
    def node_id(self) -> NodeId:
        return self._inner.node_id

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        await self._inner.send_frame(payload)

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes | None:
        frame = await self._inner.receive_frame(within_s)
        if frame is not None and isinstance(request := decode_request(frame), FindRequest):
            self._asked.append(request.root)
        return frame

    async def aclose(self) -> None:
        await self._inner.aclose()


async def sync_state(
    served: ChainMaker,
    laggard: ChainMaker,
    chain: ChainStore,
    asked: list[BlobRoot] | None = None,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
    anchor: VertexId | None = None,
    log: EventLog | None = None,
    others: Mapping[Source, View] = MappingProxyType({}),
) -> ChainPosition:
    """What the job runner does when the next page's deltas are gone.

    `meanwhile` befalls the others once they have told that there is no more.
    """
    refused: list[Unavailable | StorageFailed | UserError] = []
    befalls = [] if meanwhile is None else [meanwhile]
    async with member_of(served, chain, [] if asked is None else asked, others) as peers:
        newest, tip = await chain.newest(), await chain.resume_point()
        replays = Replays(laggard)

        async def next_page(
            tip: Block, parent: Vertex, validators: Validators, _: int | None
        ) -> Page | None:
            page = await peers.ask_page(MEMBER.node_id, tip, validators)
            if page is None and befalls:
                await befalls.pop()()
            if page is not None:
                check_page(page, tip, parent, validators.copy())
            return page

        start = ChainPosition(tip, newest, await restore(chain, newest, replays), tip.height)
        parts = SimpleNamespace(
            chain=chain,
            peers=peers,
            trainer=replays,
            anchor=anchor,
            events=log or EventLog(lambda: 0),
        )
        one_way = StateSync(
            cast(RunnerParts, parts),
            FACTS.validators(),
            SNAPSHOT_EVERY,
            start,
            next_page,
        )
        page = await next_page(tip, newest, FACTS.validators(), None)
        assert page is not None
        try:
            return await one_way.run(page, MEMBER.node_id)
        except (Unavailable, StorageFailed, UserError) as refusal:
            refused.append(refusal)  # out of the nursery: not in a group
    raise refused[0]


@pytest.fixture(scope="module")
def long_chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[ChainMaker, Path]:
    """The others, who keep what the newest two heights need; and the laggard's directory."""
    root = tmp_path_factory.mktemp("network")
    maker = make_chain(root / "others", AWAY_SINCE)
    shutil.copytree(maker.directory, root / "laggard")

    async def run() -> None:
        for number in range(AWAY_SINCE + 1, ROUNDS + 1):
            await maker.publish(await maker.make_round(abort=number == 5))
        assert await prune(maker.chain, Retention(vertices_restorable=1)) > 0

    trio.run(run)
    return maker, root / "laggard"


@pytest.fixture
def others(long_chain: tuple[ChainMaker, Path]) -> ChainMaker:
    return long_chain[0]


@pytest.fixture
def laggard(long_chain: tuple[ChainMaker, Path], tmp_path: Path) -> ChainMaker:
    shutil.copytree(long_chain[1], tmp_path / "laggard")
    return ChainMaker(tmp_path / "laggard")


def test_a_gap_is_leapt_to_the_first_state_that_is_kept_and_the_chain_verifies(
    others: ChainMaker, laggard: ChainMaker
) -> None:
    async def run() -> None:
        await laggard.open()
        landed = await sync_state(others, laggard, laggard.chain)
        assert landed.newest == others.newest
        assert landed.state == state_of(others.newest)
        assert (landed.tip, landed.round) == (others.tip, ROUNDS)
        again = ChainMaker(laggard.directory)
        await again.open()
        assert await again.chain.newest() == others.newest
        assert again.chain.final_tip[0] == laggard.chain.final_tip[0]
        assert await again.chain.resume_point() == others.tip
        for kind in ("states", "updates"):
            for root in await again.work.blob_roots(kind):
                await again.work.delete_blob(kind, root)
        assert await restore(again.chain, others.newest, Replays(again)) == landed.state
        assert await again.work.record_names("staged") == []
        # and the next laggard can follow this node
        page = await page_after(again.chain, again.genesis.id)
        assert page is not None
        check_page(page, again.genesis, again.first, FACTS.validators())
        assert page.vertices

    trio.run(run)
    report = verify_chain(laggard.chain_directory, FACTS)
    assert report.ok, report.problems
    assert (report.heights, report.unfinished) == (others.newest.height, 0)


def test_how_far_it_has_come_is_told(others: ChainMaker, laggard: ChainMaker) -> None:
    log = EventLog(lambda: 0)

    async def run() -> None:
        await laggard.open()
        await sync_state(others, laggard, laggard.chain, log=log)

    trio.run(run)
    *_, last = [event for event in log.tail() if event["name"] == "state_coming"]
    assert last["height"] == others.newest.height
    assert last["bytes"] == last["bytes_due"] == 2 * RULES.parameter_count * 4


def test_a_past_without_the_trusted_vertex_is_refused_before_anything_of_it_is_taken(
    others: ChainMaker, laggard: ChainMaker
) -> None:
    async def run() -> None:
        await laggard.open()
        before = await laggard.chain.newest()
        asked: list[BlobRoot] = []
        with pytest.raises(UserError, match="does not hold the vertex 3f3f.* that you trust"):
            await sync_state(others, laggard, laggard.chain, asked, anchor=VertexId(b"?" * 32))
        assert await laggard.chain.newest() == before
        assert not asked
        between = await others.chain.heights.at(6)
        assert between is not None
        assert (
            await sync_state(others, laggard, laggard.chain, anchor=between)
        ).newest == others.newest

    trio.run(run)


def test_over_a_gap_of_many_pages_only_the_newest_state_is_asked_for(
    others: ChainMaker, laggard: ChainMaker
) -> None:
    """Who asks for one that is gone waits for the slowest member's answer, page after page."""

    async def run() -> None:
        await laggard.open()
        pages, tip, validators = 0, await laggard.chain.resume_point(), FACTS.validators()
        newest = await laggard.chain.newest()
        while (page := await page_after(others.chain, tip.id)) is not None:
            check_page(page, tip, newest, validators)
            if not page.vertices:
                break  # the empty blocks at the end
            newest, pages = page.vertices[-1][0], pages + 1
            tip = [block for block in page.blocks if isinstance(block.payload, CLOSING)][-1]
        assert pages > 1
        asked: list[BlobRoot] = []
        await sync_state(others, laggard, laggard.chain, asked)
        wanted = [others.newest.model_root, others.newest.outer_state_root]
        assert sorted(asked) == sorted(wanted)

    trio.run(run)


def test_a_state_that_goes_while_it_is_asked_for_gives_way_to_the_next(tmp_path: Path) -> None:
    others = make_chain(tmp_path / "others", AWAY_SINCE)
    shutil.copytree(others.directory, tmp_path / "laggard")
    laggard = ChainMaker(tmp_path / "laggard")

    async def go_on() -> None:
        """Two rounds more: of what was whole before, nothing is kept."""
        for _ in range(2):
            await others.publish(await others.make_round())
        assert await prune(others.chain, Retention(vertices_restorable=1)) > 0

    async def run() -> None:
        await go_on()
        await laggard.open()
        asked: list[BlobRoot] = []
        landed = await sync_state(others, laggard, laggard.chain, asked, go_on)
        assert landed.newest == others.newest
        assert len(asked) > 2  # the first pair in vain

    trio.run(run)
    report = verify_chain(laggard.chain_directory, FACTS)
    assert report.ok, report.problems


def test_what_a_landing_shares_with_what_goes_stays(tmp_path: Path) -> None:
    """Rounds that move nothing: the snapshot that goes has the chunks of the one that comes."""
    still = bytes(len(delta_of(1)))

    def maker_in(name: str) -> ChainMaker:
        maker = ChainMaker(tmp_path / name)
        maker.delta_of = lambda round_number: still
        return maker

    others, laggard = maker_in("others"), maker_in("laggard")

    async def run() -> None:
        await others.open()
        for _ in range(AWAY_SINCE):
            await others.publish(await others.make_round())
        shutil.copytree(others.directory, laggard.directory)
        for _ in range(2):
            await others.publish(await others.make_round())
        await laggard.open()
        assert (await sync_state(others, laggard, laggard.chain)).newest == others.newest

    trio.run(run)
    report = verify_chain(laggard.chain_directory, FACTS)
    assert report.ok, report.problems
    assert report.heights == AWAY_SINCE + 2


def test_deltas_that_are_kept_above_the_state_are_replayed_on_the_way(tmp_path: Path) -> None:
    maker = make_chain(tmp_path / "others", AWAY_SINCE)
    shutil.copytree(maker.directory, tmp_path / "laggard")
    laggard = ChainMaker(tmp_path / "laggard")

    async def run() -> None:
        for _ in range(2):  # one page brings both: the state of height 4, and height 5
            await maker.publish(await maker.make_round())
        await prune(maker.chain, Retention(vertices_restorable=2))
        await laggard.open()
        landed = await sync_state(maker, laggard, laggard.chain)
        assert landed.newest == maker.newest
        assert await laggard.store.blob_roots("deltas") == [maker.newest.delta_root]

    trio.run(run)
    report = verify_chain(laggard.chain_directory, FACTS)
    assert report.ok, report.problems
    assert report.heights == AWAY_SINCE + 2


def test_a_state_that_nobody_has_stored_yet_is_reached_from_the_one_before(tmp_path: Path) -> None:
    maker = make_chain(tmp_path / "others", AWAY_SINCE)
    shutil.copytree(maker.directory, tmp_path / "laggard")
    laggard = ChainMaker(tmp_path / "laggard")

    async def run() -> None:
        for _ in range(4):
            await maker.publish(await maker.make_round())
        await prune(maker.chain, Retention(vertices_restorable=3))
        newest_whole = maker.newest.height // SNAPSHOT_EVERY * SNAPSHOT_EVERY
        vertex_id = await maker.chain.heights.at(newest_whole)
        assert vertex_id is not None
        unstored = await maker.chain.vertex(vertex_id)
        assert unstored is not None
        for root in (unstored.model_root, unstored.outer_state_root):
            await maker.store.delete_record("manifests", root.hex())
        await laggard.open()
        landed = await sync_state(maker, laggard, laggard.chain)
        assert landed.newest == maker.newest
        assert maker.newest.delta_root in await laggard.store.blob_roots("deltas")

    trio.run(run)
    report = verify_chain(laggard.chain_directory, FACTS)
    assert report.ok, report.problems
    assert report.heights == AWAY_SINCE + 4


@pytest.mark.long
def test_a_crash_at_any_write_of_a_state_sync_leaves_a_chain_that_verifies(
    others: ChainMaker, laggard: ChainMaker, tmp_path: Path
) -> None:
    async def writes_of(directory: Path, room: int) -> tuple[int, ChainMaker]:
        """How many writes a state sync with room for so many made."""
        shutil.copytree(laggard.directory, directory)
        crashed, left = ChainMaker(directory), [room]
        disk = [FillingDisk(store, left) for store in (crashed.store, crashed.work)]
        chain = ChainStore(disk[0], disk[1], LIMITS)
        try:
            await chain.open(crashed.first, crashed.genesis)
            await sync_state(others, crashed, chain)
        except StorageFailed:
            pass
        return room - left[0], crashed

    async def has_landed(room: int) -> bool:
        """Whether a sync that died after so many writes is one that counts; all else is checked."""
        made, crashed = await writes_of(tmp_path / f"crashed {room}", room)
        assert made == room
        report = verify_chain(crashed.chain_directory, FACTS)
        assert report.ok, f"after {room} writes: {report.problems}"
        await crashed.open()
        report = verify_chain(crashed.chain_directory, FACTS)
        assert report.ok, f"mended after {room} writes: {report.problems}"
        assert report.unfinished == 0
        newest = await crashed.chain.newest()
        assert newest.height == report.heights
        assert await restore(crashed.chain, newest, Replays(crashed)) == state_of(newest)
        shutil.rmtree(crashed.directory)
        assert newest.height in (AWAY_SINCE, others.newest.height)
        return newest == others.newest

    async def run() -> None:
        whole, _ = await writes_of(tmp_path / "whole", 10_000)
        before, after = 0, whole - 1
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (before, middle) if await has_landed(middle) else (middle, after)
        # Around the moment when what came takes the place of what goes, and here and there.
        for room in [*range(0, whole, 23), *range(after - 3, after + 14)]:
            assert await has_landed(room) == (room >= after)

    trio.run(run)


def test_a_gap_without_any_state_above_it_is_refused_in_words_and_changes_nothing(
    long_chain: tuple[ChainMaker, Path], laggard: ChainMaker, tmp_path: Path
) -> None:
    shutil.copytree(long_chain[0].directory, tmp_path / "others")
    shutil.rmtree(tmp_path / "others" / "chain" / "chunks")

    async def run() -> None:
        maker = ChainMaker(tmp_path / "others")
        await maker.open()
        for name in await maker.store.record_names("manifests"):
            await maker.store.delete_record("manifests", name)
        await laggard.open()
        with pytest.raises(Unavailable, match="has the deltas above height 3, nor a whole state"):
            await sync_state(maker, laggard, laggard.chain)

    trio.run(run)
    report = verify_chain(laggard.chain_directory, FACTS)
    assert report.ok, report.problems
    assert report.heights == AWAY_SINCE


def test_the_proofs_of_who_contributed_survive_the_state_sync(
    others: ChainMaker, laggard: ChainMaker
) -> None:
    async def run() -> None:
        await laggard.open()
        await sync_state(others, laggard, laggard.chain)
        for height in range(1, others.newest.height + 1):
            vertex_id = await laggard.chain.heights.at(height)
            assert vertex_id is not None
            proof = await laggard.chain.exec_certificate(vertex_id)
            assert proof is not None
            assert {signer for signer, _ in proof.signatures} == {k.node_id for k in KEYS[:3]}

    trio.run(run)
