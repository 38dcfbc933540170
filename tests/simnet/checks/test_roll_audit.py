"""Rules of the roll, broken one at a time by who accepts sets: the audit names each."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from daa_consensus import roll as roll_rules
from daa_consensus.bft.chain import follow
from daa_consensus.bft.messages import AbortPayload, OfferBody, SetPayload
from daa_consensus.committee import Committee, Validator
from daa_consensus.enrolment import (
    Enroll,
    Enrolment,
    Retire,
    TrainerAction,
    TrainerRequest,
    Vouch,
    encode_enrolment,
)
from daa_consensus.membership import Membership
from daa_consensus.roll import FORGOTTEN_ROUNDS, IDLE_ROUNDS, Admission, Roll, RollRules
from daa_dag.ids import BlobRoot, NodeId, VertexId
from simnet.checks.roll_audit import RollAudit
from tests.daa_consensus.bft.simulation import GENESIS, node_id, result_of
from tests.daa_consensus.bft.test_chain import on
from tests.daa_consensus.test_membership import FOUR

ALICE, BOB = node_id(0), node_id(1)
NEW = [NodeId(b"new" + b"%029d" % number) for number in range(4)]
RULES = RollRules(Admission.VOUCHED, per_voucher=2)
OPEN = RollRules(Admission.OPEN)


def asked(action: TrainerAction) -> Enrolment:
    return Enrolment(TrainerRequest(action, 90), b"signature")


def pair(member: NodeId, name: NodeId) -> list[Enrolment]:
    enrolment = asked(Enroll(name, b"keys"))
    return [enrolment, asked(Vouch(member, enrolment.request.id))]


def kept_on(roll: Roll, **changes: Any) -> Roll:
    return replace(roll, entries=tuple(replace(e, **changes) for e in roll.entries))


class Chain:
    """Rounds of one set each; `rules` and `members` are what whoever accepts them goes by."""

    def __init__(self, rules: RollRules = RULES, bad_among: int | None = None) -> None:
        lying = None if bad_among is None else lambda _members: bad_among
        self.audit = RollAudit(Roll(RULES), lying)
        self.now = Membership(FOUR, roll=Roll(rules))
        self.round = 0

    def wrong(
        self,
        *items: Enrolment,
        authors: tuple[NodeId, ...] = (),
        committee: Committee = FOUR,
        bent: Callable[[Roll], Roll] = lambda roll: roll,
        is_aborted: bool = False,
        f_agg: int = 0,
    ) -> str | None:
        """The next round's set and its closing; `bent`: what its set comes to."""
        self.round += 1
        base, blob = VertexId(b"v" * 32), BlobRoot(b"b" * 32)
        offers = tuple(
            OfferBody(self.round, name, base, blob, 9, "int8", 1, 1, 1, 1, 0, ())
            for name in authors
        )
        operations = tuple(encode_enrolment(item) for item in items)
        weights = (1,) * len(offers)
        rule = "mean" if self.audit._bad_among is None else "trimmed_mean"
        decided = SetPayload(self.round, offers, weights, rule, f_agg, (), operations, ())
        before = replace(self.now, committee=committee)
        unbounded = self.audit.unbounded(decided, before)
        requests = [item.request for item in items]
        roll = bent(before.roll.decided(self.round, requests, authors, (), FOUR.stake_of.keys()))
        self.now = replace(before, roll=roll)
        set_block = on(GENESIS, decided, height=self.round)
        wrong = self.audit.wrong(set_block, before, self.now)
        closing = AbortPayload(self.round) if is_aborted else result_of(set_block)
        at = on(set_block, closing, height=self.round)
        before, self.now = self.now, follow(self.now, at, 1000)
        drawn = self.audit.wrong(at, before, self.now)
        return unbounded or wrong or drawn


def test_who_enrols_is_vouched_for_trains_and_retires_is_nothing_wrong() -> None:
    chain, name = Chain(), NEW[0]
    assert chain.wrong(*pair(ALICE, name)) is None
    assert chain.wrong() is None
    assert chain.wrong(authors=(name,)) is None
    assert chain.audit.trained == {name}
    assert chain.wrong(asked(Retire(name, ALICE)), authors=(name,)) is None
    assert chain.wrong(authors=(name,)) is None
    assert chain.wrong() is None


def test_a_quota_that_is_not_enforced_is_named() -> None:
    chain = Chain(replace(RULES, per_voucher=3))
    assert chain.wrong(*pair(ALICE, NEW[0]), *pair(ALICE, NEW[1])) is None
    assert "over its quota" in (chain.wrong(*pair(ALICE, NEW[2])) or "")


def test_the_word_of_who_has_left_is_named() -> None:
    left = Committee(tuple(v for v in FOUR.validators if v.node_id != ALICE))
    assert "has no word" in (Chain().wrong(*pair(ALICE, NEW[0]), committee=left) or "")


@pytest.mark.parametrize("early", [0, 1])
def test_a_trainer_that_counts_a_round_too_early_is_named(early: int) -> None:
    chain = Chain()
    authors = ((), (NEW[0],)) if early else ((NEW[0],), ())
    told = [chain.wrong(*pair(ALICE, NEW[0]), authors=authors[0]), chain.wrong(authors=authors[1])]
    assert "may not train" in (told[early] or "")


def test_a_retired_trainer_that_is_counted_is_named() -> None:
    chain = Chain()
    chain.wrong(*pair(ALICE, NEW[0]))
    forgets = partial(kept_on, until=None)
    assert chain.wrong(asked(Retire(NEW[0], ALICE)), bent=forgets) is None
    # it may, in the round after, and is drawn for none thereafter
    told = chain.wrong(authors=(NEW[0],)) or ""
    assert f"the lot is otherwise on {NEW[0].hex()[:8]}" in told
    assert "may not train" in (chain.wrong(authors=(NEW[0],)) or "")


def test_trainers_of_a_voucher_that_left_train_no_more() -> None:
    left = Committee(tuple(v for v in FOUR.validators if v.node_id != ALICE))
    chain = Chain()
    chain.wrong(*pair(ALICE, NEW[0]))
    chain.wrong()
    assert chain.wrong(authors=(NEW[0],), committee=left) is None
    told = chain.wrong(authors=(NEW[0],), committee=left) or ""
    assert "the lot is otherwise on" in told
    assert "may not train" in (chain.wrong(authors=(NEW[0],), committee=left) or "")


def test_a_trainer_that_has_missed_otherwise_than_the_roll_says_is_named() -> None:
    chain = Chain()
    chain.wrong(*pair(ALICE, NEW[0]))
    chain.wrong(bent=lambda roll: kept_on(roll, missed=0))
    assert chain.wrong(is_aborted=True) is None  # nobody has missed that
    assert chain.now.roll.entries[0].missed == 0
    assert chain.wrong() is None
    wrong = chain.wrong(bent=lambda roll: kept_on(roll, missed=3))
    assert "has missed 2 rounds, on the roll 3" in (wrong or "")


def test_who_idles_comes_back_by_saying_so() -> None:
    chain = Chain()
    assert chain.wrong(*pair(ALICE, NEW[0])) is None
    assert not any(chain.wrong() for _ in range(IDLE_ROUNDS + 2))
    assert chain.now.roll.entries[0].is_idle
    assert chain.wrong(asked(Enroll(NEW[0], b"keys"))) is None
    assert chain.wrong() is None
    assert chain.wrong(authors=(NEW[0],)) is None


def test_a_lot_that_draws_others_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = replace(RULES, contributors_max=5)
    fair, first_come = Chain(rules), Chain(rules)
    for chain in (fair, first_come):
        chain.audit._rules = rules
    told = [
        [chain.wrong(*pair(ALICE, NEW[0]), *pair(BOB, NEW[1]), *pair(ALICE, NEW[2]))]
        for chain in (fair, first_come)
    ]
    told[0] += [fair.wrong() for _ in range(12)]
    monkeypatch.setattr(roll_rules, "draw", lambda ready, *_: list(ready)[:1])
    told[1] += [first_come.wrong() for _ in range(12)]
    assert not any(told[0])
    assert "the lot is otherwise on" in next(filter(None, told[1]))


def test_a_set_that_counts_too_few_who_may_be_bad_is_named() -> None:
    chain = Chain(bad_among=1)
    chain.wrong(*pair(ALICE, NEW[0]), *pair(ALICE, NEW[1]), *pair(BOB, NEW[2]))
    chain.wrong()
    members = tuple(FOUR.stake_of)
    assert chain.wrong(authors=(*members, *NEW[:3]), f_agg=3) is None
    wrong = chain.wrong(authors=(*members, *NEW[:3]), f_agg=2)
    assert wrong == "round 4: 3 of 7 may be bad, it says 2"
    assert chain.wrong(authors=(*members, NEW[0], NEW[2]), f_agg=2) is None
    assert chain.wrong(authors=members, f_agg=0) is None  # without trainers it is the plan's alone


def test_who_has_come_to_vote_is_no_trainer_that_may_be_bad() -> None:
    chain = Chain(bad_among=1)
    chain.wrong(*pair(ALICE, NEW[0]), *pair(ALICE, NEW[1]))
    chain.wrong()
    five = Committee(tuple(sorted([*FOUR.validators, Validator(NEW[0], 1)], key=by_name)))

    def without(roll: Roll) -> Roll:
        return replace(roll, entries=tuple(e for e in roll.entries if e.name != NEW[0]))

    authors = (*five.stake_of, NEW[1])
    assert chain.wrong(authors=authors, committee=five, bent=without, f_agg=2) is None


def by_name(validator: Validator) -> NodeId:
    return validator.node_id


def test_who_has_enrolled_just_now_is_none_of_those_planned() -> None:
    chain = Chain(OPEN, bad_among=1)
    chain.audit._rules = OPEN
    assert chain.wrong(*(asked(Enroll(name, b"keys")) for name in NEW[:3])) is None
    assert chain.wrong(asked(Enroll(NEW[3], b"keys"))) is None
    assert chain.wrong(authors=(*FOUR.stake_of, *NEW[:3]), f_agg=2) is None
    assert chain.wrong(authors=(*FOUR.stake_of, *NEW), f_agg=2) is not None


def test_who_has_waited_for_ever_in_an_open_network_is_forgotten() -> None:
    chain = Chain(OPEN)
    chain.audit._rules = OPEN
    again = asked(Enroll(NEW[0], b"keys"))
    assert chain.wrong(again) is None
    assert not any(chain.wrong() for _ in range(IDLE_ROUNDS + 2))
    chain.round += FORGOTTEN_ROUNDS
    chain.now = replace(chain.now, roll=replace(chain.now.roll, round=chain.round))
    late = asked_in(chain.round, Enroll(NEW[0], b"keys"))
    assert [chain.wrong(late), chain.wrong()] == [None, None]
    assert chain.now.roll.entries[0].missed == 0
    assert chain.wrong(authors=(NEW[0],)) is None


def asked_in(round_number: int, action: TrainerAction) -> Enrolment:
    return Enrolment(TrainerRequest(action, round_number + 90), b"signature")


def test_who_loses_a_place_that_nothing_took_is_named() -> None:
    chain = Chain()
    chain.wrong(*pair(ALICE, NEW[0]))
    wrong = chain.wrong(bent=lambda roll: replace(roll, entries=()))
    assert "has lost its place" in (wrong or "")


def test_who_is_retired_by_another_member_than_its_voucher_is_named() -> None:
    chain = Chain()
    chain.wrong(*pair(ALICE, NEW[0]))
    assert "not theirs to retire" in (chain.wrong(asked(Retire(NEW[0], BOB))) or "")


def test_who_comes_where_nobody_may_or_there_is_no_place_is_named() -> None:
    closed = Chain()
    closed.audit._rules = RollRules()
    assert "the network is closed" in (closed.wrong(*pair(ALICE, NEW[0])) or "")
    full = Chain()
    full.audit._rules = replace(RULES, roll_max=1)
    assert "more than 1 are" in (full.wrong(*pair(ALICE, NEW[0]), *pair(BOB, NEW[1])) or "")
    assert "votes, or stands" in (Chain().wrong(*pair(ALICE, BOB)) or "")


def test_one_enrolment_takes_one_word() -> None:
    enrolment, word = pair(ALICE, NEW[0])
    again = asked(Vouch(BOB, enrolment.request.id))
    assert "has no word to give" in (Chain().wrong(enrolment, word, again) or "")
