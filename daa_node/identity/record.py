"""A node's signed record: which keys belong together, where the node listens and what it can do.

Both identities sign the same canonical bytes, which begin with the word "daa/v1/record": ML-DSA
under the context of that name, Ed25519 over the bytes themselves. So neither key's owner can claim
the other's. Wire form: canonical `[version, ml_dsa_key, ml_kem_key, peer_id, addresses, role,
capabilities, sequence, issued_ns, expiry_ns, ml_dsa_signature, ed25519_signature]`.

Signatures and dates are judged apart: a genesis keeps records whose dates have long passed, while a
peer that shows such a record is told about clocks.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import NodeId, node_id_of
from daa_node.errors import PeerFault
from daa_node.identity.keys import (
    ED25519_SIGNATURE_BYTES,
    ML_DSA_PUBLIC_KEY_BYTES,
    ML_DSA_SIGNATURE_BYTES,
    ML_KEM_PUBLIC_KEY_BYTES,
    NodeKeys,
    ed25519_public_key_of,
    verify,
    verify_ed25519,
)
from daa_node.seams import Address, PeerId

RECORD_VERSION = 1
RECORD_CONTEXT = b"daa/v1/record"
ADDRESSES_MAX = 16  # TCP and WebSocket on four interfaces, both address families
ADDRESS_CHARACTERS_MAX = 256  # a DNS name, transport, port, relay and two peer ids
CAPABILITIES_MAX = 32
CAPABILITY_CHARACTERS_MAX = 32
SEQUENCE_MAX = 2**62
RECORD_BYTES_MAX = 12_288  # keys and signatures 6.5 kB, addresses at most 4.1 kB, capabilities 1.1
NS_PER_S = 1_000_000_000
RECORD_LIFETIME_NS = 24 * 3600 * NS_PER_S  # renewed every few hours; a dead node is gone in a day
CLOCK_SKEW_MAX_NS = 120 * NS_PER_S  # NTP keeps milliseconds; two minutes off is a clock nobody set


class Role(StrEnum):
    CLOUD = "cloud"
    EDGE = "edge"
    BROWSER = "browser"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What a node says of itself; only a higher `sequence` replaces it."""

    ml_dsa_public_key: bytes
    ml_kem_public_key: bytes
    peer_id: PeerId
    addresses: tuple[Address, ...]
    role: Role
    capabilities: tuple[str, ...]  # sorted, distinct
    sequence: int
    issued_ns: int  # Unix time
    expiry_ns: int

    @property
    def node_id(self) -> NodeId:
        return node_id_of(self.ml_dsa_public_key)

    def as_value(self) -> list[canonical.Value]:
        return [
            RECORD_VERSION,
            self.ml_dsa_public_key,
            self.ml_kem_public_key,
            self.peer_id,
            list(self.addresses),
            str(self.role),
            list(self.capabilities),
            self.sequence,
            self.issued_ns,
            self.expiry_ns,
        ]

    def sign_bytes(self) -> bytes:
        return canonical.encode([RECORD_CONTEXT.decode(), *self.as_value()])


@dataclass(frozen=True, slots=True)
class SignedRecord:
    """A record with both signatures, checked by whoever made or decoded it."""

    record: NodeRecord
    ml_dsa_signature: bytes
    ed25519_signature: bytes


def sign_record(record: NodeRecord, keys: NodeKeys) -> SignedRecord:
    assert record.ml_dsa_public_key == keys.ml_dsa_public_key
    assert record.peer_id == keys.peer_id
    payload = record.sign_bytes()
    signed = SignedRecord(record, keys.sign(payload, RECORD_CONTEXT), keys.sign_ed25519(payload))
    try:
        read = decode_record(encode_record(signed))
    except PeerFault as fault:
        raise AssertionError(f"a record of ours that others refuse: {fault}") from None
    assert read == signed
    return signed


def encode_record(signed: SignedRecord) -> bytes:
    return canonical.encode(
        [*signed.record.as_value(), signed.ml_dsa_signature, signed.ed25519_signature]
    )


def decode_record(payload: bytes) -> SignedRecord:
    """A peer's record with both signatures verified; its dates are for check_dates.

    Raises PeerFault: "record-malformed", "record-version", "peer-id" or "record-signature".
    """
    try:
        value = canonical.decode(payload, RECORD_BYTES_MAX)
    except NotCanonical as fault:
        raise PeerFault("record-malformed", str(fault)) from None
    if not isinstance(value, list) or not value:
        raise PeerFault("record-malformed", "a record is a list")
    if value[0] != RECORD_VERSION:
        raise PeerFault(
            "record-version", f"record version {value[0]!r:.20}, this node reads {RECORD_VERSION}"
        )
    if len(value) != 12:
        raise PeerFault("record-malformed", f"{len(value)} fields instead of 12")
    record = _record_of(value[1:10])
    signed = SignedRecord(
        record,
        _bytes_of(value[10], ML_DSA_SIGNATURE_BYTES, "ML-DSA signature"),
        _bytes_of(value[11], ED25519_SIGNATURE_BYTES, "Ed25519 signature"),
    )
    _verify(signed)
    return signed


def supersedes(old: NodeRecord, new: NodeRecord) -> bool:
    """Whether `new` replaces `old`: the same node, and a higher sequence number."""
    return new.node_id == old.node_id and new.sequence > old.sequence


def check_dates(record: NodeRecord, now_ns: int) -> None:
    """Return when the record is current by our wall clock, give or take CLOCK_SKEW_MAX_NS.

    Raises PeerFault: "clock-skew" for a record from our future, "record-expired" for an old one.
    Both messages give the two times, for either clock may be the wrong one.
    """
    name = f"record of node {record.node_id.hex()[:8]}"
    if record.issued_ns > now_ns + CLOCK_SKEW_MAX_NS:
        ahead_s = (record.issued_ns - now_ns) // NS_PER_S
        raise PeerFault(
            "clock-skew",
            f"{name} was made at {_utc(record.issued_ns)}, {ahead_s} s ahead of this node's clock "
            f"({_utc(now_ns)}); set the wrong one of the two clocks (NTP), at most "
            f"{CLOCK_SKEW_MAX_NS // NS_PER_S} s are tolerated",
        )
    if record.expiry_ns + CLOCK_SKEW_MAX_NS < now_ns:
        ago_s = (now_ns - record.expiry_ns) // NS_PER_S
        raise PeerFault(
            "record-expired",
            f"{name} expired at {_utc(record.expiry_ns)}, {ago_s} s ago by this node's clock "
            f"({_utc(now_ns)}); if that node is running now, one of the two clocks is wrong (NTP)",
        )


def check_clocks(ours_ns: int, theirs_ns: int) -> None:
    """Compare wall clocks read at about the same moment, as at hello.

    Raises PeerFault("clock-skew") when they differ by more than CLOCK_SKEW_MAX_NS.
    """
    skew_s = abs(theirs_ns - ours_ns) // NS_PER_S
    if abs(theirs_ns - ours_ns) > CLOCK_SKEW_MAX_NS:
        word = "ahead of" if theirs_ns > ours_ns else "behind"
        raise PeerFault(
            "clock-skew",
            f"the peer's clock ({_utc(theirs_ns)}) is {skew_s} s {word} this node's "
            f"({_utc(ours_ns)}); set the wrong one of the two (NTP), at most "
            f"{CLOCK_SKEW_MAX_NS // NS_PER_S} s are tolerated",
        )


def _verify(signed: SignedRecord) -> None:
    record, payload = signed.record, signed.record.sign_bytes()
    if not verify(record.ml_dsa_public_key, signed.ml_dsa_signature, payload, RECORD_CONTEXT):
        raise PeerFault("record-signature", "the ML-DSA signature does not verify")
    transport_key = ed25519_public_key_of(record.peer_id)
    if not verify_ed25519(transport_key, signed.ed25519_signature, payload):
        raise PeerFault("record-signature", "the Ed25519 signature does not verify")


def _record_of(fields: list[Any]) -> NodeRecord:
    dsa_key, kem_key, peer_id, addresses, role, capabilities, sequence, issued, expiry = fields
    try:
        known_role = Role(role)
    except ValueError:
        raise PeerFault("record-malformed", f"no role is named {role!r:.40}") from None
    words = _texts_of(capabilities, CAPABILITIES_MAX, CAPABILITY_CHARACTERS_MAX, "capabilities")
    if list(words) != sorted(set(words)):
        raise PeerFault("record-malformed", "capabilities are distinct and ascend")
    issued_ns, expiry_ns = _number_of(issued, "issue date"), _number_of(expiry, "expiry date")
    if not issued_ns < expiry_ns <= issued_ns + RECORD_LIFETIME_NS:
        raise PeerFault(
            "record-malformed",
            f"a record lives from its issue for at most {RECORD_LIFETIME_NS // NS_PER_S} s",
        )
    if not isinstance(peer_id, str):
        raise PeerFault("record-malformed", "a peer id is text")
    return NodeRecord(
        _bytes_of(dsa_key, ML_DSA_PUBLIC_KEY_BYTES, "ML-DSA key"),
        _bytes_of(kem_key, ML_KEM_PUBLIC_KEY_BYTES, "ML-KEM key"),
        PeerId(peer_id),
        tuple(
            Address(text)
            for text in _texts_of(addresses, ADDRESSES_MAX, ADDRESS_CHARACTERS_MAX, "addresses")
        ),
        known_role,
        words,
        _number_of(sequence, "sequence"),
        issued_ns,
        expiry_ns,
    )


def _texts_of(value: Any, count_max: int, characters_max: int, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > count_max:
        raise PeerFault("record-malformed", f"{what}: a list of at most {count_max}")
    for text in value:
        # Printable ASCII only: records are shown on terminals and in logs.
        if not isinstance(text, str) or not 0 < len(text) <= characters_max:
            raise PeerFault("record-malformed", f"{what}: 1 to {characters_max} characters each")
        if not text.isascii() or not text.isprintable():
            raise PeerFault("record-malformed", f"{what}: printable ASCII only")
    return tuple(value)


def _bytes_of(value: Any, size_bytes: int, what: str) -> bytes:
    if not isinstance(value, bytes) or len(value) != size_bytes:
        raise PeerFault("record-malformed", f"{what} has {size_bytes} bytes")
    return value


def _number_of(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= SEQUENCE_MAX:
        raise PeerFault("record-malformed", f"{what} is an integer from 0 to {SEQUENCE_MAX}")
    return value


def _utc(unix_ns: int) -> str:
    # A peer may name any 62-bit time; the calendar ends in 9999.
    seconds = min(unix_ns // NS_PER_S, 253_402_300_799)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
