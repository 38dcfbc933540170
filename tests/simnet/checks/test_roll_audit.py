"""Rules of the roll, broken one at a time by who accepts sets: the audit names each."""

from dataclasses import replace

import pytest

from daa_consensus.bft.messages import OfferBody, SetPayload
from daa_consensus.committee import Committee
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
from daa_consensus.roll import Admission, Roll, RollRules
from daa_dag.ids import BlobRoot, NodeId, VertexId
from simnet.checks.roll_audit import RollAudit
from tests.daa_consensus.bft.simulation import node_id
from tests.daa_consensus.test_membership import FOUR

ALICE, BOB = node_id(0), node_id(1)
NEW = [NodeId(b"new" + b"%029d" % number) for number in range(4)]
RULES = RollRules(Admission.VOUCHED, per_voucher=2)


def asked(action: TrainerAction) -> Enrolment:
    return Enrolment(TrainerRequest(action, 90), b"signature")


def pair(member: NodeId, name: NodeId) -> list[Enrolment]:
    enrolment = asked(Enroll(name, b"keys"))
    return [enrolment, asked(Vouch(member, enrolment.request.id))]


class Chain:
    """Sets, one a round; `quota` and `members` are what whoever accepts them goes by."""

    def __init__(self, quota: int = 2) -> None:
        self.audit = RollAudit(Roll(RULES))
        self.now = Membership(FOUR, roll=Roll(replace(RULES, per_voucher=quota)))
        self.round = 0

    def wrong(
        self,
        *items: Enrolment,
        authors: tuple[NodeId, ...] = (),
        committee: Committee = FOUR,
        forgets_retired: bool = False,
    ) -> str | None:
        self.round += 1
        base, blob = VertexId(b"v" * 32), BlobRoot(b"b" * 32)
        offers = tuple(
            OfferBody(self.round, name, base, blob, 9, "int8", 1, 1, 1, 1, 0, ())
            for name in authors
        )
        operations = tuple(encode_enrolment(item) for item in items)
        weights = (1,) * len(offers)
        decided = SetPayload(self.round, offers, weights, "mean", 0, (), operations, ())
        before = replace(self.now, committee=committee)
        requests = [item.request for item in items]
        members = FOUR.stake_of.keys()
        roll = before.roll.decided(self.round, requests, authors, (), members)
        if forgets_retired:
            roll = replace(roll, entries=tuple(replace(e, until=None) for e in roll.entries))
        self.now = replace(before, roll=roll)
        return self.audit.wrong(decided, before, self.now)


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
    chain = Chain(quota=3)
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
    assert chain.wrong(asked(Retire(NEW[0], ALICE)), forgets_retired=True) is None
    assert chain.wrong(authors=(NEW[0],)) is None  # it may, in the round after
    assert "may not train" in (chain.wrong(authors=(NEW[0],)) or "")


def test_trainers_of_a_voucher_that_left_train_no_more() -> None:
    left = Committee(tuple(v for v in FOUR.validators if v.node_id != ALICE))
    chain = Chain()
    chain.wrong(*pair(ALICE, NEW[0]))
    chain.wrong()
    assert chain.wrong(authors=(NEW[0],), committee=left) is None
    assert chain.wrong(authors=(NEW[0],), committee=left) is None
    assert "may not train" in (chain.wrong(authors=(NEW[0],), committee=left) or "")
