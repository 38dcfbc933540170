"""Whole rounds of a crowd that comes and goes, and mistakes in the roll that the audit must see."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from daa_consensus import roll
from daa_consensus.roll import Entry, Roll
from daa_node.errors import UserError
from daa_node.rounds import plan
from simnet.checks.outcome import Outcome
from simnet.nodes.heap.round_blobs import Shipments
from simnet.nodes.heap.round_books import (
    AGREED,
    BOUNDED,
    IDLES,
    MEMORY,
    PROGRESS,
    QUOTAS,
    WAITS,
    Books,
)
from simnet.nodes.heap.round_chain import Chain
from simnet.nodes.heap.round_crowd import Crowd
from simnet.nodes.heap.round_messages import Proposed
from simnet.nodes.heap.round_seats import Seat
from simnet.nodes.heap.rounds import Rounds, run_rounds
from simnet.world.determinism import Streams, Trace
from simnet.world.scenario import Scenario

TIGHT = {"per_voucher": 15, "replaced_percent": 50}  # 105 places for a hundred
ATTRITION = {"kind": "attrition", "at_s": 2, "percent": 30, "away_s": [5, 20]}


def scenario(trainers: int = 100, validators: int = 7, **fields: Any) -> Scenario:
    """Six times the attrition of the shipped scenario: a minute of it is soon played."""
    crowd = {"contributors_max": 30, "per_voucher": 16} | fields.pop("crowd", {})
    plain: dict[str, Any] = {
        "name": "test",
        "seed": 1,
        "fidelity": "heap",
        "duration_s": 60,
        "nodes": [
            {"name": "validator", "count": validators},
            {"name": "trainer", "count": trainers, "role": "trainer"},
        ],
        "topology": {"preset": "regional", "mbit_s": 100},
        "work": {
            "kind": "rounds",
            "chunks": 4,
            "step_s": 0.1,
            "inner_steps_max": 20,
            "window_s": 5,
            "crowd": crowd,
        },
        "faults": [ATTRITION],
        "checks": {"heal_s": 20},
    }
    return Scenario.model_validate(plain | fields)


def played(*of: int, **fields: Any) -> Outcome:
    return run_rounds(scenario(*of, **fields), Trace())


def broken(outcome: Outcome) -> list[str]:
    return [invariant.name for invariant in outcome.invariants if not invariant.ok]


@cache
def a_minute() -> Outcome:
    """Of a hundred trainers, half of whom give way to others when they leave."""
    return played(crowd=TIGHT)


def test_a_hundred_trainers_make_rounds_while_a_third_leaves_in_a_minute() -> None:
    outcome = a_minute()
    assert not broken(outcome)
    facts = outcome.facts
    assert facts["rounds"] >= 10
    assert facts["rounds_aborted"] == 0
    assert facts["drawn_in_set_share"] > 0.5
    assert facts["counted_share"] > 0.5
    assert 0 < facts["bad_most"] < 15  # of at most 30, a trimmed mean holds off so many


def test_a_contribution_leaves_its_author_about_once() -> None:
    facts = a_minute().facts
    assert facts["upload_percent_p50"] == 100
    assert facts["upload_percent_p99"] <= 200


def test_newcomers_are_in_a_set_no_sooner_than_two_rounds_after_their_voucher_spoke() -> None:
    facts = a_minute().facts
    assert facts["enrolled"] > 3
    assert facts["first_set_rounds_p50"] >= roll.EFFECT_ROUNDS


def test_a_newcomer_is_in_no_plan_before_its_round() -> None:
    world = scenario(20, 4)
    names = Crowd(world, Streams(1)).names
    chain = Chain(world, names[:4], names[4:20])
    entry = Entry(names[20], b"keys", names[0], since=2, missed=0, planned=1)
    chain.roll = Roll(chain.roll.rules, (*chain.roll.entries, entry))
    chain.decide([], ())
    chain.certify()
    # at the draw of round 2 it may be there, in round 1 it was not, whatever `planned` says
    assert names[20] in {each.name for each in chain.roll.ready(2)}
    early = Entry(names[20], b"keys", names[0], since=4, missed=0, planned=3)
    chain.roll = Roll(chain.roll.rules, (*chain.roll.entries[:-1], early))
    chain.decide([], ())
    chain.certify()
    assert chain.plan.round == 3
    assert chain.plan.share_of(names[20]) is None


def test_ten_times_as_many_rounds_keep_no_more() -> None:
    quick: dict[str, Any] = {"crowd": {"replaced_percent": 50, "contributors_max": 10}}
    short, long = played(16, 4, duration_s=25, **quick), played(16, 4, duration_s=250, **quick)
    assert not broken(long)
    assert long.facts["rounds"] > 8 * short.facts["rounds"]
    assert long.facts["kept_entries_most"] < 1.3 * short.facts["kept_entries_most"]


def test_blobs_that_nobody_forgets_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shipments, "forget", lambda *_: None)
    crowd = {"contributors_max": 10}
    assert broken(played(16, 4, duration_s=60, faults=[], crowd=crowd)) == [MEMORY]


def waits_of(rounds: int, comes: bool = True) -> Books:
    """A chain without a network: whoever is drawn is in the set, or nobody ever is."""
    world = scenario()
    names = Crowd(world, Streams(1)).names
    chain = Chain(world, names[:7], names[7:])
    books = Books(16, chain.members, chain.room)
    for _ in range(rounds):
        books.begins(chain.roll, chain.plan, {*names}, 0)
        books.certified(chain.decide([], ()), chain.vouchers, 0)
        chain.certify()
        if comes:
            entries = tuple(replace(entry, missed=0) for entry in chain.roll.entries)
            chain.roll = Roll(chain.roll.rules, entries)
    return books


def test_nobody_waits_for_longer_than_the_lot_promises() -> None:
    books = waits_of(60)
    assert not books.wrong
    assert books.turn_max < books.waited_max <= books.waited_bound


def test_a_lot_in_which_waiting_counts_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(ready: Any, round_number: int, seed: bytes, room: int) -> list[Entry]:
        return sorted(ready, key=lambda entry: Streams(0).bytes(f"{seed!r} {entry.name!r}"))[:room]

    monkeypatch.setattr(roll, "draw", draw)
    assert WAITS in waits_of(60).wrong


def test_who_idles_by_waiting_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert IDLES not in waits_of(60, comes=False).wrong

    def after_set(entry: Entry, _round_number: int, is_in: bool) -> Entry:
        return replace(entry, missed=0 if is_in else entry.missed + 1)

    monkeypatch.setattr(Entry, "after_set", after_set)
    assert IDLES in waits_of(60, comes=False).wrong


def test_a_quota_that_nobody_enforces_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not broken(a_minute())
    monkeypatch.setattr(Roll, "vouched_by", lambda *_: 0)
    assert QUOTAS in broken(played(crowd=TIGHT))


def test_a_set_that_counts_on_too_few_liars_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "lying_max", lambda *_: 0)
    assert broken(played(duration_s=15)) == [BOUNDED]


def test_without_a_quorum_there_are_no_rounds_and_with_it_there_are_again() -> None:
    gone = {"kind": "kill", "at_s": 10, "nodes": [0, 1, 2]}
    assert broken(played(40, faults=[gone])) == [PROGRESS]
    back = gone | {"for_s": 12}
    assert not broken(played(40, faults=[back]))


@pytest.mark.parametrize("kind", ["partition", "slow", "pause"])
def test_other_faults_only_cost_time(kind: str) -> None:
    fault: dict[str, Any] = {"kind": kind, "at_s": 8, "for_s": 6, "nodes": [0, 1, 20, 21, 22]}
    outcome = played(40, duration_s=40, faults=[fault])
    assert not broken(outcome)


def test_two_sets_of_one_round_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Seat._count

    def hasty(self: Seat) -> None:
        """One vote decides, and each counts its own set."""
        for proposal in list(self._proposals.values()):
            self._host.decide(Proposed(proposal.round, 0, frozenset(), proposal.requests))
        plain(self)

    monkeypatch.setattr(Seat, "_count", hasty)
    assert AGREED in broken(played(20, 4, duration_s=15))


def test_what_rounds_on_the_heap_do_not_have_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="no adversaries"):
        played(adversaries=[{"kind": "babbler"}])
    with pytest.raises(UserError, match="no observers"):
        played(nodes=[{"count": 4}, {"count": 1, "role": "observer"}])
    with pytest.raises(UserError, match=r"heap rounds has no disk: faults\[0\]"):
        played(faults=[{"kind": "disk", "at_s": 1}])


CANARY = """
import sys
from simnet.world.determinism import Trace
from simnet.nodes.heap.rounds import run_rounds
from simnet.world.scenario import Scenario
print(run_rounds(Scenario.model_validate_json(sys.argv[1]), Trace()).trace_hash)
"""


def test_two_fresh_processes_play_one_seed_alike() -> None:
    text = scenario(20, 4, duration_s=20).model_dump_json()
    hashes = {
        subprocess.run(
            [sys.executable, "-c", CANARY, text],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(hashes) == 1


def test_a_world_holds_one_life_of_each_machine() -> None:
    world = Rounds(scenario(20, 4, duration_s=20, crowd={"replaced_percent": 100}), Trace())
    world.run()
    assert len({*world.crowd.names}) == 24
    assert len(world.crowd.up) <= 24
