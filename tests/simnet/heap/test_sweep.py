"""Sweep, replay and shrink: what they find, and that they find it again."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from simnet.determinism import Trace
from simnet.heap import consensus
from simnet.invariants import PROGRESS
from simnet.outcome import Invariant, Outcome
from simnet.random_changes import in_reach, keeps_promise
from simnet.random_faults import FRAGILE
from simnet.random_scenarios import NODES_MAX, NODES_MIN, TROUBLE_S, random_scenario
from simnet.run import run
from simnet.scenario import AdversaryConfig, ChangeConfig, FaultConfig, Scenario
from simnet.scenario_file import as_text, open_scenario
from simnet.shrink import broken, pinned, shrink
from simnet.sweep import MUST_MEET, Sweep, Swept, sweep
from tests.simnet.mutants.mutants import MUTANTS

SEEDS = int(os.environ.get("DAA_SWEEP_SEEDS", "500"))  # from 1000 on: mutants have the first ones
FEW_SEEDS = 20


def test_a_little_sweep_finds_nothing() -> None:
    whole = Sweep()
    for batch in sweep(range(1000, 1000 + FEW_SEEDS), Swept()):
        whole.add(batch)
    assert whole.failures == []
    assert whole.seeds == FEW_SEEDS


@pytest.mark.long
def test_a_sweep_finds_nothing_and_has_been_in_every_situation() -> None:
    whole = Sweep()
    for batch in sweep(range(1000, 1000 + SEEDS), Swept()):
        whole.add(batch)
    assert whole.failures == []
    assert whole.seeds == SEEDS
    assert whole.never_met(MUST_MEET) == []


def test_a_seed_is_the_same_run_in_a_sweep_and_by_itself() -> None:
    once, again = (run(Swept().scenario(17)) for _ in range(2))
    assert once.trace_hash == again.trace_hash
    assert once.final_roots == again.final_roots


def test_what_is_drawn_stays_within_what_consensus_promises() -> None:
    for seed in range(300):
        scenario = random_scenario(seed)
        stakes = [g.stake for g in scenario.nodes if g.role == "validator" for _ in range(g.count)]
        count = len(stakes)
        assert NODES_MIN <= count <= NODES_MAX
        weak = {node for liar in scenario.adversaries for node in liar.nodes}
        for fault in scenario.faults:
            assert fault.nodes or fault.aim
            assert fault.heals_s <= TROUBLE_S + 0.1
            if fault.kind == "disk" and fault.disk in ("lost_fsync", "bit_rot", "wiped"):
                weak |= set(fault.nodes)
        assert Scenario.model_validate_json(scenario.model_dump_json(exclude_defaults=True))
        assert 3 * sum(stakes[node] for node in weak) < sum(stakes)
        assert not scenario.changes or set(stakes) == {1}
        assert keeps_promise(count, scenario.changes, weak) or not scenario.changes


def test_committees_that_a_run_passes_through_are_those_that_were_thought_of() -> None:
    drawn = (random_scenario(seed, puppets=0.0) for seed in range(60))  # who may leave at will
    changing = [scenario for scenario in drawn if scenario.changes][:12]
    passed = 0
    for scenario in changing:
        first = frozenset(
            (node, 1) for node in range(sum(group.role == "validator" for group in scenario.nodes))
        )
        liars = {node for liar in scenario.adversaries for node in liar.nodes}  # may be expelled
        reached = in_reach(first, scenario.changes)
        thought_of = {frozenset(p for p in stakes if p[0] not in liars) for stakes in reached}
        committees = consensus.run(scenario, Trace()).facts["committees"]
        passed += len(committees) - 1
        for text in committees:
            pairs = (tuple(map(int, pair.split(":"))) for pair in text.split())
            assert frozenset(pair for pair in pairs if pair[0] not in liars) in thought_of
    assert passed >= len(changing)


def test_half_of_all_clusters_have_a_puppet_and_no_disk_that_forgets_beside_it() -> None:
    drawn = [random_scenario(seed) for seed in range(300)]
    puppets = [s for s in drawn if any(liar.kind == "puppet" for liar in s.adversaries)]
    assert 0.4 * len(drawn) < len(puppets) < 0.6 * len(drawn)
    for scenario in puppets:
        assert not {fault.disk for fault in scenario.faults if fault.kind == "disk"} & {*FRAGILE}
        validators = sum(g.count for g in scenario.nodes if g.role == "validator")
        assert len(scenario.adversaries) == 1 or validators > NODES_MIN


def test_too_many_faulty_in_any_committee_is_no_promise() -> None:
    leave = ChangeConfig(kind="leave", at_s=1, node=1)
    heavier = ChangeConfig(kind="stake", at_s=1, node=0, stake=2)
    assert keeps_promise(7, [leave], {0})
    assert not keeps_promise(4, [leave], {0})  # three tolerate nobody
    assert not keeps_promise(4, [heavier], {0})
    assert not keeps_promise(7, [leave], {2, 3})


def test_faults_at_leaders_move_no_other_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [random_scenario(seed) for seed in range(60)]
    rhythms = [[fault for fault in scenario.faults if fault.aim] for scenario in drawn]
    assert 5 < sum(bool(rhythm) for rhythm in rhythms) < 30
    assert {(fault.kind, fault.shape) for (fault, *_) in filter(None, rhythms)} > {
        ("kill", "halves"),
        ("hold", "halves"),
        ("partition", "isolate"),
    }
    monkeypatch.setattr("simnet.random_scenarios.LEADERS_SHARE", 0.0)
    for seed, (scenario, rhythm) in enumerate(zip(drawn, rhythms, strict=True)):
        plain = random_scenario(seed)
        faults = (*plain.faults, *rhythm)
        assert scenario == plain.model_copy(update={"faults": faults})


FAILING_SEED = 23  # of the mistake below, among eight faults


def failing(scenario: Scenario) -> Outcome:
    return consensus.run(scenario, Trace(), MUTANTS["certificates not kept before the vote"])


def test_a_failing_run_shrinks_to_what_it_takes_and_still_fails_the_same_way(
    tmp_path: Path,
) -> None:
    whole = random_scenario(FAILING_SEED, puppets=0.0)
    smaller = shrink(whole, failing)
    assert smaller is not None
    assert len(smaller.faults) < len(whole.faults)
    assert {fault.kind for fault in smaller.faults} & {"kill", "disk"}  # only a crash forgets
    file = tmp_path / "shrunk.yaml"
    file.write_text(as_text(smaller))
    assert broken(failing(open_scenario(str(file)))) == broken(failing(whole))


def test_what_ends_a_run_by_an_exception_shrinks_to_what_raises_it() -> None:
    kill, pause = FaultConfig(kind="kill", at_s=1), FaultConfig(kind="pause", at_s=2)
    whole = Scenario(name="whole", faults=(kill, pause))
    held = run(Scenario(name="held"))

    def raising(scenario: Scenario) -> Outcome:
        kinds = {fault.kind for fault in scenario.faults}
        if "pause" in kinds:
            raise KeyError("pause")
        if "kill" not in kinds:
            raise ValueError("another failure")
        return held

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
    held = run(Scenario(name="held"))
    failed = replace(held, invariants=(Invariant(PROGRESS, ok=False),))

    def of(scenario: Scenario) -> Outcome:
        return failed if heavier in scenario.changes else held

    smaller = shrink(whole, of)
    assert smaller is not None
    assert smaller.changes == (heavier,)
    assert smaller.adversaries == ()


def test_what_breaks_nothing_is_not_shrunk() -> None:
    assert shrink(random_scenario(17), run) is None


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
    assert run(named).facts["blocks"] > 0
    assert pinned(named) == named
    assert Scenario.model_validate(named.model_dump(exclude_defaults=True)) == named


def test_who_asked_in_time_and_lost_the_request_gives_up_what_would_be_dropped_by_now() -> None:
    """A stake that the first committee could take in, and the one after two have gone cannot."""
    outcome = run(random_scenario(303923))
    assert [held.name for held in outcome.invariants if not held.ok] == []
