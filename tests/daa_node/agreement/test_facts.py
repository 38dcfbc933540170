"""Facts beside the votes: what is news, what is kept, and what a final set settles."""

from dataclasses import replace

from daa_consensus.bft.evidence import Evidence, conflict
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import SetPayload, encode_signed
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.membership import Membership, Seat
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Leave,
    Operation,
    Request,
    Rotate,
    signers_of,
)
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import ChainId, Digest, NodeId, ValidatorSetRoot
from daa_node.agreement.facts import EXEC_CERTIFICATES_KEPT, JOINS_EACH_MAX, Facts

DOMAIN = Domain(ChainId(b"\x01" * 32), 0, ValidatorSetRoot(b"\x02" * 32))
ALICE, BOB, CAROL = NodeId(b"a" * 32), NodeId(b"b" * 32), NodeId(b"c" * 32)
THREE = Membership(Committee(tuple(Validator(name, 1) for name in (ALICE, BOB, CAROL))))


def domain_of(epoch: int) -> Domain:
    return replace(DOMAIN, epoch=epoch)


def execution(round_number: int) -> Certificate:
    value = [b"v" * 32, b"r" * 32]
    return Certificate(Statement(DOMAIN, Kind.EXEC, 0, round_number, value), ())


def said(kind: Kind, view: int, value: bytes, signer: NodeId = ALICE) -> Signed:
    return Signed(Statement(DOMAIN, kind, view, 0, value), signer, b"signature")


def equivocation(view: int, signer: NodeId) -> Evidence:
    found = conflict(
        said(Kind.NOTARIZE, view, b"x" * 32, signer), said(Kind.NOTARIZE, view, b"y" * 32, signer)
    )
    assert found is not None
    return found


def set_of(evidence: tuple[bytes, ...], operations: tuple[bytes, ...]) -> SetPayload:
    return SetPayload(1, (), (), "mean", 0, evidence, operations, ())


def test_execution_certificates_of_old_rounds_push_out_no_newer_one() -> None:
    facts = Facts(Limits(4, 4))
    for round_number in range(100, 100 + EXEC_CERTIFICATES_KEPT):
        assert facts.note_exec(execution(round_number))
    for round_number in range(1, 50):
        assert not facts.note_exec(execution(round_number))
    kept = set(facts.exec_certificates)
    assert kept == set(range(100, 100 + EXEC_CERTIFICATES_KEPT))
    assert not facts.note_exec(execution(110))
    assert facts.note_exec(execution(200))
    assert 200 in facts.exec_certificates
    assert 100 not in facts.exec_certificates


def test_one_offence_of_each_offender_is_remembered_and_crowds_out_nobody_elses() -> None:
    facts = Facts(Limits(4, 4))
    first = conflict(said(Kind.NOTARIZE, 1, b"x" * 32), said(Kind.NOTARIZE, 1, b"y" * 32))
    assert first is not None
    assert facts.note_evidence(first, THREE)
    assert not facts.note_evidence(first, THREE)
    for view in range(2, 50):
        more = conflict(said(Kind.NOTARIZE, view, b"x" * 32), said(Kind.NOTARIZE, view, b"y" * 32))
        assert more is not None
        assert not facts.note_evidence(more, THREE)
    other = conflict(said(Kind.NOTARIZE, 1, b"x" * 32, BOB), said(Kind.NOTARIZE, 1, b"y" * 32, BOB))
    assert other is not None
    assert facts.note_evidence(other, THREE)
    assert list(facts.evidence.values()) == [first, other]


def test_a_final_set_settles_the_evidence_and_the_rejoins_that_it_carries() -> None:
    facts = Facts(Limits(4, 4))
    found = [equivocation(1, signer) for signer in (ALICE, BOB)]
    for evidence in found:
        assert facts.note_evidence(evidence, THREE)
    old = said(Kind.REJOIN, 0, b"1" * 32)
    rejoin = said(Kind.REJOIN, 0, b"2" * 32)
    facts.note_rejoin(old, THREE)
    facts.note_rejoin(rejoin, THREE)
    assert facts.rejoins == {ALICE: encode_signed(rejoin)}
    assert facts.settle(set_of((), (encode_signed(rejoin),))) == [rejoin]
    assert facts.rejoins == {}
    convicted = THREE.decided([], [(ALICE, 0)])
    facts.follow(convicted, domain_of)
    assert list(facts.evidence.values()) == [found[1]]
    assert not facts.note_evidence(equivocation(2, ALICE), convicted)


def test_evidence_against_a_former_key_is_kept_against_who_holds_the_seat() -> None:
    facts, gone, heir = Facts(Limits(4, 4)), NodeId(b"z" * 32), ALICE
    rotated = replace(THREE, seats=(Seat(gone, heir, 0), Seat(heir, heir, 3)), epoch=3)
    assert facts.note_evidence(equivocation(1, gone), rotated)
    assert set(facts.evidence) == {heir}
    assert not facts.note_evidence(equivocation(2, gone), rotated)
    assert not facts.note_evidence(equivocation(1, gone), THREE)


def test_of_who_is_no_member_nothing_is_remembered_and_of_who_leaves_nothing_is_kept() -> None:
    facts, gone = Facts(Limits(4, 4)), NodeId(b"z" * 32)
    for signer in (ALICE, gone):
        votes = [said(Kind.NOTARIZE, 1, value * 32, signer) for value in (b"x", b"y")]
        found = conflict(*votes)
        assert found is not None
        assert facts.note_evidence(found, THREE) == (signer == ALICE)
        facts.note_rejoin(said(Kind.REJOIN, 0, b"1" * 32, signer), THREE)
    assert set(facts.evidence) == set(facts.rejoins) == {ALICE}
    facts.follow(FOUR, domain_of)
    assert not facts.evidence
    assert not facts.rejoins


FOUR = Membership(Committee(tuple(Validator(NodeId(bytes([i]) * 32), 1) for i in range(4))))
NEWCOMER = NodeId(b"n" * 32)
MEMBER = FOUR.committee.validators[0].node_id


def asked(action: Action, expires_epoch: int = 4) -> Operation:
    pairs = tuple((signer, b"signature") for signer in signers_of(action))
    return Operation(Request(action, expires_epoch), pairs)


def approvals(operation: Operation, count: int) -> list[Operation]:
    members = FOUR.committee.validators[:count]
    return [asked(Approve(member.node_id, operation.request.id)) for member in members]


def noted(*operations: Operation) -> Facts:
    facts = Facts(Limits(4, 4))
    for operation in operations:
        facts.note_operation(operation, FOUR, MEMBER)
    return facts


def test_what_the_chain_carries_is_forgotten_and_what_it_does_not_is_kept() -> None:
    join = asked(Join(NEWCOMER, 1, b"keys"))
    first, second = approvals(join, 2)
    facts = noted(join, first, second)
    facts.follow(FOUR.decided([join, first]), domain_of)
    assert list(facts.operations.values()) == [second]
    facts.follow(replace(FOUR, epoch=4), domain_of)
    assert not facts.operations


def test_a_talker_crowds_out_nobody() -> None:
    facts = Facts(Limits(4, 4))
    for i in range(50):
        word = Approve(MEMBER, Digest(bytes([i]) * 32))
        facts.note_operation(asked(word), FOUR, MEMBER)
    assert len(facts.operations) <= 5
    leave = asked(Leave(FOUR.committee.validators[1].node_id))
    assert facts.note_operation(leave, FOUR, MEMBER)
    assert not facts.note_operation(leave, FOUR, MEMBER)


def test_joins_of_strangers_lie_in_places_of_the_member_that_brings_them() -> None:
    facts = Facts(Limits(4, 4))
    liar, honest = (v.node_id for v in FOUR.committee.validators[:2])
    joins = [asked(Join(NodeId(bytes([60 + i]) * 32), 1, b"keys")) for i in range(50)]
    mine, shared = joins[0], joins[1]
    assert facts.note_operation(mine, FOUR, honest)
    assert facts.note_operation(shared, FOUR, liar)
    assert facts.note_operation(shared, FOUR, honest)
    for join in joins[2:]:
        assert facts.note_operation(join, FOUR, liar)
    assert {mine.request.id, shared.request.id} <= set(facts.operations)
    assert len(facts.operations) == 2 + JOINS_EACH_MAX
    stranger = NodeId(b"s" * 32)
    assert not facts.note_operation(asked(Join(NEWCOMER, 1, b"keys")), FOUR, stranger)


def test_who_has_left_brings_its_own_join_in_as_many_places_as_anybody_and_no_more() -> None:
    facts = Facts(Limits(4, 4))
    for stake in range(1, 50):
        facts.note_operation(asked(Join(NEWCOMER, stake, b"keys")), FOUR, NEWCOMER)
        facts.follow(FOUR, domain_of)
    assert len(facts.operations) == JOINS_EACH_MAX


def test_a_join_that_another_brought_first_takes_a_place_of_whoever_approves_of_it() -> None:
    facts, (liar, honest) = Facts(Limits(4, 4)), [v.node_id for v in FOUR.committee.validators[:2]]
    wanted = asked(Join(NEWCOMER, 1, b"keys"))
    assert facts.note_operation(wanted, FOUR, liar)
    assert facts.note_operation(wanted, FOUR, honest), "it is to be told to everybody again"
    assert not facts.note_operation(wanted, FOUR, honest)
    word = asked(Approve(honest, wanted.request.id))
    assert facts.note_operation(word, FOUR, honest)
    assert facts.brought_by(honest) == [wanted, word]
    assert facts.brought_by(liar) == [wanted]


def test_what_a_thief_asked_for_keeps_no_member_from_leaving() -> None:
    facts = noted(asked(Rotate(MEMBER, NEWCOMER, b"keys")))
    assert facts.note_operation(asked(Leave(MEMBER)), FOUR, MEMBER)
