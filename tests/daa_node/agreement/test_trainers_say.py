"""What a trainer may say, what of it is believed, and what a set carries of it."""

import pytest

from daa_consensus.bft.evidence import encode_evidence
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import AbortPayload, Block, decode_signed
from daa_consensus.membership import Membership
from daa_consensus.roll import RollRules, fixed
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import BlockId
from daa_node.agreement.carried import why_unproven
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbound import TRAINERS_SAY, Inbound
from daa_node.agreement.signer import outlook
from daa_node.errors import PeerFault
from daa_node.identity.validators import MemberKeys, Validators, part_of
from tests.daa_node.agreement.test_carried import (
    CHAIN,
    COMMITTEE,
    EPOCH_ROUNDS,
    KEYS,
    LEAVE,
    NAMES,
    SOME_JOIN,
    approve,
    block_of,
    carried,
    changed,
    equivocation,
    facts_of,
    offence,
    rejoin,
    said,
)

TRAINER, STRANGER = 5, 6  # of KEYS


def with_trainer() -> Validators:
    known = {0, 1, 2, 3, TRAINER}
    return Validators(
        CHAIN,
        EPOCH_ROUNDS,
        Membership(
            COMMITTEE,
            roll=fixed(RollRules(), {NAMES[TRAINER]: MemberKeys.of(KEYS[TRAINER]).encode()}),
        ),
        {KEYS[n].node_id: KEYS[n].ml_dsa_public_key for n in known},
        {KEYS[n].node_id: KEYS[n].peer_id for n in known},
        [NAMES[n] for n in known],
        check=lambda *_: True,
    )


@pytest.mark.parametrize("kind", list(Kind))
def test_a_trainer_says_what_binds_a_contributor_and_nothing_of_a_vote(kind: Kind) -> None:
    inbound = Inbound(with_trainer())
    believed = {0} | ({TRAINER} if kind in TRAINERS_SAY else set())
    for who in (0, TRAINER, STRANGER):
        statement = said(who, kind, b"x" * 32)
        if who in believed:
            inbound.verify(statement)
            continue
        with pytest.raises(PeerFault, match="unknown-signer"):
            inbound.verify(statement)
    votes = {Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE, Kind.PROPOSAL, Kind.ACK, Kind.EXEC}
    assert not votes & TRAINERS_SAY


def test_who_has_left_offers_nothing_though_its_key_is_known() -> None:
    known = with_trainer()
    known.follow(
        [
            block_of(changed([], LEAVE), 1),
            Block(CHAIN, 0, 2, 1, BlockId(b"s" * 32), 1, AbortPayload(1)),
        ]
    )
    left, inbound = LEAVE.request.action.subject, Inbound(known)
    for who, is_believed in ((NAMES[TRAINER], True), (left, False)):
        offered = Statement(known.domain(1), Kind.OFFER, 0, 2, b"x" * 32)
        signed = Signed(offered, who, b"signature")
        if is_believed:
            inbound.verify(signed)
            continue
        with pytest.raises(PeerFault, match="unknown-signer"):
            inbound.verify(signed)


def test_two_offers_of_a_trainer_convict_it_and_it_contributes_no_more() -> None:
    known = with_trainer()
    facts = Facts(known.limits)
    assert facts.note_evidence(equivocation(TRAINER, Kind.OFFER, 0, 0), known.now)
    proof = offence(TRAINER, Kind.OFFER, view=0)
    assert carried(facts, known).evidence == (proof,)
    assert why_unproven(changed([proof]), Inbound(known)) is None
    assert NAMES[TRAINER] in known.contributors(1)
    known.follow([block_of(changed([proof]), 1)])
    assert known.now.convicted == (NAMES[TRAINER],)
    assert not facts.note_evidence(equivocation(TRAINER, Kind.OFFER, 0, 0), known.now)
    assert NAMES[TRAINER] not in known.contributors(2)
    assert {*known.contributors(2)} == {*NAMES[:4]}


def test_proofs_against_trainers_take_no_room_of_those_against_members() -> None:
    """Else trainers that are convicted one after another would keep a member in its seat."""
    known = with_trainer()
    facts = Facts(known.limits)
    assert facts.note_evidence(equivocation(TRAINER, Kind.OFFER, 0, 0), known.now)
    against_members = [equivocation(n, Kind.OFFER, 0, 0) for n in range(4)]
    for evidence in against_members:
        assert facts.note_evidence(evidence, known.now)
    in_turn = [*against_members, *facts.evidence.values()][:5]
    assert list(carried(facts, known).evidence) == [encode_evidence(each) for each in in_turn]


def test_of_a_stranger_two_offers_convict_nobody() -> None:
    known = with_trainer()
    assert not Facts(known.limits).note_evidence(equivocation(6, Kind.OFFER, 0, 0), known.now)
    assert why_unproven(changed([offence(6, Kind.OFFER, view=0)]), Inbound(known)) is not None


def test_a_trainer_that_lost_its_memory_is_let_offer_again_after_all_members_items() -> None:
    """Else trainers that ask again and again would fill the sets."""
    known = with_trainer()
    words = [approve(n, SOME_JOIN) for n in range(3)]
    facts = facts_of([SOME_JOIN, *words])
    for held in (rejoin(TRAINER), rejoin(0)):
        signed = decode_signed(held, Limits(9, 9))
        facts.note_rejoin(signed, known.now)
    facts.note_rejoin(decode_signed(rejoin(STRANGER), Limits(9, 9)), known.now)
    assert {*facts.rejoins} == {NAMES[TRAINER], NAMES[0]}
    loaded = carried(facts, known)
    assert len(loaded.operations) == len(COMMITTEE.validators) + 1
    assert rejoin(0) in loaded.operations
    assert rejoin(TRAINER) not in loaded.operations  # no room is left
    facts.operations.clear()
    assert rejoin(TRAINER) in carried(facts, known).operations
    assert why_unproven(changed([], rejoin(TRAINER)), Inbound(known)) is None
    assert why_unproven(changed([], rejoin(TRAINER), rejoin(TRAINER)), Inbound(known)) is not None
    facts.follow(known.now, known.domain)
    assert NAMES[TRAINER] in facts.rejoins


def test_members_write_to_trainers_and_know_what_they_are() -> None:
    known = with_trainer()
    assert NAMES[TRAINER] in known.listeners
    assert [part_of(NAMES[n], known.now) for n in (0, TRAINER, STRANGER)] == [
        "validator",
        "trainer",
        "observer",
    ]
    assert known.limits.contributors > known.limits.validators
    said_of = outlook("the guard is lost", COMMITTEE, NAMES[TRAINER], is_trainer=True)
    assert said_of is not None
    assert "contributes again once a set carries its Rejoin" in said_of
