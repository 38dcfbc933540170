"""Volunteers of all sorts come to a simulated gateway: rounds go on, and the honest are right."""

from typing import Any

import pytest

from simnet.checks.invariants import VOLUNTEERS
from simnet.checks.outcome import Outcome
from simnet.results.run import run
from simnet.world.scenario import Scenario
from simnet.world.scenario_file import open_scenario

LIARS = ("liar", "colluder")
CHECKED = {"share": [1, 1]}
WORK = {"rounds": 1000, "step_s": 0.5, "inner_steps_max": 4, "spot_checks": CHECKED}


def outcome_of(volunteers: list[dict[str, Any]], **changed: Any) -> Outcome:
    scenario = {
        "name": "crowd",
        "duration_s": 24,
        "nodes": [{"count": 2}],
        "work": WORK,
        "volunteers": volunteers,
        "checks": {"finalizations_after_heal": 0},
        **changed,
    }
    outcome = run(Scenario.model_validate(scenario))
    assert outcome.ok, [i for i in outcome.invariants if not i.ok]
    assert VOLUNTEERS in [each.name for each in outcome.invariants]
    assert outcome.facts["rounds"] > 5
    return outcome


def rows(outcome: Outcome) -> dict[str, dict[str, Any]]:
    return {row["kind"]: row for row in outcome.facts["volunteers"]}


def refused(outcome: Outcome) -> dict[str, int]:
    (gateway,) = outcome.facts["gateways"]
    found: dict[str, int] = gateway["refused"]
    return found


def test_honest_volunteers_agree_and_liars_are_found_wrong_and_never_right() -> None:
    mixed: list[dict[str, Any]] = [
        {"count": 6},
        {"kind": "liar", "count": 2},
        {"kind": "colluder", "count": 2},
    ]
    outcome = outcome_of(mixed)
    found = rows(outcome)
    assert found["honest"]["agreed"] > 100
    assert found["honest"]["ended"] == {}
    for kind in LIARS:
        assert (found[kind]["agreed"], found[kind]["sessions"]) == (0, 2)  # and barred
        assert set(found[kind]["ended"]) == {"standing"}
    assert refused(outcome) == {"standing": sum(found[k]["ended"]["standing"] for k in LIARS)}


HOSTILE = {
    "garbler": "malformed",
    "oversizer": "oversize",
    "replayer": "replayed",
    "flooder": "too-fast",
}


def test_what_no_page_says_is_refused_by_its_reason_and_costs_its_address_alone() -> None:
    hostile: list[dict[str, Any]] = [
        {"kind": kind, "count": 2, "per_address": 2} for kind in HOSTILE
    ]
    outcome = outcome_of([{"count": 6}, *hostile])
    found = rows(outcome)
    assert found["honest"]["ended"] == {}
    assert found["honest"]["agreed"] > 100
    for kind, reason in HOSTILE.items():
        # the second of two sessions that are in may do so, too
        assert found[kind]["ended"][reason] == refused(outcome)[reason] in (16, 17), kind
        assert set(found[kind]["ended"]) == {reason, "address-faults"}


def test_a_thousand_names_from_one_address_are_sixteen() -> None:
    masked: dict[str, Any] = {"kind": "masker", "count": 8, "per_address": 8}
    outcome = outcome_of([{"count": 3}, masked])
    found = rows(outcome)
    assert found["masker"]["sessions"] == found["masker"]["ended"]["left"] == 16
    assert found["masker"]["ended"]["new-names"] == refused(outcome)["new-names"] > 100
    assert found["honest"]["ended"] == {}


def test_who_leaves_or_sleeps_hurts_nobody() -> None:
    outcome = outcome_of([{"count": 6}, {"kind": "leaver", "count": 3}, {"kind": "sleeper"}])
    found = rows(outcome)
    assert found["leaver"]["ended"]["left"] > 3
    assert found["leaver"]["disagreed"] == found["honest"]["disagreed"] == 0
    assert found["honest"]["agreed"] > 100
    assert refused(outcome) == {}


@pytest.mark.long
def test_two_hundred_keep_their_sessions_whoever_else_comes() -> None:
    outcome = run(open_scenario("crowd"))
    assert outcome.ok, [i for i in outcome.invariants if not i.ok]
    found = rows(outcome)
    assert (found["honest"]["sessions"], found["honest"]["ended"]) == (190, {})
    assert found["honest"]["agreed"] > 500
    assert found["honest"]["disagreed"] == found["leaver"]["disagreed"] == 0
    reasons = {"standing", "address-faults", "new-names", *HOSTILE.values()}
    assert set(refused(outcome)) == reasons
    assert outcome.facts["rounds"] > 5


@pytest.mark.parametrize("fidelity", ["light", "trio"])
def test_a_seed_gives_the_same_crowd_again(fidelity: str) -> None:
    few: list[dict[str, Any]] = [
        {"count": 3},
        {"kind": "liar"},
        {"kind": "garbler"},
        {"kind": "masker"},
    ]
    once, again = [outcome_of(few, fidelity=fidelity, seed=3) for _ in range(2)]
    assert once.trace_hash == again.trace_hash
    assert once.facts["volunteers"] == again.facts["volunteers"]
    assert rows(once)["honest"]["agreed"] > 20
