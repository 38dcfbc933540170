"""Every offence that the protocol lists, and nothing else, is evidence."""

from dataclasses import replace

import pytest

from daa_consensus.bft.evidence import (
    VERDICT_ROUNDS_MAX,
    conflict,
    contradiction,
    conviction,
    decode_evidence,
    encode_evidence,
)
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import OfferBody
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import BlobRoot, VertexId
from tests.daa_consensus.bft.simulation import committee_of, domain_of, node_id

DOMAIN = domain_of(committee_of([1] * 4))
LIMITS = Limits(4, 4)
A, B = b"a" * 32, b"b" * 32


def said(kind: Kind, value: canonical.Value, view: int = 3, height: int = 2) -> Signed:
    return Signed(Statement(DOMAIN, kind, view, height, value), node_id(0), b"signature")


def offer(size: int, round_: int = 2) -> Signed:
    body = OfferBody(round_, node_id(0), VertexId(A), BlobRoot(B), size, "int8", 1, 2, 3, 4, 5, ())
    return said(Kind.OFFER, body.as_value(), 0, round_)


def executed(root: bytes, round_: int = 2) -> Signed:
    return said(Kind.EXEC, [A, root], 0, round_)


NULLIFY = said(Kind.NULLIFY, None, height=0)
OFFENCES = {
    "two notarize": (said(Kind.NOTARIZE, A), said(Kind.NOTARIZE, B)),
    "two proposal": (said(Kind.PROPOSAL, A), said(Kind.PROPOSAL, B)),
    "two offer": (offer(1), offer(2)),
    "two exec": (executed(A), executed(B)),
    "finalize and nullify": (said(Kind.FINALIZE, A), NULLIFY),
    "finalize a, notarize b": (said(Kind.FINALIZE, A), said(Kind.NOTARIZE, B)),
    "one block, two heights": (said(Kind.NOTARIZE, A), said(Kind.NOTARIZE, A, height=7)),
}
INNOCENT = {
    "the same words": (said(Kind.NOTARIZE, A), replace(said(Kind.NOTARIZE, A), signature=b"2")),
    "another view": (said(Kind.NOTARIZE, A), said(Kind.NOTARIZE, B, view=4)),
    "another round": (executed(A), executed(B, 3)),
    "another signer": (said(Kind.NOTARIZE, A), replace(said(Kind.NOTARIZE, B), signer=node_id(1))),
    "notarize, then nullify": (said(Kind.NOTARIZE, A), NULLIFY),
    "finalize what was notarized": (said(Kind.FINALIZE, A), said(Kind.NOTARIZE, A)),
    "two nullify": (NULLIFY, NULLIFY),
    "acks grow": (said(Kind.ACK, [A], 0), said(Kind.ACK, [A, B], 0)),
    "a proposal and a vote": (said(Kind.PROPOSAL, A), said(Kind.NOTARIZE, B)),
}


@pytest.mark.parametrize("name", OFFENCES)
def test_an_offence_is_evidence_whatever_came_first(name: str) -> None:
    one, other = OFFENCES[name]
    evidence = conflict(one, other)
    assert evidence is not None
    assert evidence == conflict(other, one)
    assert evidence.offender == node_id(0)
    assert decode_evidence(encode_evidence(evidence), LIMITS) == evidence


@pytest.mark.parametrize("name", INNOCENT)
def test_an_honest_pair_is_no_evidence(name: str) -> None:
    one, other = INNOCENT[name]
    assert conflict(one, other) is None
    assert conflict(other, one) is None
    pair: list[canonical.Value] = ["pair", _value(one), _value(other)]
    forged = canonical.encode(pair)
    with pytest.raises(BadMessage):
        decode_evidence(forged, LIMITS)


def _value(signed: Signed) -> canonical.Value:
    d, s = signed.statement.domain, signed.statement
    fields: list[canonical.Value] = [d.chain_id, d.epoch, d.validator_set_root, str(s.kind)]
    return [*fields, s.view, s.height, s.value, signed.signer, signed.signature]


def test_another_epoch_or_chain_is_another_slot() -> None:
    one, other = OFFENCES["two notarize"]
    elsewhere = replace(other.statement, domain=replace(DOMAIN, epoch=1))
    assert conflict(one, replace(other, statement=elsewhere)) is None


def test_an_exec_against_the_certificate_of_its_slot_is_evidence() -> None:
    agreed = executed(B).statement
    certificate = Certificate(agreed, tuple((node_id(i), b"s") for i in (1, 2, 3)))
    evidence = contradiction(executed(A), certificate)
    assert evidence is not None
    assert evidence.offender == node_id(0)
    assert decode_evidence(encode_evidence(evidence), LIMITS) == evidence
    assert contradiction(executed(B), certificate) is None
    assert contradiction(executed(A, 3), certificate) is None
    assert contradiction(said(Kind.NOTARIZE, A), certificate) is None


def test_one_offence_has_one_encoding() -> None:
    evidence = conflict(*OFFENCES["two notarize"])
    assert evidence is not None
    swapped = replace(evidence, parts=evidence.parts[::-1])
    with pytest.raises(BadMessage, match="ordered"):
        decode_evidence(encode_evidence(swapped), LIMITS)


def test_evidence_has_a_size_limit_that_a_full_certificate_fits() -> None:
    for n in (4, 100):
        limits = Limits(n, n)
        committee = committee_of([1] * 4)
        pairs = tuple((bytes([i]) * 32, b"s" * 3_309) for i in range(n))
        certificate = Certificate(executed(B).statement, pairs)  # type: ignore[arg-type]
        evidence = contradiction(replace(executed(A), signature=b"s" * 3_309), certificate)
        assert evidence is not None
        assert decode_evidence(encode_evidence(evidence), limits) == evidence
        assert len(committee.validators) == 4
    with pytest.raises(BadMessage):
        decode_evidence(b"x" * (LIMITS.evidence_bytes_max + 1), LIMITS)


def verdict(convicted: bytes = bytes(node_id(2)), round_: int = 7) -> Certificate:
    pairs = tuple((node_id(number), b"signature") for number in range(3))
    return Certificate(said(Kind.VERDICT, [convicted, A], 0, round_).statement, pairs)


def test_a_quorum_of_verdicts_convicts_whom_it_names() -> None:
    evidence = conviction(verdict())
    assert evidence is not None
    assert (evidence.offender, evidence.epoch) == (node_id(2), DOMAIN.epoch)
    assert decode_evidence(encode_evidence(evidence), LIMITS) == evidence
    assert conviction(Certificate(executed(A).statement, verdict().signatures)) is None
    other = Certificate(executed(A).statement, verdict().signatures)
    encoded = encode_evidence(replace(evidence, parts=(other,)))
    with pytest.raises(BadMessage, match="do not prove an offence"):
        decode_evidence(encoded, LIMITS)


def test_a_verdict_is_carried_in_time_or_never_and_other_evidence_whenever() -> None:
    evidence = conviction(verdict(round_=7))
    assert evidence is not None
    late = [round_ for round_ in range(200) if evidence.is_late_for(round_)]
    assert late == [*range(7), *range(8 + VERDICT_ROUNDS_MAX, 200)]
    other = conflict(*OFFENCES["two exec"])
    assert other is not None
    assert not any(other.is_late_for(round_) for round_ in range(200))
