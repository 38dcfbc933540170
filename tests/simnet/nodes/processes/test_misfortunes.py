"""A whole run of real daemons whose disks and clock fail, beside a slow one and one that looks on.

Its links are the relay's, which nobody measures, so it shares the machine.
"""

import json
import re
from pathlib import Path

import pytest

from simnet.checks.outcome import Outcome
from simnet.results.run import run
from simnet.world.scenario import Scenario
from tests.simnet.nodes.processes.quick import QUICK

pytestmark = pytest.mark.long

SLOW = FULL = 0
AHEAD, FORGETFUL, NEW = 1, 2, 3  # the last one alone, f, ever knows that it forgot
OBSERVER = 4
MISFORTUNES = [
    {"kind": "disk", "disk": "full", "at_s": 0.2, "for_s": 1.5, "nodes": [FULL]},
    {"kind": "kill", "at_s": 0.6, "for_s": 0.5, "nodes": [AHEAD]},
    {"kind": "clock", "skew_ms": 3_600_000, "at_s": 0.8, "for_s": 9.2, "nodes": [AHEAD]},
    {"kind": "disk", "disk": "rolled_back", "at_s": 1.5, "for_s": 1.5, "nodes": [FORGETFUL]},
    {"kind": "disk", "disk": "torn_write", "at_s": 3.5, "for_s": 0.5, "nodes": [FULL]},
    {"kind": "disk", "disk": "wiped", "at_s": 11.5, "for_s": 0.5, "nodes": [NEW]},
    {"kind": "disk", "disk": "bit_rot", "at_s": 13, "nodes": [NEW]},
]


@pytest.fixture(scope="module")
def misfortune(
    tmp_path_factory: pytest.TempPathFactory, warm_programs: None
) -> tuple[Outcome, Path]:
    """One run in which disks and a clock fail, over the relay, which needs no measurement."""
    out = tmp_path_factory.mktemp("misfortune")
    nodes = [
        {"name": "slow", "count": 1, "speed": 0.02},
        {"name": "quick", "count": 3},
        {"name": "eye", "count": 1, "role": "observer"},
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMNET_BACKEND", "proxy")
        checks = {"finalizations_after_heal": 6, "heal_s": 90}
        changes = {"nodes": nodes, "faults": MISFORTUNES, "duration_s": 14, "checks": checks}
        return run(Scenario.model_validate(QUICK | changes), out), out


def test_everything_holds_though_disks_and_a_clock_fail(misfortune: tuple[Outcome, Path]) -> None:
    outcome, _ = misfortune
    broken = [(held.name, held.detail) for held in outcome.invariants if not held.ok]
    assert not broken
    assert outcome.facts["faults_not_reached"] == 0
    assert all(outcome.facts["rounds"][node] for node in (FULL, AHEAD, FORGETFUL))


def test_each_failure_was_met_by_the_daemon_that_it_befell(
    misfortune: tuple[Outcome, Path],
) -> None:
    outcome, out = misfortune
    told = [
        [json.loads(line) for line in (out / f"node-{node}/events.jsonl").read_text().splitlines()]
        for node in range(4)
    ]
    names = [[event["name"] for event in events] for events in told]
    assert "events_lost" in names[FULL]  # not even its log took anything
    assert "clock_skewed" in [
        name for node in range(OBSERVER) if node != AHEAD for name in names[node]
    ]
    assert names[FORGETFUL].count("node_started") == 2
    assert "quarantined" in names[NEW]
    assert "quarantined" not in names[FULL]  # torn is not lost
    # Who reads rotten bytes falls, and gets an empty disk; who does not is told by the verifier.
    (rot,) = outcome.facts["rot"]
    assert rot["node"] == NEW
    assert rot["found"] or outcome.facts["fell"]


def test_a_slow_class_is_measured_to_be_slow(misfortune: tuple[Outcome, Path]) -> None:
    _, out = misfortune
    speeds = []
    for node in range(4):
        text = (out / f"node-{node}" / "events.jsonl").read_text()
        speeds.append([float(ms) for ms in re.findall(r"at ([0-9.]+) ms a step", text)])
    # Fifty times as slow. What all of them wait for a busy core was half of its time already.
    assert min(speeds[SLOW]) > 1.25 * min(min(told) for told in speeds[SLOW + 1 :] if told)


def test_an_observer_follows_and_says_nothing(misfortune: tuple[Outcome, Path]) -> None:
    outcome, out = misfortune
    told = (out / f"node-{OBSERVER}" / "events.jsonl").read_text()
    assert "statement_sent" not in told
    assert outcome.facts["rounds"][OBSERVER] >= 1
