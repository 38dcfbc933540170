"""Shrinking: what a failure does not need is left out, however it shows."""

import pytest

from simnet.checks.invariants import PROGRESS
from simnet.checks.outcome import Invariant, Outcome
from simnet.results.shrink import pinned, shrink
from simnet.world.determinism import Streams
from simnet.world.faults import timeline
from simnet.world.scenario import AdversaryConfig, ChangeConfig, FaultConfig, Scenario


def outcome(*broken: str) -> Outcome:
    invariants = tuple(Invariant(name, ok=False) for name in broken)
    return Outcome("told", 0, "light", 4, 0.0, 0.0, 0.0, "", (), invariants, (), {})


def test_what_ends_a_run_by_an_exception_shrinks_to_what_raises_it() -> None:
    kill, pause = FaultConfig(kind="kill", at_s=1), FaultConfig(kind="pause", at_s=2)
    whole = Scenario(name="whole", faults=(kill, pause))

    def raising(scenario: Scenario) -> Outcome:
        kinds = {fault.kind for fault in scenario.faults}
        if "pause" in kinds:
            raise KeyError("pause")
        if "kill" not in kinds:
            raise ValueError("another failure")
        return outcome()

    smaller = shrink(whole, raising)
    assert smaller is not None
    assert [fault.kind for fault in smaller.faults] == ["pause"]


def test_changes_and_liars_that_a_failure_does_not_need_are_left_out() -> None:
    leave, heavier = (
        ChangeConfig(kind="leave", at_s=1, node=0),
        ChangeConfig(kind="stake", at_s=1, node=1, stake=2),
    )
    whole = Scenario(
        name="whole", changes=(leave, heavier), adversaries=(AdversaryConfig(kind="twin"),)
    )

    def of(scenario: Scenario) -> Outcome:
        return outcome(PROGRESS) if heavier in scenario.changes else outcome()

    smaller = shrink(whole, of)
    assert smaller is not None
    assert smaller.changes == (heavier,)
    assert smaller.adversaries == ()


@pytest.mark.parametrize("seed", range(3))
def test_pinned_faults_befall_the_same_nodes_at_the_same_time(seed: int) -> None:
    open_ended = Scenario(
        name="open",
        seed=seed,
        faults=(
            FaultConfig(kind="kill", at_s=1, for_s=2),
            FaultConfig(kind="attrition", at_s=0, for_s=5, percent=100, away_s=(0.5, 1.0)),
        ),
    )
    named = pinned(open_ended)
    assert all(fault.nodes for fault in named.faults)
    befalls = [
        [(edge.at_ns, edge.begins, edge.nodes) for edge in timeline(scenario, Streams(seed))]
        for scenario in (open_ended, named)
    ]
    assert sorted(befalls[0]) == sorted(befalls[1])
    assert pinned(named) == named
    assert Scenario.model_validate(named.model_dump(exclude_defaults=True)) == named
