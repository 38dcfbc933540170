"""What may be asked of the validator set, in whose name, and how it is signed.

    Join     a new member brings its keys and a stake          signed by the new key
    Leave    a member goes                                     signed by its key
    Rotate   a member hands its seat and stake to a new key    signed by both keys
    Stake    a member's stake changes                          signed by its key
    Approve  a member agrees to what brings in a key or weight signed by its key
    Withdraw a request of its own that waits shall not be      signed by its subject's key
    Speak    a member says up to which version it speaks       signed by its key

A request is bound to its chain and to the last epoch in which it may take effect, not to the set
under which it was made: it may wait for a boundary or two. Its id covers neither signatures nor the
chain. Signatures are the host's to check; what a request may do is `membership`'s to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, assert_never

from daa_consensus.committee import FIRST_VERSION, STAKE_MAX, VERSION_MAX, Domain
from daa_consensus.errors import BadMessage
from daa_consensus.votes import SIGNATURE_BYTES_MAX, Kind, Statement
from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import DIGEST_BYTES, ChainId, Digest, NodeId, ValidatorSetRoot, tagged_digest
from daa_dag.sizes import DIGEST, NUMBER, blob, fields, items, text

# ML-DSA-65 and ML-KEM-768 public keys, an Ed25519 PeerId of 52 messages.
KEYS_BYTES_MAX = fields(blob(1_952), blob(1_184), text(52), blob(64))
SIGNERS_MAX = 2  # of a rotation, the largest action
_ROTATION = fields(text(6), DIGEST, DIGEST, blob(KEYS_BYTES_MAX))
_PAIR = fields(DIGEST, blob(SIGNATURE_BYTES_MAX))
OPERATION_BYTES_MAX = fields(text(10), NUMBER, _ROTATION, items(SIGNERS_MAX, _PAIR))
APPROVAL_BYTES_MAX = fields(text(10), NUMBER, fields(text(7), DIGEST, DIGEST), items(1, _PAIR))
EPOCH_MAX = 2**63 - 1
NO_SET = ValidatorSetRoot(bytes(DIGEST_BYTES))  # a request outlives the set it was made under


@dataclass(frozen=True, slots=True)
class Join:
    subject: NodeId
    stake: int
    keys: bytes  # the host's encoding of the public keys; `subject` follows from them

    def as_value(self) -> canonical.Value:
        return ["join", self.subject, self.stake, self.keys]


@dataclass(frozen=True, slots=True)
class Leave:
    subject: NodeId

    def as_value(self) -> canonical.Value:
        return ["leave", self.subject]


@dataclass(frozen=True, slots=True)
class Rotate:
    subject: NodeId
    successor: NodeId
    keys: bytes  # the successor's

    def as_value(self) -> canonical.Value:
        return ["rotate", self.subject, self.successor, self.keys]


@dataclass(frozen=True, slots=True)
class Stake:
    subject: NodeId
    stake: int  # from then on

    def as_value(self) -> canonical.Value:
        return ["stake", self.subject, self.stake]


@dataclass(frozen=True, slots=True)
class Approve:
    subject: NodeId  # the member that agrees
    request_id: Digest

    def as_value(self) -> canonical.Value:
        return ["approve", self.subject, self.request_id]


@dataclass(frozen=True, slots=True)
class Withdraw:
    subject: NodeId  # in whose name the request was made
    request_id: Digest

    def as_value(self) -> canonical.Value:
        return ["withdraw", self.subject, self.request_id]


@dataclass(frozen=True, slots=True)
class Speak:
    subject: NodeId
    version: int  # of the protocol, the newest that its release speaks

    def as_value(self) -> canonical.Value:
        return ["speak", self.subject, self.version]


Action: TypeAlias = Join | Leave | Rotate | Stake | Approve | Withdraw | Speak


def signers_of(action: Action) -> tuple[NodeId, ...]:
    """Whose signatures an operation needs, sorted: a rotation binds both keys."""
    if isinstance(action, Rotate):
        return tuple(sorted((action.subject, action.successor)))
    return (action.subject,)


@dataclass(frozen=True)
class Request:
    """An action that may take effect in an epoch up to `expires_epoch`, and in none later."""

    action: Action
    expires_epoch: int

    @cached_property
    def id(self) -> Digest:
        value: list[canonical.Value] = [self.expires_epoch, self.action.as_value()]
        return Digest(tagged_digest("membership", value))

    def statement(self, chain_id: ChainId) -> Statement:
        """What its signers sign: the same words on another chain are another statement."""
        domain = Domain(chain_id, self.expires_epoch, NO_SET)
        return Statement(domain, Kind.MEMBERSHIP, 0, 0, self.action.as_value())


@dataclass(frozen=True)
class Operation:
    """A request with the signatures of exactly its signers, sorted by signer."""

    request: Request
    signatures: tuple[tuple[NodeId, bytes], ...]


def encode_operation(operation: Operation) -> bytes:
    request = operation.request
    pairs: list[canonical.Value] = [[signer, word] for signer, word in operation.signatures]
    return canonical.encode(["membership", request.expires_epoch, request.action.as_value(), pairs])


def decode_operation(payload: bytes) -> Operation:
    """Raises BadMessage. The signatures have not been checked, their signers have."""
    try:
        value = canonical.decode(payload, OPERATION_BYTES_MAX)
    except DagError as fault:
        raise BadMessage(f"operation: {fault}") from None
    match value:
        case ["membership", expires_epoch, action, list() as pairs]:
            request = request_from_value(expires_epoch, action)
        case _:
            raise BadMessage("an operation is its mark, an epoch, an action and signatures")
    signatures = tuple(_pair_from(pair) for pair in pairs)
    if tuple(signer for signer, _ in signatures) != signers_of(request.action):
        raise BadMessage("an operation is signed by exactly those whom it binds, in order")
    return Operation(request, signatures)


def request_from_value(expires_epoch: object, action: object) -> Request:
    """Raises BadMessage unless `action` is the list form of one, and the epoch a number."""
    if not isinstance(action, list):
        raise BadMessage("an action is a list")
    return Request(_action_from(action), _number(expires_epoch, EPOCH_MAX, "epoch"))


def membership_operations(encoded: Sequence[bytes]) -> list[Operation]:
    """The membership operations among a set's operations, in order; others are none of ours."""
    found: list[Operation] = []
    for payload in encoded:
        try:
            found.append(decode_operation(payload))
        except BadMessage:
            continue
    return found


def _action_from(value: list[object]) -> Action:
    match value:
        case ["join", subject, stake, keys]:
            return Join(_node(subject), _number(stake, STAKE_MAX, "stake", 1), _keys(keys))
        case ["leave", subject]:
            return Leave(_node(subject))
        case ["rotate", subject, successor, keys]:
            if subject == successor:
                raise BadMessage("a rotation to the same key")
            return Rotate(_node(subject), _node(successor), _keys(keys))
        case ["stake", subject, stake]:
            return Stake(_node(subject), _number(stake, STAKE_MAX, "stake", 1))
        case ["approve", subject, request_id]:
            return Approve(_node(subject), Digest(_node(request_id)))
        case ["withdraw", subject, request_id]:
            return Withdraw(_node(subject), Digest(_node(request_id)))
        case ["speak", subject, version]:
            return Speak(_node(subject), _number(version, VERSION_MAX, "version", FIRST_VERSION))
        case _:
            raise BadMessage("no action has this form")


def summary(action: Action) -> str:
    """One line for people."""
    match action:
        case Join(subject, stake):
            return f"{subject.hex()[:16]} joins with stake {stake}"
        case Leave(subject):
            return f"{subject.hex()[:16]} leaves"
        case Rotate(subject, successor):
            return f"{subject.hex()[:16]} hands its seat to {successor.hex()[:16]}"
        case Stake(subject, stake):
            return f"{subject.hex()[:16]} changes its stake to {stake}"
        case Approve(subject, request_id):
            return f"{subject.hex()[:16]} approves {request_id.hex()[:16]}"
        case Withdraw(subject, request_id):
            return f"{subject.hex()[:16]} withdraws {request_id.hex()[:16]}"
        case Speak(subject, version):
            return f"{subject.hex()[:16]} speaks protocol {version}"
        case _:
            assert_never(action)


def _node(value: object) -> NodeId:
    if not isinstance(value, bytes) or len(value) != DIGEST_BYTES:
        raise BadMessage(f"a name in an operation is not {DIGEST_BYTES} bytes")
    return NodeId(value)


def _keys(value: object) -> bytes:
    if not isinstance(value, bytes) or not 1 <= len(value) <= KEYS_BYTES_MAX:
        raise BadMessage(f"keys are not 1 to {KEYS_BYTES_MAX} bytes")
    return value


def _number(value: object, most: int, what: str, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= most:  # a bool is not a number here
        raise BadMessage(f"{what} is not a number from {least} to {most}")
    return value


def _pair_from(value: object) -> tuple[NodeId, bytes]:
    if not isinstance(value, list) or len(value) != 2:
        raise BadMessage("an operation lists pairs of signer and signature")
    signer, signature = value
    if not isinstance(signature, bytes) or not 1 <= len(signature) <= SIGNATURE_BYTES_MAX:
        raise BadMessage(f"a signature is not 1 to {SIGNATURE_BYTES_MAX} bytes")
    return _node(signer), signature
