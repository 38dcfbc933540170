"""Whole daemons check each other's training: who trains is sound, who does not is found out."""

from collections import defaultdict
from typing import Any

import pytest

from daa_dag.ids import NodeId
from daa_node.disputes.second_looks import SHOWN_WITHIN_ROUNDS
from daa_node.spot_checks.findings import Finding
from daa_node.spot_checks.health import Health
from simnet.nodes.virtual.world import run_virtual
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

WORK: dict[str, Any] = {
    "kind": "training",
    "rounds": 20,
    "inner_steps_max": 8,
    "spot_checks": {"share": [1, 1]},
}
BASE: dict[str, Any] = {
    "name": "checked",
    "seed": 3,
    "fidelity": "light",
    "nodes": [{"count": 4}],
    "topology": {"preset": "regional"},
    "duration_s": 60,
    "work": WORK,
}
# Of each author: what was found, how far off, and by which node (its Health).
Findings = dict[NodeId, list[tuple[Finding, float | None, int]]]


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> Findings:
    """What the nodes of a run find, by author."""
    found: Findings = defaultdict(list)
    note = Health.note

    def noted(
        health: Health, author: NodeId, finding: Finding, distance: float | None = None
    ) -> None:
        if finding is not Finding.UNCHECKED:
            found[author].append((finding, distance, id(health)))
        note(health, author, finding, distance)

    monkeypatch.setattr(Health, "note", noted)
    return found


def run(**changes: Any) -> set[int]:
    """Nobody honest is convicted; which liars are excluded in the end."""
    outcome = run_virtual(Scenario.model_validate({**BASE, **changes}), Trace())
    assert [each.name for each in outcome.invariants if not each.ok] == []
    return {liar["node"] for liar in outcome.facts.get("liars", ()) if liar["excluded"]}


def test_who_trains_honestly_is_sound_to_the_last_bit(findings: Findings) -> None:
    run()
    assert len(findings) == 4
    told = [(finding, distance) for found in findings.values() for finding, distance, _ in found]
    assert len(told) >= 40
    assert set(told) == {(Finding.SOUND, 0.0)}


def test_no_round_waits_for_a_check() -> None:
    """A check takes steps of the checker's own: fewer are trained, and a round is as long."""
    shares = {"without": [0, 1], "all": [1, 1]}
    facts = {
        name: run_virtual(
            Scenario.model_validate(
                {**BASE, "work": {**WORK, "rounds": 30, "spot_checks": {"share": share}}}
            ),
            Trace(),
        ).facts
        for name, share in shares.items()
    }
    without, checked = facts["without"], facts["all"]
    assert checked["round_s_mean"] == pytest.approx(without["round_s_mean"], rel=0.02)
    spent = {name: one["classes"]["node"]["share_of_time"] for name, one in facts.items()}
    assert spent["without"]["checking"] == 0.0
    assert spent["all"]["checking"] > 0.1 * spent["all"]["training"]
    assert checked["tokens_certified"] < 0.95 * without["tokens_certified"]


@pytest.mark.parametrize(
    ("liar", "wrong"),
    [
        ({"kind": "free_rider", "nodes": [3]}, Finding.UNSHOWN),
        ({"kind": "poisoner", "nodes": [3], "poison": "sign_flip"}, Finding.DIFFERS),
        ({"kind": "poisoner", "nodes": [3], "poison": "label_flip"}, Finding.DIFFERS),
    ],
)
def test_who_does_not_train_as_it_says_is_found_out_and_nobody_else(
    liar: dict[str, Any], wrong: Finding, findings: Findings
) -> None:
    """Who flips labels finds everybody else wrong, accuses them, and is alone with that.

    Who shows nothing has nothing that anybody could replay.
    """
    excluded = run(adversaries=[liar])
    assert excluded == (set() if wrong is Finding.UNSHOWN else {3})
    finders = {
        author: {finder for finding, _, finder in found if finding is wrong}
        for author, found in findings.items()
    }
    (found_out,) = (author for author, by in finders.items() if len(by) > 1)
    assert {finding for finding, _, _ in findings[found_out]} == {wrong}


def test_who_accuses_falsely_is_convicted_and_nobody_else(findings: Findings) -> None:
    assert run(adversaries=[{"kind": "framer", "nodes": [3]}]) == {3}
    assert Finding.DIFFERS in {finding for found in findings.values() for finding, _, _ in found}


def test_who_shows_nothing_counts_for_some_rounds_and_then_no_more() -> None:
    rounds = 2 * SHOWN_WITHIN_ROUNDS + 16
    work = {**BASE["work"], "rounds": rounds}
    fields = {**BASE, "work": work, "adversaries": [{"kind": "free_rider", "nodes": [3]}]}
    outcome = run_virtual(Scenario.model_validate(fields), Trace())
    assert [each.name for each in outcome.invariants if not each.ok] == []
    (liar,) = outcome.facts["liars"]
    assert outcome.facts["rounds"] == rounds
    # rounds of a second: it takes its checkers some to give up
    assert SHOWN_WITHIN_ROUNDS <= liar["contributions"] <= rounds - 4
