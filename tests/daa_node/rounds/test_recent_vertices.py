"""What a drawing is told of the newest vertices: it is bounded, and says what each has said."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

from daa_dag.checkpoint import Vertex
from daa_dag.ids import NodeId, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.observability.events import EventLog
from daa_node.rounds.history import History
from daa_node.rounds.recent_vertices import (
    NAMES_TOLD_MAX,
    NODES_TOLD_MAX,
    VERTICES_KEPT,
    RecentVertices,
)
from daa_node.seams import Trainer
from tests.daa_node.rounds.test_end import with_losses
from tests.daa_node.rounds.test_plan import ALICE, BOB, CAROL, PARENT, contributor

NOBODY = NodeId(bytes(32))


def recent(*vertices: Vertex) -> RecentVertices:
    found = RecentVertices()
    for height, vertex in enumerate(vertices, 1):
        found.add(replace(vertex, height=height))
    return found


def crowd(count: int) -> list[NodeId]:
    return sorted(NodeId(number.to_bytes(32, "big")) for number in range(1, count + 1))


def of_crowd(names: list[NodeId], losses: list[int]) -> Vertex:
    facts = [
        replace(contributor(name, 1), base_loss_micronats=loss)
        for name, loss in zip(names, losses, strict=True)
    ]
    return replace(PARENT, contributors=tuple(facts))


def test_losses_are_of_the_vertex_below_with_the_least_the_median_and_the_greatest() -> None:
    told = recent(with_losses(2_500_000, 2_510_000, 9_000_000)).losses_told(BOB)
    assert told["heights"] == [0]
    assert (told["least_nats"], told["median_nats"], told["greatest_nats"]) == (
        [2.5],
        [2.51],
        [9.0],
    )
    assert [(row["node_id"], row["mine"]) for row in told["nodes"]] == [
        (BOB.hex(), True),
        (ALICE.hex(), False),
        (CAROL.hex(), False),
    ]
    assert told["nodes"][0]["losses_nats"] == [2.51]


def test_who_could_not_measure_and_who_was_not_there_leave_a_gap() -> None:
    told = recent(with_losses(2_000_000, 0, 2_200_000), with_losses(1_900_000)).losses_told(NOBODY)
    rows = {row["node_id"]: row["losses_nats"] for row in told["nodes"]}
    assert rows == {ALICE.hex(): [2.0, 1.9], CAROL.hex(): [2.2, None]}
    assert (told["contributors"], told["measured"]) == ([3, 1], [2, 1])


def test_the_first_of_all_stands_on_nothing_that_could_be_measured() -> None:
    found = RecentVertices()
    for height in (0, 1):
        found.add(replace(with_losses(2_000_000), height=height))
    assert [row["height"] for row in found.graph_told()["vertices"]] == [0, 1]
    assert found.losses_told(NOBODY)["heights"] == [0]


def test_of_those_who_count_nothing_most_may_lie_and_none_is_heard() -> None:
    honest, *liars = with_losses(2_000_000, 9_000_000, 9_000_001).contributors
    voided = (replace(liar, weight=0) for liar in liars)
    told = recent(replace(PARENT, contributors=(honest, *voided))).losses_told(NOBODY)
    assert (told["median_nats"], told["greatest_nats"], told["measured"]) == ([2.0], [2.0], [1])
    assert [row["node_id"] for row in told["nodes"]] == [ALICE.hex()]


def test_of_a_round_that_nobody_measured_nothing_is_told() -> None:
    told = recent(with_losses(0, 0)).losses_told(ALICE)
    assert told["median_nats"] == told["least_nats"] == told["greatest_nats"] == [None]
    assert told["nodes"] == []


def test_of_a_thousand_the_farthest_are_told_and_this_node_and_the_answer_stays_small() -> None:
    names = crowd(1_000)
    losses = [2_000_000 + number % 3 for number in range(1_000)]
    losses[500], losses[700] = 2_900_000, 1
    found = recent(*(of_crowd(names, losses) for _ in range(VERTICES_KEPT + 5)))
    told = found.losses_told(names[900])
    rows = [row["node_id"] for row in told["nodes"]]
    assert len(rows) == NODES_TOLD_MAX
    assert rows[0] == names[900].hex()
    assert {names[500].hex(), names[700].hex()} < set(rows)
    assert rows[1:] == sorted(rows[1:])
    assert told["nodes_in_all"] == 1_000
    assert len(told["heights"]) == VERTICES_KEPT
    assert len(json.dumps(told)) + len(json.dumps(found.graph_told())) < 60_000


def test_the_graph_tells_what_each_stands_on_and_who_is_newly_convicted() -> None:
    first = with_losses(2_000_000, 2_000_000)
    voided = replace(first.contributors[1], weight=0)
    second = replace(
        first, parents=(first.vertex_id,), contributors=(first.contributors[0], voided)
    )
    third = replace(second, parents=(second.vertex_id, first.vertex_id), excluded=(BOB,))
    told = recent(first, second, third, replace(third, rule="mean")).graph_told()["vertices"]
    assert [row["height"] for row in told] == [1, 2, 3, 4]
    assert [row["voided"] for row in told] == [0, 1, 1, 1]
    assert told[2]["parents"] == [second.vertex_id.hex(), first.vertex_id.hex()]
    assert [row["newly_convicted"] for row in told] == [[], [], [BOB.hex()], []]


def test_of_a_crowd_that_is_convicted_at_once_a_few_are_named() -> None:
    names = crowd(NAMES_TOLD_MAX + 9)
    vertex = with_losses(2_000_000)
    (_, told) = recent(vertex, replace(vertex, excluded=tuple(names))).graph_told()["vertices"]
    assert told["newly_convicted"] == [name.hex() for name in names[:NAMES_TOLD_MAX]]


def test_what_was_convicted_before_the_oldest_that_is_kept_is_no_news() -> None:
    vertex = replace(with_losses(2_000_000), excluded=(BOB,))
    told = recent(*[vertex] * (VERTICES_KEPT + 1)).graph_told()["vertices"]
    assert [row["newly_convicted"] for row in told] == [[]] * VERTICES_KEPT


def test_of_many_who_are_convicted_at_once_a_few_are_named() -> None:
    vertex = with_losses(2_000_000)
    told = recent(vertex, replace(vertex, excluded=tuple(crowd(100)))).graph_told()["vertices"]
    assert len(told[1]["newly_convicted"]) == NAMES_TOLD_MAX


class Chain:
    """A store of a few vertices, each above the one before."""

    def __init__(self, *vertices: Vertex) -> None:
        self._vertices = {vertex.vertex_id: vertex for vertex in vertices}
        self.heights = self

    def __len__(self) -> int:
        return len(self._vertices)

    async def ids(self, begin: int) -> AsyncIterator[VertexId]:
        for vertex_id in list(self._vertices)[begin:]:
            yield vertex_id

    async def vertex(self, vertex_id: VertexId) -> Vertex | None:
        return self._vertices.get(vertex_id)

    async def exec_certificate(self, _vertex_id: VertexId) -> None:
        return None


async def test_after_a_gap_was_crossed_each_vertex_stands_there_once() -> None:
    vertices = [replace(with_losses(2_000_000), height=height) for height in range(1, 4)]
    chain = cast(ChainStore, Chain(*vertices))
    history = History(chain, cast(Trainer, None), EventLog(lambda: 0))
    history.add(vertices[0], None)
    await history.recall_anew(vertices[2])
    assert [one["height"] for one in history.recent.graph_told()["vertices"]] == [1, 2, 3]
    assert [record.height for record in history.records] == [1, 2, 3]


def test_nothing_is_told_of_no_vertex() -> None:
    assert RecentVertices().graph_told() == {"vertices": []}
    assert RecentVertices().losses_told(ALICE)["heights"] == []
