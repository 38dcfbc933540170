"""Whole daemons in trouble that a seed draws: repeatable, within what is promised, and checked."""

from io import StringIO
from typing import Any

import pytest
import trio

from daa_consensus.committee import Committee, Validator
from daa_consensus.roll import Admission
from daa_dag.ids import NodeId
from daa_node.seams import StateRef
from simnet.checks.invariants import ASSERTIONS, LEARNS, WATCHED
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.inline_trainer import InlineTrainer
from simnet.nodes.virtual.world import run_virtual, without_poison
from simnet.results import run as running
from simnet.results.sweep import Swept
from simnet.world.adversaries.puppet import Puppet
from simnet.world.determinism import Trace
from simnet.world.random_clusters import (
    CHANGES_UNTIL_S,
    CROWD,
    HEARD_S,
    NIGHT_S,
    PARTED_S,
    random_daemons,
)
from simnet.world.random_faults import FRAGILE
from simnet.world.scenario import Scenario
from simnet.world.tolerance import beyond_f

BASE: dict[str, Any] = {
    "name": "daemons",
    "seed": 5,
    "fidelity": "light",
    "duration_s": 60,
    "topology": {"preset": "regional"},
    "work": {"kind": "training", "rounds": 5, "inner_steps_max": 2, "epoch_rounds": 2},
    "checks": {"finalizations_after_heal": 4, "heal_s": 60},
}


def run(**changes: Any) -> Outcome:
    return run_virtual(Scenario.model_validate({**BASE, **changes}), Trace())


def broken(outcome: Outcome) -> list[str]:
    return [f"{each.name}: {each.detail}" for each in outcome.invariants if not each.ok]


def test_no_seed_has_trainers_come_to_stakes_that_a_genesis_refuses_with_them() -> None:
    coming = 0
    for seed in range(400):
        work, nodes = (drawn := random_daemons(seed)).work, drawn.nodes
        stakes = [group.stake for group in nodes if group.role == "validator"]
        ids = [NodeId(bytes([number]) * 32) for number in range(len(stakes))]
        committee = Committee(tuple(Validator(*pair) for pair in zip(ids, stakes, strict=True)))
        coming += work.trainers.admission is not Admission.CLOSED
        why = work.trainers.why_outvoted(committee.liars_max, len(stakes), work.updates)
        assert why is None, seed
    assert coming > 20


@pytest.mark.long
def test_a_seed_leaves_the_same_trace_each_time_and_another_one_another() -> None:
    swept = Swept(fidelity="light")
    one, again, other = (running.run(swept.scenario(seed)) for seed in (3, 3, 4))
    assert broken(one) == broken(other) == []
    assert one.trace_hash == again.trace_hash != other.trace_hash
    assert one.final_roots == again.final_roots


@pytest.mark.long
def test_the_trace_of_a_run_with_libp2p_is_the_same_whatever_its_process_ran_before() -> None:
    """The library numbers peer records upwards for as long as a process lives."""
    brief = {"fidelity": "trio", "nodes": [{"count": 4}], "duration_s": 8}
    one, _, again = run(**brief), run(**brief, seed=6), run(**brief)
    assert one.trace_hash == again.trace_hash


def test_both_fidelities_are_given_the_same_trouble() -> None:
    light, trio = (Swept(fidelity=name).scenario(11) for name in ("light", "trio"))
    assert light.model_copy(update={"fidelity": "trio"}) == trio
    assert Swept(fidelity="trio").replay(11) == "simnet replay --seed 11 --fidelity trio"
    assert Swept().scenario(11) == light


def test_many_clusters_have_a_puppet_and_nobody_who_lies_or_forgets_beside_it() -> None:
    drawn = [random_daemons(seed) for seed in range(300)]
    puppets = [s for s in drawn if any(liar.kind == "puppet" for liar in s.adversaries)]
    assert 0.35 * len(drawn) < len(puppets) < 0.6 * len(drawn)
    for scenario in puppets:
        assert not {fault.disk for fault in scenario.faults if fault.kind == "disk"} & {*FRAGILE}
        assert len(scenario.adversaries) == 1


def test_some_clusters_have_trainers_and_of_some_one_lies_beside_the_liars_that_vote() -> None:
    drawn = [random_daemons(seed) for seed in range(400)]
    with_some = [s for s in drawn if any(group.role == "trainer" for group in s.nodes)]
    assert 0.05 * len(drawn) < len(with_some) < 0.2 * len(drawn)
    crowds = [s for s in with_some if any(group.count >= min(CROWD) for group in s.nodes)]
    assert 0 < len(crowds) < 0.2 * len(with_some)
    lying = [s for s in with_some if any(s.node_count - 1 in a.nodes for a in s.adversaries)]
    assert len(with_some) > 2 * len(lying) > 0
    assert all(s.group_of(s.node_count - 1).role == "trainer" for s in lying)


def test_what_seeds_draw_stays_within_what_is_promised_and_is_valid_as_a_file() -> None:
    kinds, presets = set[str](), set[str]()
    for seed in range(300):
        scenario = random_daemons(seed)
        assert beyond_f(scenario) is None, seed
        assert Scenario.model_validate(scenario.model_dump()) == scenario
        kinds |= {fault.kind for fault in scenario.faults}
        kinds |= {adversary.kind for adversary in scenario.adversaries}
        presets.add(scenario.topology.preset)
    assert kinds >= {"partition", "kill", "disk", "hold", "loss", "pause", "clock", "slow"}
    assert kinds >= {"poisoner", "free_rider", "equivocator", "forger", "puppet"}
    assert presets == {"local", "regional", "wan"}


def test_some_are_cut_off_all_the_while_that_members_change() -> None:
    drawn = [random_daemons(seed) for seed in range(400)]
    parted = [
        fault
        for scenario in drawn
        for fault in scenario.faults
        if scenario.changes and fault.kind == "partition" and fault.at_s == CHANGES_UNTIL_S
    ]
    assert len(parted) >= 5
    assert all(fault.shape == "isolate" and fault.for_s == PARTED_S for fault in parted)


@pytest.mark.long
def test_members_come_and_go_among_daemons() -> None:
    outcome = run(
        nodes=[{"count": 4}, {"name": "outside", "count": 2, "role": "observer"}],
        work={**BASE["work"], "rounds": 80, "epoch_rounds": 1},
        changes=[
            {"kind": "join", "at_s": 0.5, "node": 4, "stake": 1},
            {"kind": "rotate", "at_s": 1, "node": 1, "successor": 5},
            {"kind": "stake", "at_s": 1.5, "node": 2, "stake": 2},
            {"kind": "leave", "at_s": 4, "node": 0},
        ],
        duration_s=24,  # a rotation waits for a whole epoch
    )
    assert broken(outcome) == []
    met = {mark.name for mark in outcome.sometimes}
    assert met >= {"joiner voted", "rotated key voted", "stake changed", "epoch changed"}


@pytest.mark.long
def test_who_was_away_finds_deltas_gone_and_comes_back_over_a_snapshot() -> None:
    outcome = run(
        nodes=[{"count": 4}],
        work={**BASE["work"], "rounds": 40, "snapshot_every": 1, "vertices_restorable": 1},
        faults=[{"kind": "kill", "at_s": 2, "for_s": 5, "nodes": [3]}],
        duration_s=7.1,
    )
    assert broken(outcome) == []
    assert "gap crossed" in {mark.name for mark in outcome.sometimes}


def test_who_is_started_at_the_moment_in_which_all_has_healed_is_up() -> None:
    """In floats 8.033 s end a little before the nanosecond in which the kill does."""
    everybody = [{"kind": "kill", "at_s": 7.69, "for_s": 0.343, "nodes": [0, 1, 2, 3]}]
    assert broken(run(nodes=[{"count": 4}], faults=everybody)) == []


def test_a_run_in_which_nobody_is_up_in_the_end_has_checked_nothing_and_fails() -> None:
    everybody = [{"kind": "kill", "at_s": 1, "nodes": [0, 1, 2, 3]}]
    outcome = run(nodes=[{"count": 4}], faults=everybody)
    assert [each.name for each in outcome.invariants if not each.ok] == [WATCHED]


def test_progress_is_demanded_of_those_too_whom_the_last_fault_had_killed() -> None:
    everybody = [{"kind": "kill", "at_s": 0.5, "for_s": 3, "nodes": [0, 1, 2, 3]}]
    outcome = run(nodes=[{"count": 4}], faults=everybody)
    assert broken(outcome) == []
    assert outcome.facts["rounds"] == 5
    assert outcome.facts["recovered_s"] > 0


def test_a_puppet_outlives_what_it_says_though_honest_nodes_would_not_sign_it() -> None:
    """Its errands carry records that nobody reads: one seed drew such at once, and fell of them."""
    file, puppet = StringIO(), {"kind": "puppet", "nodes": [3]}
    changes = {
        "seed": 2,
        "topology": {"preset": "local"},
        "adversaries": [puppet],
        "duration_s": 20,
    }
    scenario = Scenario.model_validate({**BASE, "nodes": [{"count": 4}], **changes})
    outcome = run_virtual(scenario, Trace(file))
    assert broken(outcome) == []
    assert "liar_fell" not in file.getvalue()


def test_a_liar_that_falls_of_a_mistake_of_its_own_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be dead for the rest of the run, and try nothing."""

    def mistaken(*_: object) -> None:
        raise KeyError("nothing that honest code says")

    monkeypatch.setattr(Puppet, "sends", mistaken)
    outcome = run(nodes=[{"count": 4}], adversaries=[{"kind": "puppet", "nodes": [3]}])
    (said,) = broken(outcome)
    assert said.startswith(f"{ASSERTIONS}: node 3: KeyError")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_validators_are_a_network(count: int) -> None:
    outcome = run(nodes=[{"count": count}])
    assert broken(outcome) == []
    assert outcome.facts["rounds"] == 5


@pytest.mark.long
def test_the_loss_of_a_poisoned_run_is_held_against_its_honest_twin() -> None:
    poisoned: dict[str, Any] = {
        "nodes": [{"count": 4}],
        "adversaries": [{"kind": "poisoner", "nodes": [3], "poison": "sign_flip"}],
        "checks": {**BASE["checks"], "loss_above_twin_nats": 0.35},
    }
    robust = run(**poisoned)
    assert broken(robust) == []
    honest = without_poison(Scenario.model_validate({**BASE, **poisoned}))
    assert robust.facts["loss_nats_of_twin"] == run_virtual(honest, Trace()).facts["loss_nats"]
    fragile = run(**poisoned, work={**BASE["work"], "inner_steps_max": 4, "rule": "mean"})
    assert [each.name for each in fragile.invariants if not each.ok] == [LEARNS]


def test_a_poisoned_run_goes_on_until_a_round_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = InlineTrainer.evaluate

    async def slowly(trainer: InlineTrainer, state: StateRef) -> float:
        await trio.sleep(2)  # and the vertex is on a disk
        return await measured(trainer, state)

    monkeypatch.setattr(InlineTrainer, "evaluate", slowly)
    outcome = run(
        nodes=[{"count": 4}],
        adversaries=[{"kind": "poisoner", "nodes": [3], "poison": "sign_flip"}],
        duration_s=0.1,
        faults=[{"kind": "slow", "at_s": 0, "for_s": 0.1, "nodes": [0], "factor": 2}],
        checks={
            "finalizations_after_heal": 0,
            "vertices_after_heal": 1,
            "heal_s": 60,
            "loss_above_twin_nats": 0.35,
        },
    )
    assert broken(outcome) == []
    assert len(outcome.facts["losses"]) == 1


def test_a_poisoned_run_that_trained_nothing_has_learnt_nothing() -> None:
    outcome = run(
        nodes=[{"count": 4}],
        adversaries=[{"kind": "poisoner", "nodes": [3], "poison": "sign_flip"}],
        duration_s=0.1,
        checks={"finalizations_after_heal": 0, "loss_above_twin_nats": 0.35},
    )
    assert outcome.facts["rounds"] == 0
    assert [each.name for each in outcome.invariants if not each.ok] == [LEARNS]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"adversaries": [{"kind": "twin", "nodes": [0, 1]}]}, "adversaries"),
        (
            {
                "adversaries": [{"kind": "twin"}],
                "faults": [{"kind": "disk", "disk": "wiped", "at_s": 1, "nodes": [0, 1, 2, 3]}],
            },
            "faults.0",
        ),
        (
            {
                "nodes": [{"count": 4}, {"name": "heavy", "count": 1, "stake": 4}],
                "adversaries": [{"kind": "twin", "nodes": [4]}],
            },
            "adversaries",
        ),
    ],
)
def test_who_asks_for_more_liars_than_are_survived_is_told_so_unless_it_is_meant(
    changes: dict[str, Any], place: str
) -> None:
    scenario = Scenario.model_validate({"name": "beyond", **changes})
    said = beyond_f(scenario)
    assert said is not None
    assert said.startswith(f"{place}: nodes ")
    meant = scenario.checks.model_copy(update={"beyond_f": True})
    assert beyond_f(scenario.model_copy(update={"checks": meant})) is None


UNEQUAL = [{"count": 2, "stake": 3}, {"name": "light", "count": 2}]


LIGHT = {"name": "light", "trainer": {"contribute": False}}


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"adversaries": [{"kind": "withholder", "nodes": [2, 3]}]}, 2),
        ({"checks": {"core": [0, 1]}}, 2),
        ({"adversaries": [{"kind": "withholder", "nodes": [3]}]}, None),
        ({"checks": {"core": [0, 1, 2]}}, None),
        ({"nodes": [{"count": 2}, LIGHT | {"count": 2}]}, 2),
        ({"nodes": [{"count": 3}, LIGHT | {"count": 1}]}, None),
    ],
)
def test_a_few_heavy_nodes_are_a_quorum_and_too_few_to_merge(
    changes: dict[str, Any], count: int | None
) -> None:
    fields: dict[str, Any] = {
        "name": "few",
        "fidelity": "light",
        "nodes": UNEQUAL,
        "work": {"kind": "training"},
        "faults": [{"kind": "kill", "at_s": 1, "nodes": [3]}],
    }
    checks = {"vertices_after_heal": 1, **changes.get("checks", {})}
    said = beyond_f(Scenario.model_validate({**fields, **changes, "checks": checks}))
    if count is None:
        assert said is None
        return
    assert said is not None
    assert f"{count} of 4 members" in said
    assert "a merge takes 3" in said
    blocks = {**checks, "vertices_after_heal": 0}
    assert beyond_f(Scenario.model_validate({**fields, **changes, "checks": blocks})) is None


@pytest.mark.long
def test_who_comes_back_when_all_others_are_gone_is_told_by_who_looks_on() -> None:
    night = [seed for seed in range(200) if random_daemons(seed).duration_s > NIGHT_S]
    assert night
    outcome = run(
        nodes=[{"count": 4}, {"name": "outside", "count": 1, "role": "observer"}],
        work={**BASE["work"], "rounds": 1000, "window_s": 2},
        faults=[
            {"kind": "kill", "at_s": 2, "for_s": HEARD_S + 1, "nodes": [3]},
            {"kind": "kill", "at_s": 2 + HEARD_S, "for_s": NIGHT_S, "nodes": [0, 1, 2]},
        ],
        duration_s=2 + HEARD_S + NIGHT_S,
    )
    assert broken(outcome) == []
    assert "scouted" in {mark.name for mark in outcome.sometimes}
