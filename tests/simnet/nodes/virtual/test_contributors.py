"""Whole daemons think as much of each other as each deserves, and agree on sets all the same."""

from collections.abc import Callable
from typing import Any

import pytest

from daa_dag.ids import NodeId
from daa_node.contributors.records import HealthRecords
from daa_node.contributors.score import Level
from simnet.nodes.virtual.world import run_virtual
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

WORK: dict[str, Any] = {"kind": "training", "rounds": 40, "inner_steps_max": 8}
BASE: dict[str, Any] = {
    "name": "opinions",
    "seed": 3,
    "fidelity": "light",
    "nodes": [{"count": 4}],
    "topology": {"preset": "regional"},
    "duration_s": 240,
    "work": WORK,
}
CHECKED = {**WORK, "rounds": 20, "spot_checks": {"share": [1, 1]}}
SLOW = {"kind": "slow", "at_s": 10, "for_s": 30, "nodes": [3], "factor": 30}
# Of each node its opinions of another: levels in the order in which it stood on them.
Opinions = dict[int, dict[NodeId, list[Level]]]


@pytest.fixture
def opinions(monkeypatch: pytest.MonkeyPatch) -> Opinions:
    """What the nodes of a run think of each other as its rounds end."""
    thought: Opinions = {}
    note = HealthRecords.note_round

    def noted(records: HealthRecords, *args: Any) -> None:
        note(records, *args)
        for node, _ in records.authors():
            levels = thought.setdefault(id(records), {}).setdefault(node, [Level.NORMAL])
            if records.level_of(node) is not levels[-1]:
                levels.append(records.level_of(node))

    monkeypatch.setattr(HealthRecords, "note_round", noted)
    return thought


def run(**changes: Any) -> None:
    outcome = run_virtual(Scenario.model_validate({**BASE, **changes}), Trace())
    assert [each.name for each in outcome.invariants if not each.ok] == []


def judged(opinions: Opinions, found: Callable[[list[Level]], bool]) -> tuple[set[NodeId], int]:
    """Of whom some think so, and how often somebody does."""
    of = [node for mind in opinions.values() for node, levels in mind.items() if found(levels)]
    return set(of), len(of)


def test_who_does_its_part_has_priority_with_everybody(opinions: Opinions) -> None:
    run(work=CHECKED)
    assert judged(opinions, lambda levels: levels == [Level.NORMAL, Level.PRIORITY])[1] == 4 * 3


def test_whose_link_is_slow_falls_to_low_and_comes_back(opinions: Opinions) -> None:
    run(faults=[SLOW])
    fallen = [Level.PRIORITY, Level.NORMAL, Level.LOW, Level.NORMAL]
    # some have come to think the best of it again before the job ends
    slow, times = judged(opinions, lambda levels: levels[1 : 1 + len(fallen)] == fallen)
    assert (len(slow), times) == (1, 3)
    mostly_well = judged(opinions, lambda levels: Level.LOW not in levels)
    assert mostly_well[1] >= 6  # what the slow one thinks of the others is its own affair


def test_who_shows_nothing_comes_to_low_where_it_was_checked_and_no_further(
    opinions: Opinions,
) -> None:
    run(work=CHECKED, adversaries=[{"kind": "free_rider", "nodes": [3]}])
    low, times = judged(opinions, lambda levels: levels[-1] is Level.LOW)
    assert len(low) == 1
    assert 1 <= times <= 3
    assert judged(opinions, lambda levels: Level.EXCLUDED in levels) == (set(), 0)


def test_who_trains_otherwise_than_it_says_is_excluded_with_all(opinions: Opinions) -> None:
    run(work=CHECKED, adversaries=[{"kind": "poisoner", "nodes": [3], "poison": "sign_flip"}])
    excluded, times = judged(opinions, lambda levels: levels[-1] is Level.EXCLUDED)
    assert (len(excluded), times) == (1, 3)
