"""Changes of the validator set in heap consensus: each takes effect, for everybody alike."""

from typing import Any

import pytest

from simnet.determinism import UP, Trace
from simnet.heap import consensus
from simnet.invariants import ADMITTED
from simnet.links import NS
from simnet.outcome import Outcome
from simnet.scenario import Scenario

OUTSIDE = {"name": "outside", "count": 1, "role": "observer"}


def run(changes: list[dict[str, Any]], validators: int = 4, **fields: object) -> Outcome:
    named = {
        "name": "members",
        "nodes": [{"count": validators}, OUTSIDE],
        "work": {"epoch_rounds": 2},
        "changes": changes,
    }
    return consensus.run(Scenario.model_validate({**named, **fields}), Trace())


def broken(outcome: Outcome) -> list[str]:
    return [f"{i.name}: {i.detail}" for i in outcome.invariants if not i.ok]


def marks(outcome: Outcome) -> set[str]:
    return {mark.name for mark in outcome.sometimes if mark.hits}


JOIN = {"kind": "join", "at_s": 0.5, "node": 4, "stake": 1}
DOWN, ALONE = {"kind": "kill"}, {"kind": "partition", "shape": "isolate"}
ROTATE = {"kind": "rotate", "at_s": 0.5, "node": 1, "successor": 4}


@pytest.mark.parametrize(
    ("change", "mark"),
    [
        (JOIN, "joiner voted"),
        ({"kind": "leave", "at_s": 0.5, "node": 0}, "leaver stopped"),
        (ROTATE, "rotated key voted"),
        ({"kind": "stake", "at_s": 0.5, "node": 2, "stake": 2}, "stake changed"),
    ],
)
def test_each_change_takes_effect_and_the_new_committee_goes_on(
    change: dict[str, Any], mark: str
) -> None:
    outcome = run([change], validators=4)
    assert broken(outcome) == []
    assert mark in marks(outcome)
    assert len(outcome.facts["committees"]) == 2


class Counting(Trace):
    """Counts the letters that tell of a change."""

    told = 0

    def frame(self, now_ns: int, sender: int, receiver: int, payload: bytes | memoryview) -> None:
        super().frame(now_ns, sender, receiver, payload)
        self.told += b"\xa5asked" in bytes(payload)


def test_a_change_costs_letters_by_the_square_of_the_members_and_not_by_their_cube() -> None:
    trace, members = Counting(), 10
    nodes = [{"count": members}, OUTSIDE]
    join = {**JOIN, "node": members}
    consensus.run(
        Scenario.model_validate({"name": "told", "nodes": nodes, "changes": [join]}), trace
    )
    # The request, told on by each member to whom it was news, and each member's approval.
    assert members < trace.told <= 3 * members**2


class Restarts(Trace):
    """Counts the letters that tell a node of a new stake once it is back from a fall."""

    def __init__(self, node: int) -> None:
        super().__init__()
        self.node, self.told, self.lives = node, 0, 0

    def note(self, now_ns: int, what: str, **fields: Any) -> None:
        super().note(now_ns, what, **fields)
        self.lives += what == UP and fields["node"] == self.node

    def frame(self, now_ns: int, sender: int, receiver: int, payload: bytes | memoryview) -> None:
        super().frame(now_ns, sender, receiver, payload)
        told = b"\xa5stake" in bytes(payload) and now_ns < 9 * NS
        self.told += self.lives > 1 and receiver == self.node and told


def test_whom_the_power_fails_in_a_write_is_told_again_what_others_ask_for() -> None:
    """No quorum is connected meanwhile, so no set carries it before the links are back."""
    halves = {"kind": "partition", "shape": "halves", "at_s": 0.1, "for_s": 9, "nodes": [0, 1]}
    torn = {"kind": "disk", "disk": "torn_write", "at_s": 0.6, "for_s": 0.05, "nodes": [1]}
    trace = Restarts(1)
    scenario = {
        "name": "told-again",
        "nodes": [{"count": 4}],
        "changes": [{"kind": "stake", "at_s": 0.5, "node": 0, "stake": 2}],
        "faults": [halves, torn],
    }
    outcome = consensus.run(Scenario.model_validate(scenario), trace)
    assert broken(outcome) == []
    assert trace.lives == 2
    assert trace.told


def test_who_leaves_may_come_back_under_the_same_key_and_signs_no_slot_twice() -> None:
    back = [
        {"kind": "leave", "at_s": 0.5, "node": 0},
        {"kind": "join", "at_s": 5, "node": 0, "stake": 1},
    ]
    kill = {"kind": "kill", "at_s": 4, "for_s": 0.5, "nodes": [0]}
    outcome = run(back, validators=5, faults=[kill])
    assert broken(outcome) == []
    assert {"leaver stopped", "joiner voted"} <= marks(outcome)
    first, *_, last = outcome.facts["committees"]
    assert len(outcome.facts["committees"]) == 3
    assert first == last


def test_who_slept_over_more_epochs_than_any_peer_remembers_follows_pages() -> None:
    """Nobody writes to a newcomer, and peers remember how the last four epochs ended."""
    changes = [{**JOIN, "node": 5}, {"kind": "stake", "at_s": 3, "node": 1, "stake": 2}]
    asleep = {"kind": "kill", "at_s": 0.2, "for_s": 20, "nodes": [0]}
    outcome = run(changes, validators=5, faults=[asleep], work={"epoch_rounds": 1})
    assert broken(outcome) == []
    seen = {"page of checkpoints followed", "change of members followed by who was away"}
    assert seen <= marks(outcome)


@pytest.mark.parametrize(("away", "voter"), [(DOWN, True), (ALONE, True), (DOWN, False)])
def test_who_was_away_until_all_that_it_knew_had_left_and_stopped_ends_on_the_same_chain(
    away: dict[str, str], voter: bool
) -> None:
    """Every seat but its own goes to a stranger; then nobody is left whom it would believe."""
    leavers = range(3) if voter else range(4)
    us, heirs = (3, range(4, 7)) if voter else (8, range(4, 8))
    rotations = [
        {"kind": "rotate", "at_s": 0.5 + 2 * n, "node": leaver, "successor": heir}
        for n, (leaver, heir) in enumerate(zip(leavers, heirs, strict=True))
    ]
    gone = {"kind": "kill", "at_s": 16, "nodes": list(leavers)}  # for good
    absence = {**away, "at_s": 0.2, "for_s": 20, "nodes": [us]}
    outcome = run(
        rotations,
        nodes=[{"count": 4}, {**OUTSIDE, "count": len(heirs) + (not voter)}],
        faults=[absence, gone],
        work={"epoch_rounds": 1},
    )
    assert broken(outcome) == []
    seats = {us, *heirs} if voter else set(heirs)
    assert outcome.facts["committees"][-1] == " ".join(f"{n}:1" for n in sorted(seats))
    assert {"chain found through just anybody", "leaver stopped"} <= marks(outcome)


def test_without_a_quorum_that_approves_nothing_comes_of_a_join_and_the_run_says_so() -> None:
    cut = {"kind": "partition", "shape": "isolate", "at_s": 0, "for_s": 1e9, "nodes": [4]}
    outcome = run([JOIN], faults=[cut], checks={"heal_s": 20})
    assert [b.split(":")[0] for b in broken(outcome)] == [ADMITTED]
    assert "join" in broken(outcome)[0]
