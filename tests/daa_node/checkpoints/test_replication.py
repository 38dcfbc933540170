"""Who lacks a state that too few hold fetches it, if it is next in line, and nobody else does."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from daa_dag import canonical
from daa_dag.checkpoint import Vertex
from daa_dag.ids import NodeId
from daa_dag.retention import Retention
from daa_node.checkpoints.held import is_whole
from daa_node.checkpoints.packing import Packing
from daa_node.checkpoints.quota import Quota
from daa_node.checkpoints.repair import Lenders
from daa_node.checkpoints.replication import (
    COPIES,
    REQUEST,
    Replication,
    asked_vertices,
    decode_held,
    in_line,
)
from daa_node.checkpoints.snapshot_files import snapshot_names
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import PeerFault, Unavailable
from daa_node.observability.events import Event, EventLog
from tests.daa_node.checkpoints.lenders import lent_by
from tests.daa_node.checkpoints.little_chain import (
    FACTS,
    SNAPSHOT_EVERY,
    ChainMaker,
    make_chain,
    put_blob,
)

ROUNDS = 7
ME = NodeId(bytes(32))
OTHERS = [NodeId(bytes([n]) * 32) for n in range(1, 8)]


class Member:
    """We, on our chain, and what the others say when they are asked."""

    def __init__(self, maker: ChainMaker, retention: Retention | None = None) -> None:
        retention = retention or Retention()
        self.maker = maker
        self.told: list[Event] = []
        self.faults: list[tuple[NodeId, str]] = []
        self.asked: list[NodeId] = []
        log = EventLog(lambda: 0, self.told.append)
        self.quota = Quota(maker.chain, retention, Packing(maker.chain, retention, log), log)
        self._log = log

    async def look(
        self,
        others: ChainMaker,
        members: Sequence[NodeId],
        says: dict[NodeId, bytes],
        times: int = 1,
    ) -> None:
        """`says`: the answer of each; who has none is not reached."""

        async def ask(node: NodeId, name: str, _body: bytes, _bytes_max: int) -> bytes:
            assert name == REQUEST
            self.asked.append(node)
            if node not in says:
                raise Unavailable("gone")
            return says[node]

        async with lent_by({"others": others}, self.faults) as lent:
            lenders = Lenders(
                members=lambda: list(members),
                ask=ask,
                fetch=lent.fetch,
                fault=lent.fault,
                validators=lent.validators,
                delta_bytes_max=lent.delta_bytes_max,
                state_bytes=lent.state_bytes,
            )
            around = self.maker.chain, lenders, self.quota, SNAPSHOT_EVERY
            self.replication = Replication(ME, *around, self._log)
            for _ in range(times):
                await self.replication.look()

    def names(self) -> list[str]:
        return [event["name"] for event in self.told]


YES, NO = canonical.encode([True]), canonical.encode([False])


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> ChainMaker:
    return make_chain(tmp_path_factory.mktemp("others"), ROUNDS)


async def snapshot_at(maker: ChainMaker, height: int) -> Vertex:
    vertex_id = await maker.chain.heights.at(height)
    assert vertex_id is not None
    vertex = await maker.chain.vertex(vertex_id)
    assert vertex is not None
    return vertex


async def lose(maker: ChainMaker, *heights: int) -> None:
    """The states of these heights, and what they share with no other."""
    for height in heights:
        vertex = await snapshot_at(maker, height)
        manifests = await maker.chain.snapshot(vertex)
        assert manifests is not None
        await maker.chain.groups.drop(sorted(snapshot_names([manifests])))


def ours(directory: Path) -> ChainMaker:
    return make_chain(directory / "ours", ROUNDS)


def line_of(vertex: Vertex) -> tuple[list[NodeId], list[NodeId]]:
    """Who stands before us, and who behind."""
    line = in_line(vertex.vertex_id, [*OTHERS, ME])
    return line[: line.index(ME)], line[line.index(ME) + 1 :]


def test_whoever_is_next_fetches_what_too_few_hold(others: ChainMaker, tmp_path: Path) -> None:
    maker = ours(tmp_path)

    async def run() -> None:
        await maker.open()
        await others.open()
        await lose(maker, 6)
        vertex = await snapshot_at(maker, 6)
        _, behind = line_of(vertex)
        assert behind, "else another name for us is to be chosen"
        member = Member(maker)
        await member.look(others, behind, dict.fromkeys(behind[: COPIES - 1], YES))
        assert "snapshot_copied" in member.names()
        manifests = await maker.chain.snapshot(vertex)
        assert manifests is not None
        assert await is_whole(maker.chain, manifests)
        assert await maker.work.blob_roots("copying") == []

    trio.run(run)
    assert verify_chain(maker.chain_directory, FACTS).problems == []


def test_nobody_fetches_what_enough_hold_or_what_others_are_to_fetch(
    others: ChainMaker, tmp_path: Path
) -> None:
    maker = ours(tmp_path)

    async def run() -> None:
        await maker.open()
        await others.open()
        member = Member(maker)
        await member.look(others, OTHERS, {})
        assert member.asked == []  # who has all asks nobody
        await lose(maker, 6)
        vertex = await snapshot_at(maker, 6)
        before, behind = line_of(vertex)
        line = in_line(vertex.vertex_id, OTHERS)
        await member.look(others, OTHERS, dict.fromkeys(line[:COPIES], YES))
        assert member.names() == []
        assert len(member.asked) == COPIES
        holders = dict.fromkeys(behind[: COPIES - 1], YES) | dict.fromkeys(before, NO)
        await member.look(others, [*before, *behind], holders)
        # one copy lacks, and whoever stands before us lacks it, too
        assert member.names() == ([] if before else ["snapshot_copied"])

    trio.run(run)


def test_a_state_with_a_hole_is_none_and_is_filled(others: ChainMaker, tmp_path: Path) -> None:
    maker = ours(tmp_path)

    async def run() -> None:
        await maker.open()
        await others.open()
        vertex = await snapshot_at(maker, 6)
        manifests = await maker.chain.snapshot(vertex)
        assert manifests is not None
        await maker.store.delete_record("chunks", manifests[0].digests[0].hex())
        member = Member(maker)
        asked = canonical.encode([vertex.vertex_id])
        await member.look(others, [], {})  # alone in line: it is ours
        assert member.names() == ["snapshot_copied"]
        assert await is_whole(maker.chain, manifests)
        assert decode_held(await member.replication.answer(asked))

    trio.run(run)


def test_what_has_no_room_or_cannot_be_had_is_told_of(others: ChainMaker, tmp_path: Path) -> None:
    maker, empty = ours(tmp_path), make_chain(tmp_path / "empty", ROUNDS)

    async def run() -> None:
        await maker.open()
        await others.open()
        await empty.open()
        await lose(maker, 6)
        await lose(empty, 6)
        tight = Member(maker, Retention(bytes_max=100))
        await tight.look(others, [], {})
        (told,) = [event for event in tight.told if event["name"] == "copies_lack"]
        assert "bytes_max" in told["why"]
        member = Member(maker)
        await member.look(empty, [], {}, times=2)
        assert member.names() == ["copies_lack"]  # once

    trio.run(run)


def test_what_our_own_policy_lets_go_of_is_not_fetched(others: ChainMaker, tmp_path: Path) -> None:
    maker = ours(tmp_path)

    async def run() -> None:
        await maker.open()
        await others.open()
        await lose(maker, 4)
        for retention in (Retention(vertices_restorable=2), Retention(bytes_max=10**12)):
            member = Member(maker, retention)
            await member.look(others, [], {})
            assert member.names() == []
        member = Member(maker)
        await member.look(others, [], {})
        assert member.names() == ["snapshot_copied"]

    trio.run(run)


def test_a_false_answer_is_blamed_and_counts_as_no_copy(others: ChainMaker, tmp_path: Path) -> None:
    maker = ours(tmp_path)

    async def run() -> None:
        await maker.open()
        await others.open()
        await lose(maker, 6)
        _, behind = line_of(await snapshot_at(maker, 6))
        member = Member(maker)
        await member.look(others, behind[:1], {behind[0]: canonical.encode([1, 2])})
        assert member.faults == [(behind[0], "malformed")]
        assert "snapshot_copied" in member.names()

    trio.run(run)


def test_whoever_stands_before_us_and_fetches_nothing_is_waited_for_once(
    others: ChainMaker, tmp_path: Path
) -> None:
    """It may have no room, want no copies, or lie."""
    maker = ours(tmp_path)

    async def run() -> None:
        await maker.open()
        await others.open()
        await lose(maker, 6)
        before = [NodeId(bytes([n]) * 32) for n in range(1, 100)]
        line = in_line((await snapshot_at(maker, 6)).vertex_id, [*before, ME])
        before = line[: line.index(ME)][-COPIES:]
        assert len(before) == COPIES
        member = Member(maker)
        await member.look(others, before, dict.fromkeys(before, NO))
        assert member.names() == []
        member = Member(maker)
        await member.look(others, before, dict.fromkeys(before, NO), times=2)
        assert member.names() == ["snapshot_copied"]

    trio.run(run)


def test_a_copy_stands_where_what_a_policy_keeps_stands(others: ChainMaker, tmp_path: Path) -> None:
    """The state below the oldest vertex that is kept is kept, too."""
    maker = ours(tmp_path)

    async def run() -> None:
        await maker.open()
        await others.open()
        await lose(maker, 6)
        member = Member(maker, Retention(vertices_restorable=1))
        await member.look(others, [], {})
        assert member.names() == ["snapshot_copied"]

    trio.run(run)


def test_a_state_with_a_damaged_manifest_is_none_and_comes_anew(
    others: ChainMaker, tmp_path: Path
) -> None:
    maker = ours(tmp_path)

    async def run() -> None:
        await maker.open()
        await others.open()
        vertex = await snapshot_at(maker, 6)
        await maker.store.put_record("manifests", vertex.model_root.hex(), b"rot")
        member = Member(maker)
        await member.look(others, [], {})
        assert member.names() == ["snapshot_copied"]

    trio.run(run)
    assert verify_chain(maker.chain_directory, FACTS).problems == []


def test_an_answer_reads_no_manifest(others: ChainMaker, tmp_path: Path) -> None:
    """Those of a large model take long, and any member may ask again and again."""
    maker = ours(tmp_path)

    async def run() -> None:
        await maker.open()
        await others.open()
        member = Member(maker)
        await member.look(others, [], {})
        record, read = maker.store.get_record, list[str]()

        async def noting(kind: str, name: str) -> bytes | None:
            read.append(kind)
            return await record(kind, name)

        maker.store.get_record = noting  # type: ignore[method-assign]
        for height, held in ((6, True), (5, False)):
            asked = canonical.encode([(await snapshot_at(maker, height)).vertex_id])
            assert decode_held(await member.replication.answer(asked)) is held
        assert set(read) == {"vertices"}

    trio.run(run)


def test_what_came_for_nobody_any_more_goes(others: ChainMaker, tmp_path: Path) -> None:
    """A state of which one half came may be out of date before the other one comes."""
    maker = ours(tmp_path)

    async def run() -> None:
        await maker.open()
        await others.open()
        old = await snapshot_at(maker, 2)
        manifests = await others.chain.snapshot(old)
        assert manifests is not None
        payload = await maker.work.view_blob("states", old.model_root)
        await put_blob(maker.work, "copying", manifests[0], bytes(payload))
        await Member(maker).look(others, [], {})
        assert await maker.work.blob_roots("copying") == []

    trio.run(run)


@pytest.mark.parametrize("body", [b"", b"x", canonical.encode([]), canonical.encode([b"short"])])
def test_what_asks_for_no_vertices_is_refused(body: bytes) -> None:
    with pytest.raises(PeerFault, match="malformed"):
        asked_vertices(body)
