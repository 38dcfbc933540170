"""Facts beside the votes: what is news, what is kept, and what a final set settles."""

from dataclasses import replace

from daa_consensus.bft.evidence import conflict, encode_evidence
from daa_consensus.bft.messages import Limits, SetPayload, encode_signed
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.membership import Membership
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Leave,
    Operation,
    Request,
    encode_operation,
    membership_operations,
    signers_of,
)
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import ChainId, Digest, NodeId, ValidatorSetRoot
from daa_node.agreement.facts import EXEC_CERTIFICATES_KEPT, Facts

DOMAIN = Domain(ChainId(b"\x01" * 32), 0, ValidatorSetRoot(b"\x02" * 32))
ALICE, BOB = NodeId(b"a" * 32), NodeId(b"b" * 32)


def execution(round_number: int) -> Certificate:
    value = [b"v" * 32, b"r" * 32]
    return Certificate(Statement(DOMAIN, Kind.EXEC, 0, round_number, value), ())


def said(kind: Kind, view: int, value: bytes, signer: NodeId = ALICE) -> Signed:
    return Signed(Statement(DOMAIN, kind, view, 0, value), signer, b"signature")


def equivocation(view: int, signer: NodeId) -> bytes:
    found = conflict(
        said(Kind.NOTARIZE, view, b"x" * 32, signer), said(Kind.NOTARIZE, view, b"y" * 32, signer)
    )
    assert found is not None
    return encode_evidence(found)


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
    assert facts.note_evidence(first)
    assert not facts.note_evidence(first)
    for view in range(2, 50):
        more = conflict(said(Kind.NOTARIZE, view, b"x" * 32), said(Kind.NOTARIZE, view, b"y" * 32))
        assert more is not None
        assert not facts.note_evidence(more)
    other = conflict(said(Kind.NOTARIZE, 1, b"x" * 32, BOB), said(Kind.NOTARIZE, 1, b"y" * 32, BOB))
    assert other is not None
    assert facts.note_evidence(other)
    assert list(facts.evidence.values()) == [first, other]


def test_a_final_set_settles_the_evidence_and_the_rejoins_that_it_carries() -> None:
    facts = Facts(Limits(4, 4))
    for signer in (ALICE, BOB):
        found = conflict(
            said(Kind.NOTARIZE, 1, b"x" * 32, signer), said(Kind.NOTARIZE, 1, b"y" * 32, signer)
        )
        assert found is not None
        facts.note_evidence(found)
    old = said(Kind.REJOIN, 0, b"1" * 32)
    rejoin = said(Kind.REJOIN, 0, b"2" * 32)
    facts.note_rejoin(old)
    facts.note_rejoin(rejoin)
    assert facts.rejoins == {ALICE: encode_signed(rejoin)}
    settled = facts.settle(set_of((equivocation(1, ALICE),), (encode_signed(rejoin),)))
    assert settled == [rejoin]
    assert facts.rejoins == {}
    assert list(facts.evidence) == [equivocation(1, BOB)]


FOUR = Membership(Committee(tuple(Validator(NodeId(bytes([i]) * 32), 1) for i in range(4))))
NEWCOMER = NodeId(b"n" * 32)


def asked(action: Action, expires_epoch: int = 4) -> Operation:
    pairs = tuple((signer, b"signature") for signer in signers_of(action))
    return Operation(Request(action, expires_epoch), pairs)


def approvals(operation: Operation, count: int) -> list[Operation]:
    members = FOUR.committee.validators[:count]
    return [asked(Approve(member.node_id, operation.request.id)) for member in members]


def noted(*operations: Operation) -> Facts:
    facts = Facts(Limits(4, 4))
    for operation in operations:
        facts.note_operation(operation, FOUR)
    return facts


def test_a_join_goes_into_a_set_with_the_words_that_approve_of_it_and_not_alone() -> None:
    join = asked(Join(NEWCOMER, 1, b"keys"))
    assert noted(join).operations_for(FOUR) == ()
    whole = [join, *approvals(join, 2)]
    carried = noted(*reversed(whole)).operations_for(FOUR)
    assert set(carried) == {encode_operation(operation) for operation in whole}
    leave = asked(Leave(FOUR.committee.validators[3].node_id))
    assert noted(leave).operations_for(FOUR) == (encode_operation(leave),)


def test_a_set_carries_no_more_operations_than_it_may_and_always_a_sponsors_word() -> None:
    joins = [asked(Join(NodeId(bytes([50 + i]) * 32), 1, b"keys")) for i in range(4)]
    words = [word for join in joins for word in approvals(join, 4)]
    carried = noted(*joins, *words).operations_for(FOUR)
    assert len(carried) == Limits(4, 4).operations_max
    assert FOUR.decided(membership_operations(carried)).waiting


def test_what_the_chain_carries_is_forgotten_and_what_it_does_not_is_kept() -> None:
    join = asked(Join(NEWCOMER, 1, b"keys"))
    first, second = approvals(join, 2)
    facts = noted(join, first, second)
    facts.settle_requests(FOUR.decided([join, first]))
    assert list(facts.operations.values()) == [second]
    facts.settle_requests(replace(FOUR, epoch=4))
    assert not facts.operations


def test_a_stranger_or_a_talker_crowds_out_nobody() -> None:
    facts = Facts(Limits(4, 4))
    for i in range(50):
        facts.note_operation(asked(Join(NodeId(bytes([60 + i]) * 32), 1, b"keys")), FOUR)
        word = Approve(FOUR.committee.validators[0].node_id, Digest(bytes([i]) * 32))
        facts.note_operation(asked(word), FOUR)
    assert len(facts.operations) <= 4 + 5
    leave = asked(Leave(FOUR.committee.validators[1].node_id))
    assert facts.note_operation(leave, FOUR)
    assert not facts.note_operation(leave, FOUR)
