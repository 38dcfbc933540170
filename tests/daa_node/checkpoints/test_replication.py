"""Who lacks a state that too few hold fetches it, if it is next in line, and nobody else does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from daa_dag import canonical
from daa_dag.checkpoint import Vertex
from daa_dag.chunking import Manifest
from daa_dag.ids import NodeId
from daa_dag.retention import Retention
from daa_node.checkpoints.held import is_whole
from daa_node.checkpoints.packing import Packing
from daa_node.checkpoints.quota import Quota
from daa_node.checkpoints.repair import Lenders
from daa_node.checkpoints.replication import (
    COPIES,
    IN_LINE_MAX,
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
    vertex_at,
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
        self.told_while_coming: list[Any] = []
        self.asked: list[tuple[NodeId, bytes]] = []
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

        async def ask(node: NodeId, name: str, body: bytes, _bytes_max: int) -> bytes:
            assert name == REQUEST
            self.asked.append((node, body))
            if node not in says:
                raise Unavailable("gone")
            return says[node]

        async with lent_by({"others": others}, self.faults) as lent:

            async def fetch(*args: Any) -> Manifest:
                self.told_while_coming = self.states()
                return await lent.fetch(*args)

            lenders = Lenders(
                members=lambda: list(members),
                ask=ask,
                fetch=fetch,
                fault=lent.fault,
                validators=lent.validators,
                delta_bytes_max=lent.delta_bytes_max,
                state_bytes=lent.state_bytes,
            )
            around = self.maker.chain, lenders, self.quota, SNAPSHOT_EVERY
            self.replication = Replication(ME, *around, self._log)
            for _ in range(times):
                await self.replication.look()

    def states(self) -> list[Any]:
        told = self.replication.told()["states"]
        assert isinstance(told, list)
        return told

    def asked_about(self, vertex: Vertex) -> list[NodeId]:
        body = canonical.encode([vertex.vertex_id])
        return [node for node, asked in self.asked if asked == body]

    def names(self) -> list[str]:
        return [event["name"] for event in self.told]


YES, NO = canonical.encode([True]), canonical.encode([False])


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> ChainMaker:
    """A member whose chain is whole."""
    return make_chain(tmp_path_factory.mktemp("others"), ROUNDS)


@pytest.fixture
def made(tmp_path: Path) -> ChainMaker:
    return make_chain(tmp_path / "ours", ROUNDS)


@pytest.fixture
async def ours(others: ChainMaker, made: ChainMaker) -> ChainMaker:
    """Our own chain, whole and open, as the others' is."""
    await made.open()
    await others.open()
    return made


async def lose(maker: ChainMaker, *heights: int) -> None:
    """The states of these heights, and what they share with no other."""
    for height in heights:
        vertex = await vertex_at(maker, height)
        manifests = await maker.chain.snapshot(vertex)
        assert manifests is not None
        await maker.chain.groups.drop(sorted(snapshot_names([manifests])))


def line_of(vertex: Vertex) -> tuple[list[NodeId], list[NodeId]]:
    """Who stands before us, and who behind."""
    line = in_line(vertex.vertex_id, [*OTHERS, ME])
    return line[: line.index(ME)], line[line.index(ME) + 1 :]


async def test_whoever_is_next_fetches_what_too_few_hold(
    others: ChainMaker, ours: ChainMaker
) -> None:
    await lose(ours, 6)
    vertex = await vertex_at(ours, 6)
    _, behind = line_of(vertex)
    assert behind, "else another name for us is to be chosen"
    member = Member(ours)
    await member.look(others, behind, dict.fromkeys(behind[: COPIES - 1], YES))
    assert "snapshot_copied" in member.names()
    manifests = await ours.chain.snapshot(vertex)
    assert manifests is not None
    assert await is_whole(ours.chain, manifests)
    assert await ours.work.blob_roots("copying") == []
    assert verify_chain(ours.chain_directory, FACTS).problems == []


async def test_nobody_fetches_what_enough_hold_or_what_others_are_to_fetch(
    others: ChainMaker, ours: ChainMaker
) -> None:
    member = Member(ours)
    await lose(ours, 6)
    vertex = await vertex_at(ours, 6)
    before, behind = line_of(vertex)
    line = in_line(vertex.vertex_id, OTHERS)
    await member.look(others, OTHERS, dict.fromkeys(line[:COPIES], YES))
    assert member.names() == []
    assert len(member.asked_about(vertex)) == COPIES
    holders = dict.fromkeys(behind[: COPIES - 1], YES) | dict.fromkeys(before, NO)
    await member.look(others, [*before, *behind], holders)
    # one copy lacks, and whoever stands before us lacks it, too
    assert member.names() == ([] if before else ["snapshot_copied"])


async def test_it_tells_where_the_newest_states_are_and_what_comes(
    others: ChainMaker, ours: ChainMaker
) -> None:
    """Whoever holds one and is among the first in line counts who else does."""
    newest, before = await vertex_at(ours, 6), await vertex_at(ours, 4)
    holders = in_line(newest.vertex_id, OTHERS)[: COPIES - 1]
    member = Member(ours)
    await member.look(others, OTHERS, dict.fromkeys(holders, YES))
    assert member.names() == []
    assert len(member.asked_about(newest)) == COPIES - 1  # it is enough
    assert len(member.asked_about(before)) == len(OTHERS)
    assert member.replication.told()["wanted"] == COPIES
    assert member.states() == [
        {"height": height, "here": True, "coming": False, "copies": COPIES} for height in (6, 4)
    ]
    await lose(ours, 6)
    _, behind = line_of(newest)
    await member.look(others, behind[:1], dict.fromkeys(behind[:1], YES))
    assert member.told_while_coming[0] == {
        "height": 6,
        "here": False,
        "coming": True,
        "copies": 1,
    }
    assert member.states()[0] == {"height": 6, "here": True, "coming": False, "copies": 2}


async def test_in_a_crowd_the_first_in_line_alone_count(
    others: ChainMaker, ours: ChainMaker
) -> None:
    """So few are asked, and by few, however many members hold a state."""
    crowd = [NodeId(bytes([n, n]) * 16) for n in range(1, 256)]
    newest = await vertex_at(ours, 6)
    assert ME not in in_line(newest.vertex_id, [*crowd, ME])[:IN_LINE_MAX]
    member = Member(ours)
    await member.look(others, crowd, {})
    assert member.asked_about(newest) == []
    assert member.states()[0] == {"height": 6, "here": True, "coming": False, "copies": None}


async def test_a_state_with_a_hole_is_none_and_is_filled(
    others: ChainMaker, ours: ChainMaker
) -> None:
    vertex = await vertex_at(ours, 6)
    manifests = await ours.chain.snapshot(vertex)
    assert manifests is not None
    await ours.store.delete_record("chunks", manifests[0].digests[0].hex())
    member = Member(ours)
    asked = canonical.encode([vertex.vertex_id])
    await member.look(others, [], {})  # alone in line: it is ours
    assert member.names() == ["snapshot_copied"]
    assert await is_whole(ours.chain, manifests)
    assert decode_held(await member.replication.answer(asked))


async def test_what_has_no_room_or_cannot_be_had_is_told_of(
    others: ChainMaker, ours: ChainMaker
) -> None:
    await lose(ours, 6)
    tight = Member(ours, Retention(bytes_max=100))
    await tight.look(others, [], {})
    (told,) = [event for event in tight.told if event["name"] == "copies_lack"]
    assert "bytes_max" in told["why"]
    member = Member(ours)
    await member.look(ours, [], {}, times=2)  # who is asked has lost it, too
    assert member.names() == ["copies_lack"]  # once


async def test_what_our_own_policy_lets_go_of_is_not_fetched(
    others: ChainMaker, ours: ChainMaker
) -> None:
    await lose(ours, 4)
    for retention in (Retention(vertices_restorable=2), Retention(bytes_max=10**12)):
        member = Member(ours, retention)
        await member.look(others, [], {})
        assert member.names() == []
    member = Member(ours)
    await member.look(others, [], {})
    assert member.names() == ["snapshot_copied"]


async def test_a_false_answer_is_blamed_and_counts_as_no_copy(
    others: ChainMaker, ours: ChainMaker
) -> None:
    await lose(ours, 6)
    _, behind = line_of(await vertex_at(ours, 6))
    member = Member(ours)
    await member.look(others, behind[:1], {behind[0]: canonical.encode([1, 2])})
    assert {*member.faults} == {(behind[0], "malformed")}
    assert "snapshot_copied" in member.names()


async def test_whoever_stands_before_us_and_fetches_nothing_is_waited_for_once(
    others: ChainMaker, ours: ChainMaker
) -> None:
    """It may have no room, want no copies, or lie."""
    await lose(ours, 6)
    before = [NodeId(bytes([n]) * 32) for n in range(1, 100)]
    line = in_line((await vertex_at(ours, 6)).vertex_id, [*before, ME])
    before = line[: line.index(ME)][-COPIES:]
    assert len(before) == COPIES
    member = Member(ours)
    await member.look(others, before, dict.fromkeys(before, NO))
    assert member.names() == []
    member = Member(ours)
    await member.look(others, before, dict.fromkeys(before, NO), times=2)
    assert member.names() == ["snapshot_copied"]


async def test_a_copy_stands_where_what_a_policy_keeps_stands(
    others: ChainMaker, ours: ChainMaker
) -> None:
    """The state below the oldest vertex that is kept is kept, too."""
    await lose(ours, 6)
    member = Member(ours, Retention(vertices_restorable=1))
    await member.look(others, [], {})
    assert member.names() == ["snapshot_copied"]


async def test_a_state_with_a_damaged_manifest_is_none_and_comes_anew(
    others: ChainMaker, ours: ChainMaker
) -> None:
    vertex = await vertex_at(ours, 6)
    await ours.store.put_record("manifests", vertex.model_root.hex(), b"rot")
    member = Member(ours)
    await member.look(others, [], {})
    assert member.names() == ["snapshot_copied"]
    assert verify_chain(ours.chain_directory, FACTS).problems == []


async def test_an_answer_reads_no_manifest(others: ChainMaker, ours: ChainMaker) -> None:
    """Those of a large model take long, and any member may ask again and again."""
    member = Member(ours)
    await member.look(others, [], {})
    record, read = ours.store.get_record, list[str]()

    async def noting(kind: str, name: str) -> bytes | None:
        read.append(kind)
        return await record(kind, name)

    ours.store.get_record = noting  # type: ignore[method-assign]
    for height, held in ((6, True), (5, False)):
        asked = canonical.encode([(await vertex_at(ours, height)).vertex_id])
        assert decode_held(await member.replication.answer(asked)) is held
    assert set(read) == {"vertices"}


async def test_what_came_for_nobody_any_more_goes(others: ChainMaker, ours: ChainMaker) -> None:
    """A state of which one half came may be out of date before the other one comes."""
    old = await vertex_at(ours, 2)
    manifests = await others.chain.snapshot(old)
    assert manifests is not None
    payload = await ours.work.view_blob("states", old.model_root)
    await put_blob(ours.work, "copying", manifests[0], bytes(payload))
    await Member(ours).look(others, [], {})
    assert await ours.work.blob_roots("copying") == []


@pytest.mark.parametrize("body", [b"", b"x", canonical.encode([]), canonical.encode([b"short"])])
def test_what_asks_for_no_vertices_is_refused(body: bytes) -> None:
    with pytest.raises(PeerFault, match="malformed"):
        asked_vertices(body)
