"""Real daemons behind real boxes: all take part, each by the best way that its router allows."""

import json
from pathlib import Path

import pytest

from simnet.checks.outcome import OUTCOME_FILE, ROUTERS
from simnet.nodes.processes.backends import examine
from simnet.results.run import run
from simnet.results.run_story import story_of
from simnet.world.scenario_file import open_scenario


@pytest.mark.long
@pytest.mark.usefixtures("warm_programs")
def test_nodes_behind_each_kind_of_router_take_part_and_reach_each_other(tmp_path: Path) -> None:
    tun = next(backend for backend in examine().backends if backend.boxes)
    if not tun.ok:
        pytest.skip(f"{tun.name}: {tun.why}")
    outcome = run(open_scenario("routers"), tmp_path)
    assert outcome.ok, outcome.invariants
    rows = {row["node"]: row for row in outcome.facts[ROUTERS]}
    assert {node: (row["nat"], row["passage"]) for node, row in rows.items()} == {
        3: ("cone", "punched"),
        4: ("cone", "punched"),
        5: ("cone", "punched"),
        6: ("symmetric", "relayed"),
        7: ("symmetric", "relayed"),
        8: ("cgnat", "punched"),
        9: ("upnp", "direct"),
    }
    assert all(row["rounds"] for row in rows.values()), rows  # each is in a certified set
    # with some of the homes of its kind; with none whose router is symmetric
    assert set(rows[3]["punched_with"]) & {4, 5, 8}
    assert {6, 7} <= set(rows[3]["relayed_with"]) - set(rows[3]["punched_with"])
    assert min(outcome.facts["rounds"]) == max(outcome.facts["rounds"]) > 0
    assert json.loads((tmp_path / OUTCOME_FILE).read_text())["facts"][ROUTERS]
    ways = [
        (event["peer"], event["way"])
        for node in (0, 1)
        for log in tmp_path.glob(f"**/node-{node}/events.jsonl*")
        for event in map(json.loads, log.read_text().splitlines())
        if event["name"] == "bulk_opened"
    ]
    dialled_by = {peer for peer, way in ways if way == "dialled_by_peer"}
    assert len(dialled_by) >= 2, ways  # members behind routers open the sockets themselves
    told = {(row["nat"], row["passage"]) for row in story_of(tmp_path)["routers"]}
    assert told >= {("symmetric", "relayed"), ("cone", "punched"), ("upnp", "direct")}
