"""Whole runs of real daemons: faults come and go at their times, and nothing forks."""

import json
from pathlib import Path

import pytest

from simnet.checks.outcome import Outcome
from simnet.nodes.processes import backends
from simnet.results.run import run
from simnet.world.scenario import Scenario
from tests.simnet.nodes.processes.quick import QUICK

FAULTS = [
    {"kind": "kill", "at_s": 0.3, "for_s": 1, "nodes": [3]},
    {"kind": "partition", "shape": "halves", "at_s": 1.6, "for_s": 0.8, "nodes": [0, 1]},
    {"kind": "pause", "at_s": 2.8, "for_s": 0.8, "nodes": [2]},
]


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    findings = backends.examine()
    if findings.possible[0].name == "proxy":
        pytest.skip("; ".join(f"{probe.name}: {probe.detail}" for probe in findings.probes))


LIAR = 1
LIES = [{"kind": "conflicter", "nodes": [LIAR]}]


@pytest.fixture(scope="module")
def stormy(tmp_path_factory: pytest.TempPathFactory, warm_programs: None) -> tuple[Outcome, Path]:
    """One run with a kill, a partition and a pause, and a node that lies."""
    out = tmp_path_factory.mktemp("stormy")
    stormy = QUICK | {"faults": FAULTS, "adversaries": LIES}
    return run(Scenario.model_validate(stormy), out), out


@pytest.mark.long
def test_everything_holds_through_a_kill_a_partition_and_a_pause(
    stormy: tuple[Outcome, Path],
) -> None:
    outcome, _ = stormy
    broken = [(held.name, held.detail) for held in outcome.invariants if not held.ok]
    assert not broken
    assert len(outcome.invariants) == 8
    assert len(outcome.final_roots) == 1
    assert min(outcome.facts["rounds"]) >= 1
    assert outcome.facts["faults_not_reached"] == 0
    assert outcome.facts["switch"]["cut"] > 0


@pytest.mark.long
def test_who_lies_is_convicted_and_nobody_else(stormy: tuple[Outcome, Path]) -> None:
    _, out = stormy
    started = (out / f"node-{LIAR}" / "events.jsonl").read_text().splitlines()
    liar = next(e["node_id"] for e in map(json.loads, started) if e["name"] == "node_started")
    told = [
        json.loads(line)
        for node in range(4)
        for line in (out / f"node-{node}" / "events.jsonl").read_text().splitlines()
    ]
    offenders = {event["offender"] for event in told if event["name"] == "evidence_found"}
    assert offenders == {liar}


@pytest.mark.long
def test_the_trace_tells_when_faults_came_and_went(stormy: tuple[Outcome, Path]) -> None:
    _, out = stormy
    told = [json.loads(line) for line in (out / "trace.jsonl").read_text().splitlines()]
    faults = [(event["kind"], event["begins"]) for event in told if event["what"] == "fault"]
    expected = [(fault["kind"], begins) for fault in FAULTS for begins in (True, False)]
    assert faults == expected
    (down,) = (event for event in told if event["what"] == "down")
    ups = [event for event in told if event["what"] == "up"]
    assert sorted(event["node"] for event in ups) == [0, 1, 2, 3, 3]
    assert down["node"] == 3
    assert sum(event["t_ns"] > down["t_ns"] for event in ups) == 1
