"""The shapes of all that a node can say, read off the wire's own dataclasses and type hints.

Nothing is listed twice: kinds of messages are the members of their union, kinds of statements those
of their enumeration, and so on. What type hints do not say stands here: what a statement of each
kind is about, what is encoded inside of bytes, and which lists a decoder wants in order. A test
holds these tables against the decoders.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

from daa_consensus.bft.evidence import Evidence, decode_evidence, encode_evidence
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    VIEW_KINDS,
    Block,
    OfferBody,
    Payload,
    SetPayload,
    offer_from_value,
)
from daa_consensus.committee import VALIDATORS_MAX
from daa_consensus.errors import BadMessage
from daa_consensus.operations import (
    Action,
    Join,
    Operation,
    Request,
    Rotate,
    decode_operation,
    encode_operation,
)
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import BlockId, ContributionRoot, Digest, NodeId, VertexId
from daa_node.agreement.messages import Body
from daa_node.errors import PeerFault
from daa_node.identity.record import SignedRecord, decode_record, encode_record
from daa_node.identity.validators import MemberKeys
from daa_node.network.hello import Greeting
from daa_node.seams import PeerId

LIMITS = Limits(VALIDATORS_MAX, VALIDATORS_MAX)  # of any epoch


@dataclass(frozen=True, slots=True)
class Encoding:
    """What lies inside of some field's bytes."""

    type: type
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def opened(self, payload: bytes) -> Any | None:
        """What the payload holds; None if it is something else."""
        try:
            return self.decode(payload)
        except (BadMessage, PeerFault, DagError, TypeError, ValueError):
            return None


def _keys_from(payload: bytes) -> MemberKeys:
    ml_dsa, ml_kem, peer_id, proof = canonical.decode(payload, len(payload))
    return MemberKeys(ml_dsa, ml_kem, PeerId(peer_id), proof)


BODIES: Final[tuple[Any, ...]] = get_args(Body)
PAYLOADS: Final[tuple[Any, ...]] = get_args(Payload)
ACTIONS: Final[tuple[Any, ...]] = get_args(Action)
# What a statement of each kind is about.
ABOUT: Final[Mapping[Kind, Any]] = {
    Kind.PROPOSAL: BlockId,
    Kind.NOTARIZE: BlockId,
    Kind.NULLIFY: None,
    Kind.FINALIZE: BlockId,
    Kind.OFFER: OfferBody,
    Kind.ACK: tuple[ContributionRoot, ...],
    Kind.EXEC: tuple[VertexId, Digest],
    Kind.REJOIN: Digest,
    Kind.MEMBERSHIP: Action,
    Kind.OPENING: tuple[ContributionRoot, int, tuple[Digest, ...]],
    Kind.ACCUSATION: tuple[ContributionRoot, str, Digest, int],
    Kind.VERDICT: tuple[NodeId, Digest],
}
SLOTLESS: Final = frozenset(Kind) - VIEW_KINDS
HEIGHTLESS: Final = frozenset({Kind.NULLIFY, Kind.REJOIN, Kind.MEMBERSHIP})
_KEYS: Final = Encoding(MemberKeys, MemberKeys.encode, _keys_from)
ENCODED: Final[Mapping[tuple[type, str], Encoding]] = {
    (SetPayload, "evidence"): Encoding(
        Evidence, encode_evidence, lambda payload: decode_evidence(payload, LIMITS)
    ),
    (SetPayload, "operations"): Encoding(Operation, encode_operation, decode_operation),
    (Join, "keys"): _KEYS,
    (Rotate, "keys"): _KEYS,
    (Greeting, "record_bytes"): Encoding(SignedRecord, encode_record, decode_record),
}
# Names that follow from a thing: pool, attribute.
NAMES: Final[Mapping[type, tuple[str, str]]] = {
    Block: ("BlockId", "id"),
    OfferBody: ("ContributionRoot", "root"),
    Request: ("request_id", "id"),
    Signed: ("ack_ids", "id"),
}
SORTED: Final = frozenset({"offers", "ack_ids", "signatures", "value", "indices"})  # by place


# Types are few and asked about with every value: what each says is worked out once.


@cache
def has_fields(of: type) -> bool:
    """Whether it is a dataclass."""
    return is_dataclass(of)


@cache
def fields_of(of: Any) -> tuple[tuple[str, Any], ...]:
    """(name, type) of each field of a dataclass."""
    hints = get_type_hints(of, localns=vars(canonical))  # where Value is spelt out
    return tuple((field.name, hints[field.name]) for field in fields(of))


@cache
def tuple_of(hint: Any) -> Any | None:
    """The type of the items of a tuple of any length; None for anything else."""
    arguments = get_args(hint)
    return arguments[0] if get_origin(hint) is tuple and arguments[-1] is ... else None


@cache
def each_of(hint: Any) -> tuple[Any, ...]:
    """The types of a tuple's places, where there is a fixed number of them."""
    arguments = get_args(hint)
    return arguments if get_origin(hint) is tuple and arguments[-1] is not ... else ()


@cache
def optional_of(hint: Any) -> Any | None:
    """The type that may be missing; None for anything else."""
    arguments = get_args(hint)
    if get_origin(hint) not in (Union, types.UnionType) or type(None) not in arguments:
        return None
    (inner,) = (each for each in arguments if each is not type(None))
    return inner


@cache
def kind_of(hint: Any, place: str) -> str:
    """What a value is called that has this type and lies in this field.

    Any digest may be a Digest: there its field says more.
    """
    name = getattr(hint, "__name__", "")
    if is_dataclass(hint) or (hasattr(hint, "__supertype__") and hint is not Digest):
        return str(name)
    if place == "value" and hint is not Digest:  # of a statement, beside digests
        return str(name)
    return place.rsplit("_", 1)[-1] if hint is int else place


def shaped(statement: Statement) -> tuple[Any, str, Any]:
    """(type, place, value) of what a statement is about, as `note` takes it."""
    about, value = ABOUT[statement.kind], statement.value
    if statement.kind is Kind.OFFER:
        return OfferBody, "value", offer_from_value(value)
    return about, "value", value


def plain(about: Any) -> canonical.Value:
    """What a statement carries of what it is about."""
    if is_dataclass(about):
        value: canonical.Value = cast(Any, about).as_value()
        return value
    return list(about) if isinstance(about, tuple) else about
