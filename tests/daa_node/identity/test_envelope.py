"""Signed words and certificates: what verifies, and everything that must not get past."""

from dataclasses import replace

import pytest

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    OfferBody,
    decode_certificate,
    decode_signed,
    encode_certificate,
    encode_signed,
)
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import BlobRoot, ChainId, NodeId, ValidatorSetRoot, VertexId
from daa_node.errors import PeerFault
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys

KEYS = sorted((NodeKeys.from_seed(b"%d" % i) for i in range(4)), key=lambda k: k.node_id)
COMMITTEE = Committee(tuple(Validator(k.node_id, 1) for k in KEYS))
DOMAIN = Domain(ChainId(b"\x07" * 32), 3, COMMITTEE.root)
PUBLIC_KEYS = {k.node_id: k.ml_dsa_public_key for k in KEYS}
LIMITS = Limits(4, 4)
BLOCK, OTHER = b"\x01" * 32, b"\x02" * 32
OFFER = OfferBody(
    4, KEYS[0].node_id, VertexId(BLOCK), BlobRoot(OTHER), 9, "int8", 8, 7, 6, 5, 4, ()
)
NOTARIZE = Statement(DOMAIN, Kind.NOTARIZE, 9, 4, BLOCK)
STATEMENTS = [
    Statement(DOMAIN, Kind.PROPOSAL, 9, 4, BLOCK),
    NOTARIZE,
    Statement(DOMAIN, Kind.NULLIFY, 9, 0, None),
    Statement(DOMAIN, Kind.FINALIZE, 9, 4, BLOCK),
    Statement(DOMAIN, Kind.OFFER, 0, 4, OFFER.as_value()),
    Statement(DOMAIN, Kind.ACK, 0, 4, [BLOCK, OTHER]),
    Statement(DOMAIN, Kind.EXEC, 0, 4, [BLOCK, OTHER]),
    Statement(DOMAIN, Kind.REJOIN, 0, 0, BLOCK),
]


def certificate(statement: Statement = NOTARIZE, signers: int = 3) -> Certificate:
    signed = [envelope.sign(statement, keys) for keys in KEYS[:signers]]
    return Certificate(statement, tuple((s.signer, s.signature) for s in signed))


def certificate_with(
    held: Certificate, signatures: tuple[tuple[NodeId, bytes], ...]
) -> Certificate:
    return Certificate(held.statement, signatures)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: str(s.kind))
def test_every_kind_of_word_survives_the_wire_and_verifies(statement: Statement) -> None:
    opened = decode_signed(encode_signed(envelope.sign(statement, KEYS[0])), LIMITS)
    envelope.verify_signed(opened, PUBLIC_KEYS, DOMAIN)


def test_a_certificate_survives_the_wire_and_verifies() -> None:
    for signers in (3, 4):
        opened = decode_certificate(encode_certificate(certificate(signers=signers)), LIMITS)
        envelope.verify_certificate(opened, COMMITTEE, PUBLIC_KEYS, DOMAIN)


def test_a_word_in_anothers_name_does_not_verify() -> None:
    signed = envelope.sign(NOTARIZE, KEYS[0])
    with pytest.raises(PeerFault, match="bad-signature"):
        envelope.verify_signed(replace(signed, signer=KEYS[1].node_id), PUBLIC_KEYS, DOMAIN)
    with pytest.raises(PeerFault, match="unknown-signer"):
        envelope.verify_signed(replace(signed, signer=NodeId(bytes(32))), PUBLIC_KEYS, DOMAIN)


def test_a_signature_for_one_kind_of_word_is_no_signature_for_another() -> None:
    signed = envelope.sign(NOTARIZE, KEYS[0])
    moved = replace(signed, statement=replace(NOTARIZE, kind=Kind.FINALIZE))
    with pytest.raises(PeerFault, match="bad-signature"):
        envelope.verify_signed(moved, PUBLIC_KEYS, DOMAIN)


def test_the_context_alone_parts_the_kinds() -> None:
    # The same bytes under another context: domain separation does not lean on the payload.
    signature = KEYS[0].sign(NOTARIZE.sign_bytes(), b"daa/v1/finalize")
    forged = Signed(NOTARIZE, KEYS[0].node_id, signature)
    with pytest.raises(PeerFault, match="bad-signature"):
        envelope.verify_signed(forged, PUBLIC_KEYS, DOMAIN)


@pytest.mark.parametrize(
    "domain",
    [
        replace(DOMAIN, chain_id=ChainId(bytes(32))),
        replace(DOMAIN, epoch=4),
        replace(DOMAIN, validator_set_root=ValidatorSetRoot(bytes(32))),
    ],
)
def test_words_of_another_chain_or_epoch_are_foreign(domain: Domain) -> None:
    statement = replace(NOTARIZE, domain=domain)
    with pytest.raises(PeerFault, match="foreign-domain"):
        envelope.verify_signed(envelope.sign(statement, KEYS[0]), PUBLIC_KEYS, DOMAIN)
    with pytest.raises(PeerFault, match="foreign-domain"):
        envelope.verify_certificate(certificate(statement), COMMITTEE, PUBLIC_KEYS, DOMAIN)


def test_a_certificate_of_another_committee_is_foreign_even_in_its_own_domain() -> None:
    domain = replace(DOMAIN, validator_set_root=ValidatorSetRoot(bytes(32)))
    held = certificate(replace(NOTARIZE, domain=domain))
    with pytest.raises(PeerFault, match="foreign-domain"):
        envelope.verify_certificate(held, COMMITTEE, PUBLIC_KEYS, domain)


def test_two_of_four_are_no_quorum() -> None:
    with pytest.raises(PeerFault, match="no-quorum"):
        envelope.verify_certificate(certificate(signers=2), COMMITTEE, PUBLIC_KEYS, DOMAIN)


def test_one_validator_twice_is_no_quorum() -> None:
    held = certificate(signers=2)
    doubled = certificate_with(held, (held.signatures[0], *held.signatures))
    with pytest.raises(PeerFault, match="signers-unsorted"):
        envelope.verify_certificate(doubled, COMMITTEE, PUBLIC_KEYS, DOMAIN)


def test_signers_out_of_order_are_refused() -> None:
    held = certificate()
    with pytest.raises(PeerFault, match="signers-unsorted"):
        envelope.verify_certificate(
            certificate_with(held, held.signatures[::-1]), COMMITTEE, PUBLIC_KEYS, DOMAIN
        )


def test_a_surplus_signature_that_is_bad_spoils_the_certificate() -> None:
    held = certificate(signers=4)
    bad = certificate_with(held, (*held.signatures[:3], (KEYS[3].node_id, bytes(3309))))
    with pytest.raises(PeerFault, match="bad-signature"):
        envelope.verify_certificate(bad, COMMITTEE, PUBLIC_KEYS, DOMAIN)


def test_a_surplus_stranger_spoils_the_certificate() -> None:
    stranger = NodeKeys.from_seed(b"stranger")
    held = certificate(signers=4)
    pair = (stranger.node_id, stranger.sign(NOTARIZE.sign_bytes(), NOTARIZE.context))
    spoiled = certificate_with(held, tuple(sorted((*held.signatures, pair))))
    known = {**PUBLIC_KEYS, stranger.node_id: stranger.ml_dsa_public_key}
    with pytest.raises(PeerFault, match="unknown-signer"):
        envelope.verify_certificate(spoiled, COMMITTEE, known, DOMAIN)
