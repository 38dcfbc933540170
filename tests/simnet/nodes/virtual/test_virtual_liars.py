"""Liars among whole daemons: each is survived, and its fault is seen where it should be.

Every run checks the invariants, honest chains included, and that honest nodes finish the job.
"""

from typing import Any

import pytest

from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.world import run_virtual
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

ROUNDS = 3
RUNS_MAX = 8  # until a babbler of few words has said everything; four are enough today
UNREAD_BYTES_MAX = 2**18  # of one stream; an honest run comes to 2**14


def run(
    kind: str, rounds: int = ROUNDS, steps: int = 4, rule: str = "trimmed_mean", **lie: Any
) -> Outcome:
    """The last of four nodes lies."""
    return run_network([{"count": 4}], {"kind": kind, "nodes": [3], **lie}, rounds, steps, rule)


def run_network(
    groups: list[dict[str, Any]],
    lie: dict[str, Any],
    rounds: int,
    steps: int,
    rule: str,
    seed: int = 7,
) -> Outcome:
    fields = {
        "name": "liars",
        "fidelity": "trio",
        "seed": seed,
        "duration_s": 120,
        "nodes": groups,
        "topology": {"preset": "local"},
        "work": {"kind": "training", "rounds": rounds, "inner_steps_max": steps, "rule": rule},
        "adversaries": [lie],
    }
    outcome = run_virtual(Scenario.model_validate(fields), Trace())
    assert [each for each in outcome.invariants if not each.ok] == []
    honest = outcome.nodes - len(lie["nodes"])
    assert (outcome.facts["done"], outcome.facts["rounds"]) == (honest, rounds)
    assert len(outcome.final_roots) == 1
    return outcome


def held_against(outcome: Outcome) -> set[str]:
    return set(outcome.facts["liars"][0]["held_against"])


def contributions(outcome: Outcome) -> int:
    found: int = outcome.facts["liars"][0]["contributions"]
    return found


@pytest.mark.parametrize("kind", ["equivocator", "conflicter", "double_offerer", "false_executor"])
def test_who_signs_two_words_for_a_slot_is_convicted_and_excluded(kind: str) -> None:
    outcome = run(kind, rounds=6)
    assert held_against(outcome) == {"evidence", "equivocation"}
    assert outcome.facts["liars"][0]["excluded"]


def test_words_in_the_name_of_nobody_count_nothing_and_cost_their_sender() -> None:
    assert held_against(run("sybil")) == {"unknown-signer"}


@pytest.mark.parametrize(
    ("kind", "seen"),
    [("withholder", set()), ("false_acker", {"too_many_acks"}), ("staller", set())],
)
def test_whose_blobs_nobody_gets_in_time_is_left_out_of_every_set(
    kind: str, seen: set[str]
) -> None:
    outcome = run(kind)
    assert contributions(outcome) == 0
    assert held_against(outcome) >= seen


@pytest.mark.long
def test_garbage_on_every_protocol_is_blamed_banned_and_takes_no_room() -> None:
    outcome = run("babbler", rounds=6)
    assert held_against(outcome) >= {"malformed", "ban"}
    assert outcome.facts["unread_bytes_max"] < UNREAD_BYTES_MAX


@pytest.mark.long
def test_garbage_of_strangers_costs_no_member_a_round() -> None:
    """What a stranger babbles is drawn anew with each seed; its every kind is met in some run."""
    stranger = {"name": "stranger", "count": 1, "role": "observer"}
    lie = {"kind": "babbler", "nodes": [4]}
    unseen = {"oversize", "truncated", "malformed", "gossip-malformed", "hello-malformed"}
    unseen |= {"record-malformed", "request-malformed", "ban"}
    for seed in range(7, 7 + RUNS_MAX):
        outcome = run_network([{"count": 4}, stranger], lie, 5, 4, "trimmed_mean", seed)
        assert {name: of["participation"] for name, of in outcome.facts["classes"].items()} == {
            "node": 1.0,
            "stranger": 0.0,
        }
        unseen -= held_against(outcome)
        if not unseen:
            break
    assert not unseen


@pytest.mark.long
def test_two_daemons_under_one_key_disturb_nobody_else() -> None:
    """They take each other's streams, so that together they are hardly one node."""
    run("twin")


@pytest.mark.parametrize("poison", ["nan", "huge"])
def test_an_update_that_breaks_the_form_or_the_cap_is_refused_by_everybody(poison: str) -> None:
    outcome = run("poisoner", poison=poison)
    assert contributions(outcome) == 0
    assert held_against(outcome) >= {"update refused", "bad_update"}


@pytest.mark.long
def test_a_flipped_update_wrecks_a_mean_and_no_trimmed_mean() -> None:
    trimmed, mean = (run("poisoner", 4, 10, rule) for rule in ("trimmed_mean", "mean"))
    assert contributions(trimmed) == contributions(mean) == 4
    first, *_, last = trimmed.facts["losses"]
    assert last < 0.7 * first
    assert mean.facts["losses"][-1] > 2 * first


def test_a_free_rider_is_paid_like_anybody_until_steps_are_recomputed() -> None:
    outcome = run("free_rider")
    assert contributions(outcome) == ROUNDS
    assert outcome.facts["losses"][-1] < outcome.facts["losses"][0]
