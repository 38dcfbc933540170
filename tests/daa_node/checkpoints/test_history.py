"""How the DAG is drawn: lanes that part and join, short ids, losses; and the picture of it."""

from collections.abc import Sequence
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from daa_dag.checkpoint import ZERO_ID, Contributor, Vertex
from daa_dag.graph import graph_of
from daa_dag.ids import BlobRoot, BlockId, ContributionRoot, NodeId, ValidatorSetRoot
from daa_node.checkpoints.history import abbreviations, authors_of, drawn, graph_lines, losses_of
from daa_node.checkpoints.listing import VertexRow
from daa_node.checkpoints.picture import Caption, picture

SVG = "{http://www.w3.org/2000/svg}"


def vertex(height: int, rule: str, *parents: Vertex, losses: Sequence[int] = ()) -> Vertex:
    contributors = tuple(
        Contributor(NodeId(bytes([at]) * 32), ContributionRoot(ZERO_ID), 1, 1, 1, 1, 1, loss)
        for at, loss in enumerate(losses)
    )
    return Vertex(
        parents=tuple(parent.vertex_id for parent in parents),
        height=height,
        training_round=height,
        decided_block=BlockId(ZERO_ID),
        contributors=contributors,
        rule=rule,
        f_agg=0,
        delta_root=BlobRoot(ZERO_ID),
        model_root=BlobRoot(ZERO_ID),
        outer_state_root=BlobRoot(ZERO_ID),
        ledger_root=ZERO_ID,
        validator_set_root=ValidatorSetRoot(ZERO_ID),
        tokens_total=0,
    )


def rows_of(*vertices: Vertex) -> list[VertexRow]:
    """Newest first."""
    order = graph_of(vertices).canonical_order()
    by_id = {one.vertex_id: one for one in vertices}
    return [VertexRow(name, by_id[name], (), False, False, False) for name in reversed(order)]


def lines(*vertices: Vertex) -> str:
    rows = rows_of(*vertices)
    return "\n".join(graph_lines(drawn(rows), [row.vertex.rule for row in rows]))


ROOT = vertex(0, "root")
LEFT, RIGHT = sorted((vertex(1, "one", ROOT), vertex(1, "two", ROOT)), key=lambda v: v.vertex_id)
MERGE = vertex(2, "merge", RIGHT, LEFT)


def test_a_chain_is_one_lane() -> None:
    assert lines(ROOT, LEFT) == f"*  {LEFT.rule}\n*  root"


def test_branches_part_and_join() -> None:
    expected = ["*  merge", "|\\", f"* |  {RIGHT.rule}", f"| *  {LEFT.rule}", "|/", "*  root"]
    assert lines(ROOT, LEFT, RIGHT, MERGE).splitlines() == expected


def test_three_that_stand_on_one_run_into_it_one_after_another() -> None:
    tops = [vertex(1, f"top {number}", ROOT) for number in range(3)]
    drawn_lines = lines(ROOT, *tops).splitlines()
    assert [line.partition("  ")[0] for line in drawn_lines] == [
        "*",
        "| *",
        "| | *",
        "|_|/",
        "|/",
        "*",
    ]


def test_a_root_of_its_own_ends_its_lane() -> None:
    other = vertex(0, "elsewhere")
    top, below = vertex(1, "top", ROOT), vertex(1, "beside", other)
    drawn_lines = lines(ROOT, other, top, below).splitlines()
    assert sum("*" in line for line in drawn_lines) == 4
    assert {line.index("*") for line in drawn_lines if "*" in line} == {0, 2}


def test_what_is_cut_off_below_ends_without_a_line_to_it() -> None:
    rows = rows_of(ROOT, LEFT, RIGHT, MERGE)[:3]
    assert list(graph_lines(drawn(rows), ["a", "b", "c"])) == [
        "*  a",
        "|\\",
        "* |  b",
        " /",
        "*  c",
    ]


def test_an_abbreviation_is_of_one_id_alone_and_no_shorter_than_a_command_takes() -> None:
    ids = [bytes.fromhex(text.ljust(64, "0")) for text in ("aaaaaaaaaa1", "aaaaaaaaaa2", "bb")]
    short = abbreviations(ids)
    assert [short[one] for one in ids] == ["aaaaaaaaaa1", "aaaaaaaaaa2", "bb000000"]
    assert abbreviations([ids[0], ids[0]]) == {ids[0]: "aaaaaaaa"}
    assert abbreviations(ids[:1], ids)[ids[0]] == short[ids[0]]


@pytest.mark.parametrize(
    ("said", "loss"),
    [
        ((3, 1, 2), 2),
        ((1, 2, 3, 4), 2),
        ((7,), 7),
        ((), None),
        ((0, 5, 6), 5),  # who could not measure says nothing
        ((0, 0, 5), None),
    ],
)
def test_the_loss_of_a_vertex_is_what_the_next_step_began_from(
    said: Sequence[int], loss: int | None
) -> None:
    top = vertex(1, "top", ROOT, losses=said)
    expected = {} if loss is None else {ROOT.vertex_id: loss}
    assert losses_of(rows_of(ROOT, top)) == expected


def test_whose_contribution_counts_for_nothing_is_not_heard() -> None:
    top = vertex(1, "top", ROOT, losses=(9, 1, 2))
    first, *others = top.contributors
    without = replace(top, contributors=(replace(first, weight=0), *others))
    (row, _) = rows_of(ROOT, without)
    assert losses_of([row]) == {ROOT.vertex_id: 1}
    assert authors_of(row) == [one.author for one in others]


def drawing(*vertices: Vertex, tags: tuple[str, ...] = ()) -> ElementTree.Element:
    rows = rows_of(*vertices)
    captions = [Caption(row.vertex.rule, "about <it>", tags, True) for row in rows]
    return ElementTree.fromstring(picture("a & b", drawn(rows), captions))


def test_a_picture_has_a_circle_and_a_way_for_all_and_fits_its_frame() -> None:
    root = drawing(ROOT, LEFT, RIGHT, MERGE, tags=("best",))
    assert root.tag == f"{SVG}svg"
    circles = [one for one in root.iter(f"{SVG}circle") if one.get("class") == "vertex"]
    assert len(circles) == 4
    assert len(list(root.iter(f"{SVG}path"))) == 4
    said = [text.text for text in root.iter(f"{SVG}text")]
    assert said[0] == "a & b"
    assert said.count("best") == said.count("about <it>") == 4
    width, height = int(root.get("width", 0)), int(root.get("height", 0))
    for text in root.iter(f"{SVG}text"):
        assert float(text.get("x", 0)) + 7.2 * len(text.text or "") <= width
        assert float(text.get("y", 0)) <= height


def test_a_picture_needs_nothing_from_elsewhere_and_has_two_sets_of_colours() -> None:
    rows = rows_of(ROOT)
    text = picture("t", drawn(rows), [Caption("s", "a", (), False)])
    assert text.count("http") == 1  # the name of the format
    assert "prefers-color-scheme: dark" in text
    assert "href" not in text


def test_a_picture_of_the_newest_alone_leads_on_below() -> None:
    rows = rows_of(ROOT, LEFT)[:1]
    root = ElementTree.fromstring(picture("t", drawn(rows), [Caption("s", "a", (), False)]))
    (way,) = root.iter(f"{SVG}path")
    assert way.get("stroke-dasharray")
