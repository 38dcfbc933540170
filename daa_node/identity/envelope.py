"""Signed statements: make them, and check who really said them.

Their wire form is daa_consensus/bft/messages.py's. Decoding checks shape and size, verifying checks
keys: decode first, then verify, then believe.
"""

from collections.abc import Callable, Mapping

from daa_consensus.committee import Committee, Domain
from daa_consensus.errors import NoQuorum
from daa_consensus.votes import Certificate, Signed, Statement
from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.identity.keys import NodeKeys, verify

PublicKeys = Mapping[NodeId, bytes]  # ML-DSA-65 public keys of everyone who may sign
# Whether a signature is good: public key, signature, payload, context. A simulation has its own.
Check = Callable[[bytes, bytes, bytes, bytes], bool]


def sign(statement: Statement, keys: NodeKeys) -> Signed:
    """The statement under our key. Validators' votes go through agreement/signer.py instead."""
    signature = keys.sign(statement.sign_bytes(), statement.context)
    return Signed(statement, keys.node_id, signature)


def verify_signed(
    signed: Signed, public_keys: PublicKeys, domain: Domain, check: Check = verify
) -> None:
    """Return when `signed` belongs to `domain` and its signer's key made the signature.

    Raises PeerFault: "foreign-domain", "unknown-signer" or "bad-signature".
    """
    check_domain(signed.statement, domain)
    _check_signature(signed.statement, (signed.signer, signed.signature), public_keys, check)


def verify_certificate(
    certificate: Certificate,
    committee: Committee,
    public_keys: PublicKeys,
    domain: Domain,
    check: Check = verify,
) -> None:
    """Return when a quorum of `committee` signed the statement and *every* signature is good.

    A surplus signature that does not verify spoils the certificate: whoever stored it would hand on
    what it never checked. Raises PeerFault: "foreign-domain", "unknown-signer", "signers-unsorted",
    "no-quorum" or "bad-signature".
    """
    check_domain(certificate.statement, domain)
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
    for pair in certificate.signatures:
        _check_signature(certificate.statement, pair, public_keys, check)


def check_domain(statement: Statement, domain: Domain) -> None:
    """Raises PeerFault "foreign-domain"."""
    if statement.domain != domain:
        theirs = statement.domain
        raise PeerFault(
            "foreign-domain",
            f"signed for chain {theirs.chain_id.hex()[:8]} epoch {theirs.epoch}, this is chain "
            f"{domain.chain_id.hex()[:8]} epoch {domain.epoch}",
        )


def _check_signature(
    statement: Statement, pair: tuple[NodeId, bytes], public_keys: PublicKeys, check: Check
) -> None:
    signer, signature = pair
    public_key = public_keys.get(signer)
    if public_key is None:
        raise PeerFault("unknown-signer", f"no key is known for {signer.hex()}")
    if not check(public_key, signature, statement.sign_bytes(), statement.context):
        raise PeerFault("bad-signature", f"{statement.kind} in the name of {signer.hex()}")
