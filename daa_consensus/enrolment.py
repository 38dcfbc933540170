"""What may be asked of the trainers' roll, in whose name, and how it is signed.

    Enroll   a trainer brings its keys, or says that it is back   signed by its key
    Vouch    a member lets in who has enrolled                     signed by the member's key
    Retire   a trainer goes, by its own word or its voucher's      signed by whoever says it

A request is bound to its chain, and to the last round in whose set it may stand. Its id covers
neither signature nor chain. Signatures are the host's to check; what a request may do is `roll`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from daa_consensus.committee import Domain
from daa_consensus.errors import BadMessage
from daa_consensus.operations import KEYS_BYTES_MAX, NO_SET
from daa_consensus.votes import SIGNATURE_BYTES_MAX, Kind, Statement
from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import DIGEST_BYTES, ChainId, Digest, NodeId, tagged_digest
from daa_dag.sizes import DIGEST, NUMBER, blob, fields, text

MARK = "trainers"
ENROLMENT_BYTES_MAX = fields(
    *(text(len(MARK)), NUMBER, fields(text(6), DIGEST, blob(KEYS_BYTES_MAX))),
    blob(SIGNATURE_BYTES_MAX),
)
VOUCH_BYTES_MAX = fields(
    *(text(len(MARK)), NUMBER, fields(text(6), DIGEST, DIGEST)), blob(SIGNATURE_BYTES_MAX)
)
# Of one set: so many enrolments, each with a voucher's word. They take no room of members' changes,
# and eight that come at once need not wait for each other.
PAIRS_A_SET_MAX = 8
ROUND_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Enroll:
    subject: NodeId
    keys: bytes  # the host's encoding of the public keys; `subject` follows from them

    def as_value(self) -> canonical.Value:
        return ["enroll", self.subject, self.keys]


@dataclass(frozen=True, slots=True)
class Vouch:
    voucher: NodeId
    request_id: Digest  # of the enrolment

    def as_value(self) -> canonical.Value:
        return ["vouch", self.voucher, self.request_id]


@dataclass(frozen=True, slots=True)
class Retire:
    subject: NodeId
    by: NodeId  # itself, or its voucher

    def as_value(self) -> canonical.Value:
        return ["retire", self.subject, self.by]


TrainerAction: TypeAlias = Enroll | Vouch | Retire


def signer_of(action: TrainerAction) -> NodeId:
    """Whose signature it needs."""
    match action:
        case Enroll(subject):
            return subject
        case Vouch(voucher):
            return voucher
        case Retire(by=by):
            return by


@dataclass(frozen=True)
class TrainerRequest:
    """An action that may stand in the set of a round up to `expires_round`, and in none later."""

    action: TrainerAction
    expires_round: int

    @cached_property
    def id(self) -> Digest:
        value: list[canonical.Value] = [self.expires_round, self.action.as_value()]
        return Digest(tagged_digest("trainers", value))

    def statement(self, chain_id: ChainId) -> Statement:
        """What its signer signs: no action of `operations` has this form."""
        domain = Domain(chain_id, self.expires_round, NO_SET)
        return Statement(domain, Kind.MEMBERSHIP, 0, 0, self.action.as_value())


@dataclass(frozen=True)
class Enrolment:
    """A request with its signature."""

    request: TrainerRequest
    signature: bytes


def encode_enrolment(enrolment: Enrolment) -> bytes:
    request = enrolment.request
    action = request.action.as_value()
    return canonical.encode([MARK, request.expires_round, action, enrolment.signature])


def decode_enrolment(payload: bytes) -> Enrolment:
    """Raises BadMessage. The signature has not been checked."""
    try:
        value = canonical.decode(payload, ENROLMENT_BYTES_MAX)
    except DagError as fault:
        raise BadMessage(f"enrolment: {fault}") from None
    match value:
        case [mark, expires, action, bytes(signature)] if mark == MARK:
            if not 1 <= len(signature) <= SIGNATURE_BYTES_MAX:
                raise BadMessage(f"a signature is not 1 to {SIGNATURE_BYTES_MAX} bytes")
            return Enrolment(trainer_request_from_value(expires, action), signature)
        case _:
            raise BadMessage("an enrolment is its mark, a round, an action and a signature")


def trainer_request_from_value(expires: object, action: object) -> TrainerRequest:
    """Raises BadMessage unless `action` is the list form of one, and `expires` a round."""
    if type(expires) is not int or not 0 <= expires <= ROUND_MAX:
        raise BadMessage(f"a round is a number from 0 to {ROUND_MAX}")
    if not isinstance(action, list):
        raise BadMessage("an action is a list")
    return TrainerRequest(_action_from(action), expires)


def is_of_trainers(action: object) -> bool:
    """Whether this is the list form of what is asked of the roll, by its first word."""
    return isinstance(action, list) and action[:1] in (["enroll"], ["vouch"], ["retire"])


def enrolments(encoded: Sequence[bytes]) -> list[Enrolment]:
    """What a set asks of the roll, among its operations, in order; others are none of ours."""
    found: list[Enrolment] = []
    for payload in encoded:
        try:
            found.append(decode_enrolment(payload))
        except BadMessage:
            continue
    return found


def summary(action: TrainerAction) -> str:
    """One line for people."""
    match action:
        case Enroll(subject):
            return f"{subject.hex()[:16]} enrolls as a trainer"
        case Vouch(voucher, request_id):
            return f"{voucher.hex()[:16]} vouches for the enrolment {request_id.hex()[:16]}"
        case Retire(subject, by):
            whose = "by its own word" if by == subject else f"by the word of {by.hex()[:16]}"
            return f"{subject.hex()[:16]} retires {whose}"


def _action_from(value: list[object]) -> TrainerAction:
    match value:
        case ["enroll", subject, bytes(keys)] if 1 <= len(keys) <= KEYS_BYTES_MAX:
            return Enroll(_name(subject), keys)
        case ["vouch", voucher, request_id]:
            return Vouch(_name(voucher), Digest(_name(request_id)))
        case ["retire", subject, by]:
            return Retire(_name(subject), _name(by))
        case _:
            raise BadMessage("no action of trainers has this form")


def _name(value: object) -> NodeId:
    if not isinstance(value, bytes) or len(value) != DIGEST_BYTES:
        raise BadMessage(f"a name in an enrolment is not {DIGEST_BYTES} bytes")
    return NodeId(value)
