"""Sweeps and shrinking: what they find, and what they are to have met."""

import os

import pytest

from simnet.results.run import run
from simnet.results.sweep import Sweep, Swept, sweep
from simnet.world.random_changes import in_reach, keeps_promise
from simnet.world.random_clusters import random_daemons
from simnet.world.scenario import ChangeConfig

SEEDS = int(os.environ.get("DAA_SWEEP_SEEDS", "32"))  # 300 must have met every situation
FIRST = 1000
CHANGING_RUNS = 6


@pytest.mark.long
def test_a_sweep_finds_nothing_and_has_been_in_every_situation() -> None:
    swept, whole = Swept(), Sweep()
    for each in sweep(range(FIRST, FIRST + SEEDS), swept):
        whole.add(each)
    assert whole.failures == []
    assert whole.seeds == SEEDS
    assert whole.never_met(swept.wanted(SEEDS)) == []


@pytest.mark.long
def test_committees_that_a_run_passes_through_are_those_that_were_thought_of() -> None:
    drawn = (random_daemons(seed) for seed in range(90))
    changing = [
        scenario
        for scenario in drawn
        if scenario.changes and all(liar.kind != "puppet" for liar in scenario.adversaries)
    ]
    passed = 0
    for scenario in changing[:CHANGING_RUNS]:
        first = frozenset(
            (node, 1) for node in range(sum(group.role == "validator" for group in scenario.nodes))
        )
        liars = {node for liar in scenario.adversaries for node in liar.nodes}  # may be expelled
        reached = in_reach(first, scenario.changes)
        thought_of = {frozenset(p for p in stakes if p[0] not in liars) for stakes in reached}
        committees = run(scenario).facts["committees"]
        passed += len(committees) - 1
        for text in committees:
            pairs = (tuple(map(int, pair.split(":"))) for pair in text.split())
            assert frozenset(pair for pair in pairs if pair[0] not in liars) in thought_of
    assert passed > CHANGING_RUNS / 2  # else hardly any change came about


def test_too_many_faulty_in_any_committee_is_no_promise() -> None:
    leave = ChangeConfig(kind="leave", at_s=1, node=1)
    heavier = ChangeConfig(kind="stake", at_s=1, node=0, stake=2)
    assert keeps_promise(7, [leave], {0})
    assert not keeps_promise(4, [leave], {0})  # three tolerate nobody
    assert not keeps_promise(4, [heavier], {0})
    assert not keeps_promise(7, [leave], {2, 3})
