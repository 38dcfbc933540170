"""The graph answers alike whatever the order in which it learned of the vertices."""

import random
from dataclasses import replace

import pytest

from daa_dag.checkpoint import Vertex
from daa_dag.errors import Malformed
from daa_dag.graph import CheckpointGraph, graph_of
from daa_dag.ids import BlobRoot, BlockId, ValidatorSetRoot, VertexId


def vertex(label: str, *parents: Vertex) -> Vertex:
    return Vertex(
        parents=tuple(parent.vertex_id for parent in parents),
        height=max((parent.height + 1 for parent in parents), default=0),
        training_round=0,
        decided_block=BlockId(bytes(32)),
        contributors=(),
        rule="mean",
        f_agg=0,
        delta_root=BlobRoot(bytes(32)),
        model_root=BlobRoot(label.encode().ljust(32)),
        outer_state_root=BlobRoot(bytes(32)),
        ledger_root=bytes(32),
        validator_set_root=ValidatorSetRoot(bytes(32)),
        tokens_total=0,
    )


ROOT = vertex("root")
EAST, WEST = vertex("east", ROOT), vertex("west", ROOT)
EAST_2 = vertex("east 2", EAST)
MERGED = vertex("merged", EAST_2, WEST)
SIDE = vertex("side", WEST)
ALL = [ROOT, EAST, WEST, EAST_2, MERGED, SIDE]


def test_tips_ancestors_and_merge_points_of_a_merged_graph() -> None:
    graph = graph_of(ALL)
    assert graph.tips() == [MERGED.vertex_id, SIDE.vertex_id]
    assert graph.merge_points() == [MERGED.vertex_id]
    assert graph.ancestors(MERGED.vertex_id) == {v.vertex_id for v in (ROOT, EAST, WEST, EAST_2)}
    assert graph.ancestors(ROOT.vertex_id) == set()
    assert graph.at_height(1) == sorted([EAST.vertex_id, WEST.vertex_id])
    assert graph.missing() == []
    assert len(graph) == len(ALL)
    link = graph.link(MERGED.vertex_id)
    assert link is not None
    assert (link.parents, link.height) == (MERGED.parents, 3)


def test_canonical_order_puts_parents_first_and_does_not_depend_on_arrival() -> None:
    for seed in range(50):
        shuffled = ALL[:]
        random.Random(seed).shuffle(shuffled)
        graph = graph_of(shuffled + shuffled[:2])
        order = graph.canonical_order()
        assert order == graph_of(ALL).canonical_order(), f"seed {seed}"
        assert graph.tips() == graph_of(ALL).tips(), f"seed {seed}"
        for v in ALL:
            assert all(order.index(p) < order.index(v.vertex_id) for p in v.parents)


def test_parents_that_are_not_here_are_named() -> None:
    graph = graph_of([EAST_2, MERGED])
    assert graph.missing() == sorted([EAST.vertex_id, WEST.vertex_id])
    assert EAST.vertex_id not in graph
    assert EAST_2.vertex_id in graph
    assert graph.ancestors(MERGED.vertex_id) == {EAST_2.vertex_id}
    assert graph.link(EAST.vertex_id) is None


def test_a_height_that_its_parents_do_not_make_is_refused() -> None:
    graph = CheckpointGraph()
    graph.add(ROOT)
    for height in (2, 7):
        with pytest.raises(Malformed, match="above parents of height 0"):
            graph.add(replace(EAST, height=height))
    graph.add(EAST)
    with pytest.raises(Malformed):
        graph.add(replace(vertex("skew", EAST, ROOT), height=1))


def test_an_empty_graph_has_no_tips() -> None:
    graph = CheckpointGraph()
    assert graph.tips() == graph.canonical_order() == graph.merge_points() == []
    assert VertexId(bytes(32)) not in graph
