"""A scenario's faults, all kinds of them, and the progress that is demanded afterwards."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import trio

from daa_node.errors import UserError
from simnet.checks.invariants import PROGRESS
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.mishaps import Mishaps
from simnet.nodes.virtual.world import run_script, run_virtual
from simnet.results import run as simnet_run
from simnet.results.run_story import story_of
from simnet.world.determinism import FAULT, VIEW, Trace
from simnet.world.links import NS
from simnet.world.scenario import Scenario


def scenario(faults: list[dict[str, Any]], rounds: int = 6, **changes: Any) -> Scenario:
    fields = {
        "name": "faults",
        "fidelity": "trio",
        "seed": 3,
        "duration_s": 240,
        "nodes": [{"count": 4}],
        "topology": {"preset": "regional"},
        "work": {"kind": "training", "rounds": rounds, "inner_steps_max": 10, "epoch_rounds": 2},
        "faults": faults,
    }
    return Scenario.model_validate({**fields, **changes})


def run(faults: list[dict[str, Any]], **changes: Any) -> Outcome:
    return run_virtual(scenario(faults, **changes), Trace())


def held(outcome: Outcome) -> bool:
    broken = [each for each in outcome.invariants if not each.ok]
    assert not broken
    return outcome.facts["rounds"] == 6 and len(outcome.final_roots) == 1


def at(at_s: float, for_s: float, kind: str, node: int, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "at_s": at_s, "for_s": for_s, "nodes": [node], **more}


@pytest.mark.long
@pytest.mark.parametrize(
    "faults",
    [
        [at(1, 2, "kill", 0), at(2, 2, "kill", 1), at(2.5, 2, "kill", 2), at(2.6, 1, "kill", 3)],
        [at(1, 5, "pause", 0), at(1, 3, "hold", 1), at(4, 3, "slow", 2, factor=20)],
        [at(1, 4, "disk", 0, disk="torn_write"), at(1, 5, "disk", 1, disk="full")],
        [at(1, 4, "disk", 2, disk="lost_fsync"), at(2, 5, "clock", 1, skew_ms=90_000)],
        [
            at(1, 6, "partition", 0, shape="isolate"),
            at(2, 6, "partition", 1, shape="flapping", period_s=1),
            at(3, 9, "loss", 2, percent=30),
        ],
    ],
    ids=["all-killed", "stopped-held-slow", "torn-and-full", "lying-and-skewed", "cut-and-lossy"],
)
def test_the_job_is_done_whatever_failed_on_the_way(faults: list[dict[str, Any]]) -> None:
    assert held(run(faults))


@pytest.mark.long
def test_what_is_aimed_at_the_leader_befalls_who_proposes_in_the_view_of_then() -> None:
    lines = StringIO()
    slow = {"kind": "slow", "aim": "leader", "factor": 2, "for_s": 0.4}
    faults = [slow | {"at_s": 2.2 + k / 2} for k in range(9)]
    assert held(run_virtual(scenario(faults), Trace(lines)))
    events = [json.loads(line) for line in lines.getvalue().splitlines()]
    leaders = {e["view"]: e["node"] for e in events if e.get("kind") == "proposal"}
    view, entered_ns, struck = 1, 0, []
    for event in events:
        if event["what"] == VIEW and event["view"] > view:
            view, entered_ns = event["view"], event["t_ns"]
        elif event["what"] == FAULT and event["begins"]:
            (node,) = event["nodes"]
            struck.append(node)
            is_told = event["t_ns"] - entered_ns > 50e6  # before, only who has entered may know
            assert node in {leaders[view], leaders[view if is_told else view - 1]}
    assert len(struck) == 9
    assert len(set(struck)) > 1, "the aim did not follow the view"


@pytest.mark.long
def test_a_rotten_disk_is_replaced_when_the_daemon_refuses_it() -> None:
    outcome = run([at(0.5, 4, "disk", 2, disk="lost_fsync"), at(5, 2, "kill", 2)])
    assert held(outcome)


@pytest.mark.long
def test_an_observer_follows_to_the_end_without_a_word_of_its_own() -> None:
    """Nobody writes messages to it: it goes by what members tell everybody of their heights."""
    watcher = {"name": "watcher", "count": 1, "role": "observer"}
    outcome = run([], nodes=[{"count": 3}, {"count": 1, "stake": 2, "speed": 0.5}, watcher])
    assert held(outcome)
    assert outcome.facts["done"] == 5
    assert outcome.facts["classes"]["watcher"]["participation"] == 0.0
    assert {mark.name for mark in outcome.sometimes} >= {"caught up", "epoch changed"}


@pytest.mark.long
def test_without_a_quorum_progress_is_missed_and_the_report_shows_it(tmp_path: Path) -> None:
    """A fault that never heals, of more than a third: the check itself must fail."""
    stuck = scenario(
        [at(5, 2, "kill", 1), {"kind": "partition", "at_s": 6, "nodes": [2, 3]}],
        rounds=50,
        duration_s=24,
        checks={"heal_s": 15},
    )
    outcome = simnet_run.run(stuck, tmp_path)
    assert [each.name for each in outcome.invariants if not each.ok] == [PROGRESS]
    story = story_of(tmp_path)
    assert [fault["nodes"] for fault in story["faults"]] == [[1], [2, 3]]
    assert [lane["downs"][0][0] for lane in story["lanes"] if lane["downs"]] == [5000]
    votes = {kind for lane in story["lanes"] for kind in lane["votes"]["kind"]}
    assert votes >= {"proposal", "finalize"}
    finals = {payload for lane in story["lanes"] for payload in lane["finals"]["payload"]}
    assert finals >= {"set", "result"}
    assert (story["invariants"][0]["name"], story["invariants"][0]["holds"]) == (PROGRESS, False)


def test_a_run_without_faults_owes_progress_until_it_ends() -> None:
    outcome = run([], duration_s=1)
    assert [each.name for each in outcome.invariants if not each.ok] == [PROGRESS]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"work": {"kind": "training", "model": "virtual", "tokens_per_step": 10**6}},
            "tokens_per_step",
        ),
        ({"nodes": [{"count": 300}]}, "128 validators"),
    ],
)
def test_what_this_world_cannot_do_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        run([], **changes)


@pytest.mark.long
def test_a_node_is_back_when_the_last_of_its_faults_has_healed() -> None:
    skew = {"skew_ms": 90_000, "drift_ppm": 1000}
    faults = [
        *(at(2, 8, "kill", 1), at(3, 1, "kill", 1)),
        *(at(2, 8, "pause", 2), at(3, 1, "pause", 2)),
        *(at(2, 8, "clock", 3, **skew), at(3, 1, "clock", 3, **skew)),
    ]
    skews_s = []

    async def script(cluster: Cluster) -> None:
        cluster.start()
        right, wrong = (cluster.machines[node].clock for node in (0, 3))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Mishaps(cluster).run)
            for moment_s in (1, 2.5, 3.5, 7, 11):
                await trio.sleep_until(moment_s)
                skews_s.append((wrong.wall_ns() - right.wall_ns()) / NS)
        assert await cluster.until_done(100)

    lines = StringIO()
    outcome = run_script(scenario(faults, duration_s=120), Trace(lines), script)
    assert held(outcome)
    assert skews_s == pytest.approx([0, 90.0005, 180.002, 90.005, 0])
    heard = {1: set[int](), 2: set[int]()}
    for event in map(json.loads, lines.getvalue().splitlines()):
        heard.get(event.get("node", 0), set()).add(event["t_ns"] // NS)
    for node in (1, 2):
        assert not heard[node] & set(range(3, 10))
        assert heard[node] & {0, 1}
        assert heard[node] & set(range(10, 16))
