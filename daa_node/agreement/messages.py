"""What validators write to each other: every message carries its sender's position.

Wire form: canonical `[epoch, view, finalized_view, resolved_round, round_age_ms, body]`, where
`body` is the canonical bytes of `[kind, *parts]`. Most messages send again what was said before,
from another position: a body that was read is not read again. Decoding checks shape and size; the
signatures inside are checked by whoever opens the message.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, assert_never

from daa_consensus.bft import values
from daa_consensus.bft.limits import OFFER_BYTES_MAX, Limits
from daa_consensus.bft.messages import (
    Block,
    EmptyPayload,
    OfferBody,
    ResultPayload,
    block_from_value,
    certificate_from_value,
    certificate_value,
    offer_from_value,
    signed_from_value,
    signed_value,
)
from daa_consensus.enrolment import (
    ENROLMENT_BYTES_MAX,
    Enrolment,
    decode_enrolment,
    encode_enrolment,
)
from daa_consensus.errors import BadMessage
from daa_consensus.operations import (
    OPERATION_BYTES_MAX,
    Operation,
    decode_operation,
    encode_operation,
)
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import DIGEST_BYTES, BlockId, ContributionRoot
from daa_dag.sizes import DIGEST, NOTHING, NUMBER, blob, fields, items, text
from daa_node.errors import PeerFault

# Of each validator in one message: its newest, and another one where the newest names less. That is
# enough to show one contribution at least; a block may carry as much of evidence.
ACKS_SHOWN_EACH_MAX = 2
# Empty blocks that come along with one below which they lie: 120 bytes each, less in all than the
# certificate that a message has room for.
RUN_BLOCKS_MAX = 64


@dataclass(frozen=True, slots=True)
class Position:
    """Where a member stands. `resolved_round`: the newest whose result or abort is final to it.

    `round_age_ms`: for how long the round after that has been under way, as far as it knows; 0 if
    it has not begun it.
    """

    epoch: int
    view: int
    finalized_view: int
    resolved_round: int
    round_age_ms: int


@dataclass(frozen=True, slots=True)
class Stated:
    """One signed statement: a vote, an offer, an ack, an exec or a rejoin."""

    signed: Signed


@dataclass(frozen=True, slots=True)
class Proposed:
    """A leader's block, with the execution certificate that a result block stands on."""

    signed: Signed
    block: Block
    exec_certificate: Certificate | None


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate offered to somebody behind, with its block where it has one."""

    certificate: Certificate
    block: Block | None


@dataclass(frozen=True, slots=True)
class WantBlock:
    block_id: BlockId


@dataclass(frozen=True, slots=True)
class WantCertificates:
    """Certificates of these views, please; at most as many as the sender keeps."""

    epoch: int
    first_view: int
    last_view: int


@dataclass(frozen=True, slots=True)
class WantStatements:
    """Please show the Ack quorums of these contributions of the round.

    If none is named, what everybody said in it: whoever came late has not heard it.
    """

    round: int
    roots: tuple[ContributionRoot, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """Contributions of a round, and signed Acks that make a quorum for each of them."""

    round: int
    offers: tuple[OfferBody, ...]
    acks: tuple[Signed, ...]


@dataclass(frozen=True, slots=True)
class Missed:
    """A set of the round leaves these out, whose Ack quorums the sender can show."""

    round: int
    roots: tuple[ContributionRoot, ...]


@dataclass(frozen=True, slots=True)
class SentBlock:
    """A block that was asked for, and the empty blocks right below it, newest first."""

    block: Block
    below: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A change of the validator set that somebody asks for, or approves."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class AskedOfRoll:
    """What somebody asks of the trainers' roll."""

    enrolment: Enrolment


@dataclass(frozen=True, slots=True)
class Greeting:
    """Nothing but the position."""


Body = (
    Stated
    | Proposed
    | Certified
    | WantBlock
    | WantCertificates
    | WantStatements
    | Shown
    | Missed
    | SentBlock
    | Asked
    | AskedOfRoll
    | Greeting
)


@dataclass(frozen=True, slots=True)
class Message:
    position: Position
    body: Body


_POSITION = 5 * NUMBER
# Bodies that were read are remembered: the statements of a round of a hundred members, 4 MB.
BODIES_KEPT = 512
# Of a body: one signed statement, the largest an Ack of 128 contributions; what is larger seldom
# comes again.
REMEMBERED_BYTES_MAX = 8192


def message_bytes_max(limits: Limits) -> int:
    """The largest message of any kind."""
    return _largest(limits.validators, limits.contributors)


def kind_bytes_max(limits: Limits) -> Mapping[str, int]:
    """The largest message of each kind: what an honest member composes, and no more."""
    bodies = _body_bytes_max(limits.validators, limits.contributors)
    return {kind: fields(_POSITION, blob(most)) for kind, most in bodies.items()}


@lru_cache(maxsize=32)  # committees that a process sees; asked for with every message
def _largest(validators: int, contributors: int) -> int:
    return max(kind_bytes_max(Limits(validators, contributors)).values())


@lru_cache(maxsize=32)
def _body_bytes_max(validators: int, contributors: int) -> Mapping[str, int]:
    limits = Limits(validators, contributors)
    signed, block, some = limits.signed_bytes_max, limits.block_bytes_max, limits.contributors
    certificate, closing = limits.certificate_bytes_max, limits.result_block_bytes_max
    acks = ACKS_SHOWN_EACH_MAX * limits.validators
    bodies = {
        "stated": signed,
        # a result stands on an execution, a set on none
        "proposed": limits.vote_bytes_max + max(block + NOTHING, closing + certificate),
        "certified": certificate + block,
        "want_block": DIGEST,
        "want_certificates": 3 * NUMBER,
        "want_statements": NUMBER + items(some, DIGEST),
        "shown": NUMBER + items(some, OFFER_BYTES_MAX) + items(acks, limits.ack_bytes_max),
        "missed": NUMBER + items(some, DIGEST),
        "block": block + items(RUN_BLOCKS_MAX, limits.empty_block_bytes_max),
        "asked": blob(OPERATION_BYTES_MAX),
        "asked_of_roll": blob(ENROLMENT_BYTES_MAX),
        "greeting": 0,
    }
    return {kind: fields(text(len(kind)), body) for kind, body in bodies.items()}


def encode_message(message: Message) -> bytes:
    at = message.position
    position = [at.epoch, at.view, at.finalized_view, at.resolved_round, at.round_age_ms]
    return canonical.encode([*position, canonical.encode(_body_value(message.body))])


def _body_value(body: Body) -> list[canonical.Value]:
    match body:
        case Stated(signed):
            return ["stated", signed_value(signed)]
        case Proposed(signed, block, certificate):
            beside = None if certificate is None else certificate_value(certificate)
            return ["proposed", signed_value(signed), block.as_value(), beside]
        case Certified(certificate, maybe):
            beside = None if maybe is None else maybe.as_value()
            return ["certified", certificate_value(certificate), beside]
        case WantBlock(block_id):
            return ["want_block", block_id]
        case WantCertificates(epoch, first_view, last_view):
            return ["want_certificates", epoch, first_view, last_view]
        case WantStatements(round_number, roots):
            return ["want_statements", round_number, list(roots)]
        case Shown(round_number, offers, acks):
            shown = [offer.as_value() for offer in offers]
            return ["shown", round_number, shown, [signed_value(ack) for ack in acks]]
        case Missed(round_number, roots):
            return ["missed", round_number, list(roots)]
        case SentBlock(block, below):
            return ["block", block.as_value(), [ancestor.as_value() for ancestor in below]]
        case Asked(operation):
            return ["asked", encode_operation(operation)]
        case AskedOfRoll(enrolment):
            return ["asked_of_roll", encode_enrolment(enrolment)]
        case Greeting():
            return ["greeting"]
        case _:
            assert_never(body)


def decode_message(payload: bytes, limits: Limits) -> Message:
    """The message in `payload`, its signatures unverified. Raises PeerFault("malformed")."""
    try:
        match canonical.decode(payload, message_bytes_max(limits)):
            case [_, _, _, _, _, bytes(encoded)] as value:
                position = Position(*map(_count, value[:5]))
            case _:
                raise BadMessage("a message is a position and a body")
        read = _remembered_body if len(encoded) <= REMEMBERED_BYTES_MAX else _read_body
        return Message(position, read(encoded, limits.validators, limits.contributors))
    except (NotCanonical, BadMessage) as fault:
        raise PeerFault("malformed", str(fault)) from None


def _read_body(encoded: bytes, validators: int, contributors: int) -> Body:
    """Raises BadMessage or NotCanonical."""
    match canonical.decode(encoded, len(encoded)):
        case [str(kind), *parts]:
            most = _body_bytes_max(validators, contributors).get(kind, 0)
            if len(encoded) > most:
                raise BadMessage(f"a message {kind!r:.40} of {len(encoded)} bytes, at most {most}")
            return _body_of(kind, parts, Limits(validators, contributors))
        case _:
            raise BadMessage("a message's body is a kind and its parts")


_remembered_body = lru_cache(maxsize=BODIES_KEPT)(_read_body)


def _body_of(kind: str, body: list[Any], limits: Limits) -> Body:
    match kind, body:
        case "stated", [signed]:
            return Stated(signed_from_value(signed, limits))
        case "proposed", [signed, block, certificate]:
            proposed = Proposed(
                signed_from_value(signed, limits),
                block_from_value(block, limits),
                None if certificate is None else certificate_from_value(certificate, limits),
            )
            if certificate is not None and not isinstance(proposed.block.payload, ResultPayload):
                raise BadMessage("an execution certificate goes with a result")
            return proposed
        case "certified", [certificate, block]:
            return Certified(
                certificate_from_value(certificate, limits),
                None if block is None else block_from_value(block, limits),
            )
        case "want_block", [bytes() as block_id] if len(block_id) == DIGEST_BYTES:
            return WantBlock(BlockId(block_id))
        case "want_certificates", [epoch, first_view, last_view]:
            return WantCertificates(_count(epoch), _count(first_view), _count(last_view))
        case "want_statements", [round_number, list() as roots]:
            return WantStatements(_count(round_number), _roots(roots, limits))
        case "shown", [round_number, list() as offers, list() as acks]:
            return _shown_from(_count(round_number), offers, acks, limits)
        case "missed", [round_number, list() as roots]:
            return Missed(_count(round_number), _roots(roots, limits))
        case "block", [block, list() as below] if len(below) <= RUN_BLOCKS_MAX:
            ancestors = tuple(block_from_value(each, limits) for each in below)
            if not all(isinstance(each.payload, EmptyPayload) for each in ancestors):
                raise BadMessage("only empty blocks come along with one that was asked for")
            return SentBlock(block_from_value(block, limits), ancestors)
        case "asked", [bytes() as encoded]:
            return Asked(decode_operation(encoded))
        case "asked_of_roll", [bytes() as encoded]:
            return AskedOfRoll(decode_enrolment(encoded))
        case "greeting", []:
            return Greeting()
        case _:
            raise BadMessage(f"no message is a {kind!r:.40} of {len(body)} parts")


def _roots(value: list[Any], limits: Limits) -> tuple[ContributionRoot, ...]:
    sized = all(isinstance(root, bytes) and len(root) == DIGEST_BYTES for root in value)
    if not sized or len(set(value)) != len(value) or len(value) > limits.contributors:
        raise BadMessage("contributions are named by distinct digests, one an author")
    return tuple(ContributionRoot(root) for root in value)


def _shown_from(round_number: int, offers: list[Any], acks: list[Any], limits: Limits) -> Shown:
    if len(offers) > limits.contributors or len(acks) > ACKS_SHOWN_EACH_MAX * limits.validators:
        raise BadMessage(f"{len(offers)} contributions and {len(acks)} Acks are shown")
    shown = Shown(
        round_number,
        tuple(offer_from_value(offer) for offer in offers),
        tuple(signed_from_value(ack, limits) for ack in acks),
    )
    kinds = [(ack.statement.kind, ack.statement.height) for ack in shown.acks]
    if any(kind != (Kind.ACK, round_number) for kind in kinds):
        raise BadMessage(f"contributions of round {round_number} are shown by its Acks")
    return shown


_count = partial(values.number, what="a message's count")
