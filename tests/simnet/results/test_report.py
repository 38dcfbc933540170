"""The page tells of every node, fault and broken invariant; a diff finds where two runs part."""

import json
import re
from pathlib import Path

import pytest

from daa_node.errors import UserError
from simnet.checks.outcome import (
    OUTCOME_FILE,
    ROUTERS,
    SCENARIO_FILE,
    TRACE_FILE,
    Invariant,
    Mark,
    Outcome,
)
from simnet.results.report import LANES_MAX, MARKS_A_LANE_MAX, first_difference, make_report
from simnet.world.determinism import BROKEN, DOWN, FAULT, FINAL, LIAR, ROUND, UP, VIEW, VOTE, Trace
from simnet.world.links import NS
from simnet.world.scenario import FaultConfig, Scenario
from simnet.world.scenario_file import as_text, open_scenario

SCENARIO = Scenario(
    name="two-halves",
    why="<what> & why",
    faults=(FaultConfig(kind="partition", at_s=2.0, for_s=3.0, nodes=(0, 1)),),
)
PASSAGE = {
    "node": 2,
    "nat": "symmetric",
    "passage": "relayed",
    "relays": 1,
    "relayed_with": [0, 3],
    "punched_with": [1],
}


def keep(folder: Path, nodes: int = 4, view: int = 7) -> Path:
    """A run as `simnet run --out` leaves it."""
    folder.mkdir()
    with (folder / TRACE_FILE).open("w") as file:
        trace = Trace(file)
        trace.note(0, LIAR, node=1, kind="equivocator")
        for node in range(nodes):
            trace.note(NS, VIEW, node=node, view=view)
            trace.note(NS, VOTE, node=node, view=view, kind="nullify")
        trace.note(2 * NS, FAULT, kind="partition", begins=True, nodes=[0, 1], detail="halves")
        trace.note(3 * NS, DOWN, node=nodes - 1)
        trace.note(4 * NS, UP, node=nodes - 1)
        trace.note(5 * NS, FAULT, kind="partition", begins=False, nodes=[0, 1], detail="halves")
        trace.note(6 * NS, FINAL, node=2, view=view, height=1, payload="abort")
        trace.note(13 * NS // 2, BROKEN, name="progress", detail="nothing final for 9 s")
        trace.note(7 * NS, ROUND, node=2, height=1, vertex="ab" * 32, loss_nats=2.5, contributors=3)
    outcome = Outcome(
        scenario=SCENARIO.name,
        seed=3,
        fidelity="light",
        nodes=nodes,
        virtual_s=7.0,
        wall_s=0.1,
        cpu_s=0.1,
        trace_hash=trace.digest(),
        final_roots=("cd" * 32,),
        invariants=(
            Invariant("one chain", True),
            Invariant("progress", False, "nothing final for 9 s"),
        ),
        sometimes=(Mark("view-nullified", 4),),
        facts={"participation": {"node": 0.75}, ROUTERS: [PASSAGE]},
    )
    (folder / OUTCOME_FILE).write_text(json.dumps(outcome.as_json()))
    (folder / SCENARIO_FILE).write_text(as_text(SCENARIO))
    return folder


def test_the_page_says_how_a_node_behind_a_router_got_through(tmp_path: Path) -> None:
    row = "<td>2</td><td>symmetric</td><td>relayed</td><td>1</td><td>0, 3</td><td>1</td>"
    assert row in make_report(keep(tmp_path / "run"))


def test_the_page_shows_every_lane_fault_and_broken_invariant(tmp_path: Path) -> None:
    page = make_report(keep(tmp_path / "run"))
    assert [f"node {n}</text>" in page for n in range(5)] == [True] * 4 + [False]
    assert page.count("class=fault ") == 2  # nodes 0 and 1
    assert page.count("node 1</text><text class=liar x=4") == page.count("equivocator") == 1
    assert page.count("down from 3.000 s") == 1
    assert "final abort, height 1, 6.000 s" in page
    assert page.count("nullify, view 7") == 4
    assert "BROKEN at 6.500 s" in page
    assert page.count("nothing final for 9 s") == 2  # in the table, and where it lies in time
    assert "held until then" in page
    assert "<td>2.000</td><td>5.000</td><td>partition halves</td><td>0, 1</td>" in page
    assert "view-nullified 4" in page
    assert "<td>1</td><td>7.000</td><td>7.000</td><td>1</td><td>3</td><td>abababababababab" in page
    assert "simnet run" in page
    assert "--seed 3" in page


def test_of_too_many_marks_the_newest_are_shown(tmp_path: Path) -> None:
    folder = keep(tmp_path / "run")
    with (folder / TRACE_FILE).open("a") as file:
        trace = Trace(file)
        for view in range(10, 10 + MARKS_A_LANE_MAX):
            trace.note(8 * NS + view, VIEW, node=0, view=view)
    page = make_report(folder)
    assert f"<title>view {9 + MARKS_A_LANE_MAX}</title>" in page
    assert page.count("<title>view 7</title>") == 3  # of the other nodes
    assert "1 marks were too many for their lanes: the oldest are left out" in page


def test_a_fault_lies_where_it_happened(tmp_path: Path) -> None:
    page = make_report(keep(tmp_path / "run"))
    band = re.search(r"class=fault x=([\d.]+) width=([\d.]+)", page)
    assert band is not None
    x, width = map(float, band.groups())
    assert x == pytest.approx(90 + 1000 * 2 / 7, abs=0.1)
    assert width == pytest.approx(1000 * 3 / 7, abs=0.1)


def test_what_a_scenario_says_is_text_and_never_markup(tmp_path: Path) -> None:
    assert "&lt;what&gt; &amp; why" in make_report(keep(tmp_path / "run"))


def test_a_thousand_nodes_get_as_many_lanes_as_a_screen_holds(tmp_path: Path) -> None:
    page = make_report(keep(tmp_path / "run", nodes=1000))
    assert page.count("</text><rect") == LANES_MAX
    assert f"{1000 - LANES_MAX} nodes have no lane" in page


def test_a_diff_names_the_first_event_that_differs(tmp_path: Path) -> None:
    one, same = keep(tmp_path / "one"), keep(tmp_path / "same")
    assert first_difference(one, same) is None
    other = first_difference(one, keep(tmp_path / "other", view=8))
    assert other is not None
    assert "\n- 2: " in other
    with (same / TRACE_FILE).open("a") as file:
        file.write("{}\n")
    told = first_difference(one, same)
    assert told is not None
    assert f"only {same} goes on" in told


def test_a_diff_tells_of_messages_that_differ_between_equal_events(tmp_path: Path) -> None:
    one, other = keep(tmp_path / "one"), keep(tmp_path / "other")
    outcome = json.loads((other / OUTCOME_FILE).read_text())
    (other / OUTCOME_FILE).write_text(json.dumps({**outcome, "trace_hash": "of other messages"}))
    told = first_difference(one, other)
    assert told is not None
    assert "events are equal, messages are not" in told
    assert "of other messages" in told


def test_a_folder_without_a_run_is_told_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="make it with `simnet run SCENARIO --out"):
        make_report(tmp_path)


def test_a_scenario_that_was_run_is_written_so_that_it_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "again.yaml"
    path.write_text(as_text(SCENARIO))
    assert open_scenario(str(path)) == SCENARIO
