"""Signed words on the wire: make them, open them, and check who really said them.

Wire form of a Signed: canonical `[chain_id, epoch, validator_set_root, type, view, height, value,
signer, signature]`; of a Certificate the same with a list of `[signer, signature]` pairs last.
Decoding checks shape and size, verifying checks keys: decode first, then verify, then believe.
Every size limit is a function of the number of validators n: certificates and Acks grow with it.
"""

from collections.abc import Mapping
from typing import Any

from daa_consensus.committee import Committee, Domain
from daa_consensus.errors import NoQuorum
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import DIGEST_BYTES, ChainId, NodeId, ValidatorSetRoot
from daa_node.errors import PeerFault
from daa_node.identity.keys import ML_DSA_SIGNATURE_BYTES, NodeKeys, verify

PublicKeys = Mapping[NodeId, bytes]  # ML-DSA-65 public keys of everyone who may sign

NUMBER_MAX = 2**62  # epochs, views and heights stay far from the encoding's 64-bit edge
# An Offer's body: ten numbers and names under 40 bytes each, a codec's word, and the roots of its
# snapshots; 4 KiB leave room for about a hundred roots.
OFFER_BYTES_MAX = 4096
_DIGEST_FIELD_BYTES = DIGEST_BYTES + 2
_SIGNATURE_FIELD_BYTES = ML_DSA_SIGNATURE_BYTES + 3
_FRAME_BYTES = 2 * _DIGEST_FIELD_BYTES + 3 * 9 + 16 + 5  # domain, numbers, type word, list headers


def statement_bytes_max(validator_count: int) -> int:
    """The longest sign bytes among n validators: an Offer, or an Ack of n contributions."""
    return _FRAME_BYTES + max(OFFER_BYTES_MAX, 5 + validator_count * _DIGEST_FIELD_BYTES)


def signed_bytes_max(validator_count: int) -> int:
    """The longest wire form of one Signed among n validators."""
    return statement_bytes_max(validator_count) + _DIGEST_FIELD_BYTES + _SIGNATURE_FIELD_BYTES


def certificate_bytes_max(validator_count: int) -> int:
    """The longest wire form of a Certificate by n validators; 0.34 MB at n = 100."""
    pair_bytes = 1 + _DIGEST_FIELD_BYTES + _SIGNATURE_FIELD_BYTES
    return statement_bytes_max(validator_count) + 5 + validator_count * pair_bytes


def sign(statement: Statement, keys: NodeKeys) -> Signed:
    """The statement under our key. Validators' votes go through agreement/signer.py instead."""
    signature = keys.sign(statement.sign_bytes(), statement.context)
    return Signed(statement, keys.node_id, signature)


def verify_signed(signed: Signed, public_keys: PublicKeys, domain: Domain) -> None:
    """Return when `signed` belongs to `domain` and its signer's key made the signature.

    Raises PeerFault: "foreign-domain", "unknown-signer" or "bad-signature".
    """
    _check_domain(signed.statement, domain)
    _check_signature(signed.statement, signed.signer, signed.signature, public_keys)


def verify_certificate(
    certificate: Certificate, committee: Committee, public_keys: PublicKeys, domain: Domain
) -> None:
    """Return when a quorum of `committee` signed the statement and *every* signature is good.

    A surplus signature that does not verify spoils the certificate: whoever stored it would hand on
    what it never checked. Raises PeerFault: "foreign-domain", "unknown-signer", "signers-unsorted",
    "no-quorum" or "bad-signature".
    """
    _check_domain(certificate.statement, domain)
    if domain.validator_set_root != committee.root:
        raise PeerFault("foreign-domain", "the domain names another validator set")
    signers = [signer for signer, _ in certificate.signatures]
    if any(left >= right for left, right in zip(signers, signers[1:], strict=False)):
        raise PeerFault("signers-unsorted", "signers are distinct and ascend")
    for signer in signers:
        if signer not in committee.stake_of:
            raise PeerFault("unknown-signer", f"{signer.hex()} is not in the committee")
    try:
        certificate.check_weight(committee)
    except NoQuorum as fault:
        raise PeerFault("no-quorum", str(fault)) from None
    for signer, signature in certificate.signatures:
        _check_signature(certificate.statement, signer, signature, public_keys)


def encode_signed(signed: Signed) -> bytes:
    return canonical.encode(signed_value(signed))


def decode_signed(payload: bytes, validator_count: int) -> Signed:
    """The Signed in `payload`, unverified. Raises PeerFault("malformed")."""
    return signed_of(_decoded(payload, signed_bytes_max(validator_count)), validator_count)


def encode_certificate(certificate: Certificate) -> bytes:
    return canonical.encode(certificate_value(certificate))


def decode_certificate(payload: bytes, validator_count: int) -> Certificate:
    """The Certificate in `payload`, unverified. Raises PeerFault("malformed")."""
    return certificate_of(
        _decoded(payload, certificate_bytes_max(validator_count)), validator_count
    )


def signed_value(signed: Signed) -> list[canonical.Value]:
    """The wire form as a value, for messages that carry several."""
    return [*_statement_fields(signed.statement), signed.signer, signed.signature]


def signed_of(value: Any, validator_count: int) -> Signed:
    """The inverse of signed_value for a peer's value. Raises PeerFault("malformed")."""
    *fields, signer, signature = _list_of(value, 9, "signed statement")
    statement = _statement_of(fields, validator_count)
    return Signed(
        statement,
        NodeId(_bytes_of(signer, DIGEST_BYTES, "signer")),
        _bytes_of(signature, ML_DSA_SIGNATURE_BYTES, "signature"),
    )


def certificate_value(certificate: Certificate) -> list[canonical.Value]:
    pairs = [[signer, signature] for signer, signature in certificate.signatures]
    return [*_statement_fields(certificate.statement), pairs]


def certificate_of(value: Any, validator_count: int) -> Certificate:
    """The inverse of certificate_value for a peer's value. Raises PeerFault("malformed")."""
    *fields, pairs = _list_of(value, 8, "certificate")
    if not isinstance(pairs, list) or len(pairs) > validator_count:
        raise PeerFault("malformed", f"at most {validator_count} signatures in a list expected")
    signatures = []
    for pair in pairs:
        signer, signature = _list_of(pair, 2, "signature pair")
        signatures.append(
            (
                NodeId(_bytes_of(signer, DIGEST_BYTES, "signer")),
                _bytes_of(signature, ML_DSA_SIGNATURE_BYTES, "signature"),
            )
        )
    return Certificate(_statement_of(fields, validator_count), tuple(signatures))


def _statement_fields(statement: Statement) -> list[canonical.Value]:
    d, s = statement.domain, statement
    words: list[canonical.Value] = [d.chain_id, d.epoch, d.validator_set_root, str(s.kind)]
    return [*words, s.view, s.height, s.value]


def _statement_of(fields: list[Any], validator_count: int) -> Statement:
    chain_id, epoch, root, word, view, height, value = fields
    try:
        kind = Kind(word)
    except ValueError:
        raise PeerFault("malformed", f"no statement is of type {word!r:.40}") from None
    domain = Domain(
        ChainId(_bytes_of(chain_id, DIGEST_BYTES, "chain id")),
        _number_of(epoch, "epoch"),
        ValidatorSetRoot(_bytes_of(root, DIGEST_BYTES, "validator set root")),
    )
    view, height = _number_of(view, "view"), _number_of(height, "height")
    _check_slot(kind, view, height)
    _check_value(kind, value, validator_count)
    return Statement(domain, kind, view, height, value)


def _check_slot(kind: Kind, view: int, height: int) -> None:
    if kind in (Kind.OFFER, Kind.ACK, Kind.EXEC, Kind.REJOIN) and view:
        raise PeerFault("malformed", f"{kind} has no view, {view} given")
    if kind in (Kind.NULLIFY, Kind.REJOIN) and height:
        raise PeerFault("malformed", f"{kind} has no height, {height} given")


def _check_value(kind: Kind, value: Any, validator_count: int) -> None:
    """The shape that each kind's value must have; an Offer's body is judged by rounds."""
    match kind:
        case Kind.PROPOSAL | Kind.NOTARIZE | Kind.FINALIZE | Kind.REJOIN:
            _bytes_of(value, DIGEST_BYTES, f"{kind} value")
        case Kind.NULLIFY:
            if value is not None:
                raise PeerFault("malformed", "nullify has no value")
        case Kind.EXEC:
            for digest in _list_of(value, 2, "exec value"):
                _bytes_of(digest, DIGEST_BYTES, "exec root")
        case Kind.ACK:
            if not isinstance(value, list) or len(value) > validator_count:
                raise PeerFault("malformed", f"an ack lists at most {validator_count} roots")
            for root in value:
                _bytes_of(root, DIGEST_BYTES, "acked root")
            if any(left >= right for left, right in zip(value, value[1:], strict=False)):
                raise PeerFault("malformed", "acked roots are distinct and ascend")
        case Kind.OFFER:
            if not isinstance(value, list):
                raise PeerFault("malformed", "an offer's value is a list")
            try:
                size_bytes = len(canonical.encode(value))
            except NotCanonical as fault:
                raise PeerFault("malformed", str(fault)) from None
            if size_bytes > OFFER_BYTES_MAX:
                raise PeerFault("malformed", f"offer of {size_bytes} > {OFFER_BYTES_MAX} bytes")


def _check_domain(statement: Statement, domain: Domain) -> None:
    if statement.domain != domain:
        theirs = statement.domain
        raise PeerFault(
            "foreign-domain",
            f"signed for chain {theirs.chain_id.hex()[:8]} epoch {theirs.epoch}, this is chain "
            f"{domain.chain_id.hex()[:8]} epoch {domain.epoch}",
        )


def _check_signature(
    statement: Statement, signer: NodeId, signature: bytes, public_keys: PublicKeys
) -> None:
    public_key = public_keys.get(signer)
    if public_key is None:
        raise PeerFault("unknown-signer", f"no key is known for {signer.hex()}")
    if not verify(public_key, signature, statement.sign_bytes(), statement.context):
        raise PeerFault("bad-signature", f"{statement.kind} in the name of {signer.hex()}")


def _decoded(payload: bytes, size_bytes_max: int) -> Any:
    try:
        return canonical.decode(payload, size_bytes_max)
    except NotCanonical as fault:
        raise PeerFault("malformed", str(fault)) from None


def _list_of(value: Any, size: int, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) != size:
        raise PeerFault("malformed", f"{what} is a list of {size}")
    return value


def _bytes_of(value: Any, size_bytes: int, what: str) -> bytes:
    if not isinstance(value, bytes) or len(value) != size_bytes:
        raise PeerFault("malformed", f"{what} has {size_bytes} bytes")
    return value


def _number_of(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBER_MAX:
        raise PeerFault("malformed", f"{what} is an integer from 0 to {NUMBER_MAX}")
    return value
