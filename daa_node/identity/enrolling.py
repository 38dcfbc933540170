"""Whether what is asked of the trainers' roll is signed by whom it binds, and brings free names."""

from collections.abc import Iterable
from contextlib import suppress

from daa_consensus.enrolment import Enroll, Enrolment, signer_of
from daa_dag.ids import ChainId, NodeId
from daa_node.errors import PeerFault
from daa_node.identity.envelope import Check
from daa_node.identity.keys import verify
from daa_node.identity.validators import LATER_EPOCH, Validators, check_free, decode_member_keys


def check_enrolment(enrolment: Enrolment, known: Validators) -> None:
    """As `Validators.check_operation`."""
    action = enrolment.request.action
    public_key = known.public_keys.get(signer_of(action))
    if isinstance(action, Enroll):
        keys = decode_member_keys(action.keys, action.subject)
        keys.check_proof()
        public_key = keys.ml_dsa
    check_enrolment_signature(enrolment, known.chain_id, public_key, known.check)
    check_enrolled_name(enrolment, known)


def check_enrolled_name(enrolment: Enrolment, known: Validators) -> None:
    """As `Validators.check_names`."""
    action = enrolment.request.action
    if isinstance(action, Enroll):
        brought = decode_member_keys(action.keys, action.subject)
        check_free(known.peer_ids, action.subject, brought)


def check_enrolment_signature(
    enrolment: Enrolment, chain_id: ChainId, public_key: bytes | None, check: Check = verify
) -> None:
    """Return when its signer signed it. Raises PeerFault, LATER_EPOCH without its key."""
    signer = signer_of(enrolment.request.action)
    if public_key is None:
        raise PeerFault(LATER_EPOCH, f"no key is known for {signer.hex()}")
    statement = enrolment.request.statement(chain_id)
    if not check(public_key, enrolment.signature, statement.sign_bytes(), statement.context):
        raise PeerFault("bad-signature", f"an enrolment in the name of {signer.hex()}")


def keys_enrolled(found: Iterable[Enrolment]) -> dict[NodeId, bytes]:
    """ML-DSA-65 keys of who enrolls, by the names that follow from them."""
    keys: dict[NodeId, bytes] = {}
    for action in (enrolment.request.action for enrolment in found):
        if isinstance(action, Enroll):
            with suppress(PeerFault):
                keys[action.subject] = decode_member_keys(action.keys, action.subject).ml_dsa
    return keys
