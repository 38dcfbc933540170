"""Signed words and certificates on the wire: round trips, and everything that must not get past."""

import random
from dataclasses import replace
from typing import Any

import pytest

from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import ChainId, NodeId, ValidatorSetRoot
from daa_node.errors import PeerFault
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys

KEYS = sorted((NodeKeys.from_seed(b"%d" % i) for i in range(4)), key=lambda k: k.node_id)
COMMITTEE = Committee(tuple(Validator(k.node_id, 1) for k in KEYS))
DOMAIN = Domain(ChainId(b"\x07" * 32), 3, COMMITTEE.root)
PUBLIC_KEYS = {k.node_id: k.ml_dsa_public_key for k in KEYS}
BLOCK, OTHER = b"\x01" * 32, b"\x02" * 32
NOTARIZE = Statement(DOMAIN, Kind.NOTARIZE, 9, 4, BLOCK)
STATEMENTS = [
    Statement(DOMAIN, Kind.PROPOSAL, 9, 4, BLOCK),
    NOTARIZE,
    Statement(DOMAIN, Kind.NULLIFY, 9, 0, None),
    Statement(DOMAIN, Kind.FINALIZE, 9, 4, BLOCK),
    Statement(DOMAIN, Kind.OFFER, 0, 4, [4, BLOCK, "int8", [OTHER]]),
    Statement(DOMAIN, Kind.ACK, 0, 4, [BLOCK, OTHER]),
    Statement(DOMAIN, Kind.EXEC, 0, 4, [BLOCK, OTHER]),
    Statement(DOMAIN, Kind.REJOIN, 0, 0, BLOCK),
]


def certificate(statement: Statement = NOTARIZE, signers: int = 3) -> Certificate:
    signed = [envelope.sign(statement, keys) for keys in KEYS[:signers]]
    return Certificate(statement, tuple((s.signer, s.signature) for s in signed))


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: str(s.kind))
def test_every_kind_of_word_survives_the_wire_and_verifies(statement: Statement) -> None:
    signed = envelope.sign(statement, KEYS[0])
    payload = envelope.encode_signed(signed)
    opened = envelope.decode_signed(payload, 4)
    assert opened == signed
    assert len(payload) <= envelope.signed_bytes_max(4)
    envelope.verify_signed(opened, PUBLIC_KEYS, DOMAIN)


def test_a_certificate_survives_the_wire_and_verifies() -> None:
    for signers in (3, 4):
        payload = envelope.encode_certificate(certificate(signers=signers))
        opened = envelope.decode_certificate(payload, 4)
        assert opened == certificate_with(opened, opened.signatures)
        envelope.verify_certificate(opened, COMMITTEE, PUBLIC_KEYS, DOMAIN)


def certificate_with(
    held: Certificate, signatures: tuple[tuple[NodeId, bytes], ...]
) -> Certificate:
    return Certificate(held.statement, signatures)


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


def test_more_signatures_than_validators_are_not_even_decoded() -> None:
    payload = envelope.encode_certificate(certificate(signers=4))
    with pytest.raises(PeerFault, match="malformed"):
        envelope.decode_certificate(payload, 3)


BAD_FIELDS: list[tuple[int, Any]] = [
    (0, b"short"),
    (0, None),
    (1, -1),
    (1, True),
    (1, "3"),
    (2, b""),
    (3, "shout"),
    (3, 7),
    (3, ["notarize"]),
    (4, 2**63),
    (5, -1),
    (6, None),
    (6, b"\x01" * 31),
    (6, [BLOCK]),
    (7, b"\x01" * 33),
    (8, b""),
    (8, bytes(3310)),
]


@pytest.mark.parametrize(("index", "value"), BAD_FIELDS)
def test_a_field_of_the_wrong_shape_is_malformed(index: int, value: Any) -> None:
    fields = envelope.signed_value(envelope.sign(NOTARIZE, KEYS[0]))
    fields[index] = value
    with pytest.raises(PeerFault, match="malformed"):
        envelope.decode_signed(canonical.encode(fields), 4)


@pytest.mark.parametrize(
    "statement",
    [
        Statement(DOMAIN, Kind.NULLIFY, 9, 0, BLOCK),
        Statement(DOMAIN, Kind.NULLIFY, 9, 4, None),
        Statement(DOMAIN, Kind.EXEC, 9, 4, [BLOCK, OTHER]),
        Statement(DOMAIN, Kind.EXEC, 0, 4, [BLOCK]),
        Statement(DOMAIN, Kind.EXEC, 0, 4, [BLOCK, 7]),
        Statement(DOMAIN, Kind.ACK, 0, 4, [OTHER, BLOCK]),
        Statement(DOMAIN, Kind.ACK, 0, 4, [BLOCK, BLOCK]),
        Statement(DOMAIN, Kind.ACK, 0, 4, [bytes([i]) * 32 for i in range(5)]),
        Statement(DOMAIN, Kind.OFFER, 0, 4, BLOCK),
        Statement(DOMAIN, Kind.OFFER, 0, 4, [bytes(envelope.OFFER_BYTES_MAX)]),
        Statement(DOMAIN, Kind.REJOIN, 0, 4, BLOCK),
    ],
)
def test_a_value_that_its_kind_cannot_have_is_malformed(statement: Statement) -> None:
    payload = envelope.encode_signed(Signed(statement, KEYS[0].node_id, bytes(3309)))
    with pytest.raises(PeerFault, match="malformed"):
        envelope.decode_signed(payload, 4)


def test_the_largest_words_of_a_hundred_validators_fit_their_limits() -> None:
    count, far = 100, envelope.NUMBER_MAX
    domain = replace(DOMAIN, epoch=far)
    roots = [number.to_bytes(32) for number in range(count)]
    ack = Statement(domain, Kind.ACK, 0, far, roots)
    offer = Statement(domain, Kind.OFFER, 0, far, [bytes(envelope.OFFER_BYTES_MAX - 4)])
    for statement in (ack, offer):
        signed = Signed(statement, KEYS[0].node_id, bytes(3309))
        payload = envelope.encode_signed(signed)
        assert envelope.decode_signed(payload, count) == signed
    held = Certificate(offer, tuple((NodeId(root), bytes(3309)) for root in roots))
    payload = envelope.encode_certificate(held)
    assert envelope.decode_certificate(payload, count) == held
    with pytest.raises(PeerFault, match="malformed"):
        envelope.decode_signed(bytes(envelope.signed_bytes_max(count) + 1), count)


def test_no_bytes_whatever_raise_anything_but_a_peer_fault() -> None:
    signed = envelope.encode_signed(envelope.sign(NOTARIZE, KEYS[0]))
    held = envelope.encode_certificate(certificate())
    refused = accepted = 0
    for seed in range(600):
        rng = random.Random(seed)
        for payload, decode in (
            (signed, envelope.decode_signed),
            (held, envelope.decode_certificate),
        ):
            spoiled = bytearray(payload)
            for _ in range(rng.randrange(1, 4)):
                # Most structure lies at the front; signatures fill the rest.
                spoiled[rng.randrange(min(len(spoiled), 160))] = rng.randrange(256)
            cut = bytes(spoiled[: rng.choice([len(spoiled), rng.randrange(len(spoiled))])])
            try:
                decode(cut, 4)
            except PeerFault:
                refused += 1
            else:
                accepted += 1
    # Some changes only touch a signature's or a digest's bytes: those are verify's to refuse.
    assert refused > 600
    assert accepted > 20
