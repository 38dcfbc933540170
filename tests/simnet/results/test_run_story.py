"""What a page of a run is told: every lane, fault and broken invariant, and when."""

import json
import shlex
from pathlib import Path

from simnet.checks.outcome import OUTCOME_FILE, SCENARIO_FILE, TRACE_FILE
from simnet.results.run_story import (
    BROKEN_MAX,
    FAULTS_MAX,
    LANES_MAX,
    MARKS_A_LANE_MAX,
    NODES_MAX,
    ROUNDS_MAX,
    story_of,
)
from simnet.world.determinism import BROKEN, DOWN, FAULT, LIAR, ROUND, VIEW, Trace
from simnet.world.links import NS
from tests.simnet.results.kept_run import keep


def test_every_lane_fault_and_broken_invariant_is_told(tmp_path: Path) -> None:
    story = story_of(keep(tmp_path / "run"))
    assert story["scenario"] == "two-halves"
    assert not story["ok"]
    lanes = story["lanes"]
    assert [lane["node"] for lane in lanes] == [0, 1, 2, 3]
    assert [lane["liar"] for lane in lanes] == [None, "equivocator", None, None]
    assert all(lane["views"] == {"at": [1000], "view": [7]} for lane in lanes)
    assert all(lane["votes"] == {"at": [1000], "view": [7], "kind": ["nullify"]} for lane in lanes)
    assert lanes[2]["finals"] == {"at": [6000], "height": [1], "payload": ["abort"]}
    assert lanes[2]["losses"] == {"at": [7000], "height": [1], "nats": [2.5]}
    assert [lane["downs"] for lane in lanes] == [[], [], [], [(3000, 4000)]]
    assert story["faults"] == [
        {"fromMs": 2000, "toMs": 5000, "kind": "partition", "detail": "halves", "nodes": [0, 1]}
    ]
    assert story["broken"] == [
        {"atMs": 6500, "name": "progress", "detail": "nothing final for 9 s"}
    ]
    assert story["endMs"] == 7000


def test_what_broke_comes_first_and_when_and_the_rest_held_until_then(tmp_path: Path) -> None:
    first, second = story_of(keep(tmp_path / "run"))["invariants"]
    assert (first["name"], first["verdict"]) == ("progress", "BROKEN at 6.500 s")
    assert first["detail"] == "nothing final for 9 s"
    assert (second["name"], second["verdict"]) == ("one chain", "held until then")


def test_rounds_figures_and_how_to_run_it_again_are_told(tmp_path: Path) -> None:
    story = story_of(keep(tmp_path / "a run"))
    assert story["rounds"] == [
        {
            "height": 1,
            "firstMs": 7000,
            "lastMs": 7000,
            "nodes": 1,
            "contributors": 3,
            "vertices": ["ab" * 8],
        }
    ]
    assert story["sometimes"] == [{"name": "view-nullified", "hits": 4}]
    assert story["figures"]["roots"] == ["cd" * 32]
    assert ["participation", "0.75"] in story["measured"]
    assert story["again"].startswith(f"simnet run '{tmp_path}/a run/scenario.yaml' ")
    assert story["again"].endswith(" --seed 3 --fidelity light")
    assert "<what> & why" in story["file"]


def test_a_round_is_told_with_all_who_published_it_and_with_each_vertex(tmp_path: Path) -> None:
    folder = keep(tmp_path / "run")
    with (folder / TRACE_FILE).open("a") as file:
        trace = Trace(file)
        for node, vertex in ((0, "ab"), (3, "ef")):
            fork = {"height": 1, "vertex": vertex * 32, "loss_nats": 2.0, "contributors": 3}
            trace.note((8 + node) * NS, ROUND, node=node, **fork)
    (row,) = story_of(folder)["rounds"]
    assert (row["firstMs"], row["lastMs"], row["nodes"]) == (7000, 11_000, 3)
    assert row["vertices"] == ["ab" * 8, "ef" * 8]


def test_what_never_heals_lasts_to_the_end_and_of_two_alike_the_first_heals_first(
    tmp_path: Path,
) -> None:
    folder = keep(tmp_path / "run")
    again = {"kind": "kill", "nodes": [0], "detail": ""}
    with (folder / TRACE_FILE).open("a") as file:
        trace = Trace(file)
        for at_s, begins in ((8, True), (9, True), (10, False)):
            trace.note(at_s * NS, FAULT, begins=begins, **again)
        trace.note(11 * NS, DOWN, node=3)
        trace.note(12 * NS, VIEW, node=0, view=9)
    story = story_of(folder)
    spans = [(fault["fromMs"], fault["toMs"]) for fault in story["faults"]]
    assert spans == [(2000, 5000), (8000, 10_000), (9000, 12_000)]
    assert story["lanes"][3]["downs"] == [(3000, 4000), (11_000, 12_000)]


def test_what_breaks_again_and_again_is_told_so_often_with_when_it_first_did(
    tmp_path: Path,
) -> None:
    folder = keep(tmp_path / "run")
    with (folder / TRACE_FILE).open("a") as file:
        trace = Trace(file)
        for at_s in range(8, 8 + BROKEN_MAX):
            trace.note(at_s * NS, BROKEN, name="progress", detail="again")
        for node in range(FAULTS_MAX):
            trace.note(9 * NS, FAULT, kind="kill", begins=True, nodes=[node], detail="")
    story = story_of(folder)
    assert story["invariants"][0]["verdict"] == "BROKEN at 6.500 s"
    assert len(story["broken"]) == BROKEN_MAX
    assert (len(story["faults"]), story["faultsLeftOut"]) == (FAULTS_MAX, 1)


def test_a_node_behind_a_router_is_told_of_with_its_way_through(tmp_path: Path) -> None:
    (row,) = story_of(keep(tmp_path / "run"))["routers"]
    assert row == {
        "node": 2,
        "nat": "symmetric",
        "passage": "relayed",
        "rounds": 5,
        "relays": 1,
        "relayedWith": [0, 3],
        "punchedWith": [1],
    }


def test_the_row_of_a_node_has_its_lane_in_numbers(tmp_path: Path) -> None:
    rows = story_of(keep(tmp_path / "run"))["nodes"]
    assert rows[1]["liar"] == "equivocator"
    assert [row["faults"] for row in rows] == [1, 1, 0, 0]
    assert [row["downMs"] for row in rows] == [0, 0, 0, 1000]
    assert (rows[2]["finals"], rows[2]["rounds"], rows[2]["lossNats"]) == (1, 1, 2.5)
    assert (rows[0]["nullified"], rows[0]["lossNats"]) == (1, None)


def test_of_too_many_marks_the_newest_are_told(tmp_path: Path) -> None:
    folder = keep(tmp_path / "run")
    with (folder / TRACE_FILE).open("a") as file:
        trace = Trace(file)
        for view in range(10, 10 + MARKS_A_LANE_MAX):
            trace.note(8 * NS + view, VIEW, node=0, view=view)
    story = story_of(folder)
    views = [lane["views"]["view"] for lane in story["lanes"]]
    assert views[0][-1] == 9 + MARKS_A_LANE_MAX
    assert [7 in view for view in views] == [False, True, True, True]
    assert story["marksLeftOut"] == 1


def test_of_thousands_of_nodes_those_that_something_befell_have_lanes(tmp_path: Path) -> None:
    folder, last = keep(tmp_path / "run", nodes=NODES_MAX + 100), NODES_MAX + 99
    with (folder / TRACE_FILE).open("a") as file:
        trace = Trace(file)
        trace.note(0, LIAR, node=last - 5, kind="equivocator")
        trace.note(8 * NS, FAULT, kind="kill", begins=True, nodes=[last], detail="")
    story = story_of(folder)
    assert len(story["lanes"]) == LANES_MAX
    assert [story["lanes"][at]["node"] for at in (0, 1, -2, -1)] == [0, 1, last - 5, last]
    assert story["lanesLeftOut"] == NODES_MAX + 100 - LANES_MAX
    assert len(story["nodes"]) == NODES_MAX
    assert story["nodesLeftOut"] == 100


def test_of_too_many_rounds_the_newest_are_told(tmp_path: Path) -> None:
    folder = keep(tmp_path / "run")
    with (folder / TRACE_FILE).open("a") as file:
        trace = Trace(file)
        for height in range(2, ROUNDS_MAX + 3):
            trace.note(
                8 * NS, ROUND, node=2, height=height, vertex="", loss_nats=2.0, contributors=1
            )
    story = story_of(folder)
    assert [row["height"] for row in story["rounds"]] == [*range(3, ROUNDS_MAX + 3)]
    assert story["roundsLeftOut"] == 2


def test_a_loss_that_is_no_number_is_none(tmp_path: Path) -> None:
    folder = keep(tmp_path / "run")
    with (folder / TRACE_FILE).open("a") as file:
        Trace(file).note(
            8 * NS, ROUND, node=2, height=2, vertex="", loss_nats=float("nan"), contributors=1
        )
    story = story_of(folder)
    assert story["lanes"][2]["losses"]["nats"] == [2.5]
    assert [row["height"] for row in story["rounds"]] == [1, 2]


def test_the_command_that_runs_it_again_is_one_command_whatever_the_files_say(
    tmp_path: Path,
) -> None:
    folder = keep(tmp_path / "a run; of mine")
    told = json.loads((folder / OUTCOME_FILE).read_text())
    evil = "light; $(touch here)"
    (folder / OUTCOME_FILE).write_text(json.dumps(told | {"fidelity": evil}))
    words = shlex.split(story_of(folder)["again"])
    path = str(folder / SCENARIO_FILE)
    assert words == ["simnet", "run", path, "--seed", "3", "--fidelity", evil]
