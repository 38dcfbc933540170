"""A volunteer's signed record: which key it has, and what its page can do.

A hello's signature covers the record, the gateway and a nonce that the gateway has just drawn: it
is good for one connection. A verdict's covers session and task. Forms: docs/volunteers.md.
"""

from dataclasses import dataclass
from typing import Any

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import ChainId, NodeId, digest_of, node_id_of
from daa_node.errors import PeerFault
from daa_node.identity.keys import ML_DSA_PUBLIC_KEY_BYTES, verify_once
from daa_node.identity.record import CLOCK_SKEW_MAX_NS, NS_PER_S, SEQUENCE_MAX, Role
from daa_node.seams import PeerId

RECORD_WORD = "daa/v1/volunteer"
HELLO_CONTEXT = RECORD_WORD.encode()
VERDICT_CONTEXT = b"daa/v1/volunteer-verdict"
RECORD_BYTES_MAX = 4096  # a key of 2 kB and few words
RECORD_LIFETIME_S = 24 * 3600
KINDS_MAX, KIND_CHARACTERS_MAX = 32, 32
WORDS_CHARACTERS_MAX = 64
SKEW_S = CLOCK_SKEW_MAX_NS // NS_PER_S


@dataclass(frozen=True, slots=True)
class VolunteerRecord:
    """What a page says of itself."""

    chain_id: ChainId
    public_key: bytes  # ML-DSA-65
    peer_id: PeerId
    sequence: int
    issued_s: int  # Unix time
    expires_s: int
    kinds: tuple[str, ...]  # of tasks, ascending
    words: str  # the version of the page

    @property
    def name(self) -> NodeId:
        """As nodes are named: no key has two names."""
        return node_id_of(self.public_key)

    def encode(self) -> bytes:
        return canonical.encode(
            [
                RECORD_WORD,
                self.chain_id,
                self.public_key,
                self.peer_id,
                str(Role.BROWSER),
                self.sequence,
                self.issued_s,
                self.expires_s,
                list(self.kinds),
                self.words,
            ]
        )


def hello_bytes(gateway: NodeId, nonce: bytes, record: bytes) -> bytes:
    """What a hello signs under HELLO_CONTEXT."""
    return canonical.encode(["hello", gateway, nonce, digest_of(record)])


def verdict_bytes(
    chain_id: ChainId,
    gateway: NodeId,
    session: bytes,
    task: bytes,
    kind: str,
    result: canonical.Value,
) -> bytes:
    """What a verdict signs under VERDICT_CONTEXT."""
    digest = digest_of(canonical.encode(result))
    return canonical.encode([chain_id, gateway, session, task, kind, digest])


def decode_record(payload: bytes) -> VolunteerRecord:
    """Raises PeerFault "malformed" or "role"."""
    try:
        value = canonical.decode(payload, RECORD_BYTES_MAX)
    except NotCanonical as fault:
        raise PeerFault("malformed", str(fault)) from None
    match value:
        case [word, bytes() as chain_id, bytes() as key, str() as peer_id, role, *rest]:
            if word != RECORD_WORD or len(rest) != 5 or len(key) != ML_DSA_PUBLIC_KEY_BYTES:
                raise PeerFault("malformed", "a volunteer's record has ten fields")
        case _:
            raise PeerFault("malformed", "a volunteer's record has ten fields")
    if role != Role.BROWSER:
        raise PeerFault("role", f"{role!r:.40} does not come in here")
    sequence, issued_s, expires_s, kinds, words = rest
    for number in (sequence, issued_s, expires_s):
        if type(number) is not int or not 0 <= number <= SEQUENCE_MAX:
            raise PeerFault("malformed", "sequence and dates are whole numbers")
    if not _is_text(words, WORDS_CHARACTERS_MAX):
        raise PeerFault("malformed", f"words have 1 to {WORDS_CHARACTERS_MAX} ASCII characters")
    return VolunteerRecord(
        ChainId(chain_id),
        key,
        PeerId(peer_id),
        sequence,
        issued_s,
        expires_s,
        _kinds_of(kinds),
        words,
    )


def check_record(record: VolunteerRecord, chain_id: ChainId, peer_id: PeerId, now_s: int) -> None:
    """Return when the record is for this chain, this connection and this time.

    Raises PeerFault: "chain", "peer-id", "clock", "expired" or "malformed".
    """
    if record.chain_id != chain_id:
        raise PeerFault("chain", "the record is for another network")
    if record.peer_id != peer_id:
        raise PeerFault("peer-id", f"connected as {peer_id}, not as the record has it")
    if not record.issued_s < record.expires_s <= record.issued_s + RECORD_LIFETIME_S:
        raise PeerFault("malformed", f"a record lives for at most {RECORD_LIFETIME_S} s")
    if record.issued_s > now_s + SKEW_S:
        raise PeerFault(
            "clock", f"the record was made {record.issued_s - now_s} s from now: set your clock"
        )
    if record.expires_s + SKEW_S < now_s:
        raise PeerFault("expired", f"the record expired {now_s - record.expires_s} s ago")


def check_hello(
    record: VolunteerRecord, signature: bytes, gateway: NodeId, nonce: bytes, payload: bytes
) -> None:
    """Raises PeerFault "signature" unless the record's owner has signed this very hello."""
    if not verify_once(
        record.public_key, signature, hello_bytes(gateway, nonce, payload), HELLO_CONTEXT
    ):
        raise PeerFault("signature", "the hello is not signed by the record's key")


def _kinds_of(kinds: Any) -> tuple[str, ...]:
    if (
        not isinstance(kinds, list)
        or len(kinds) > KINDS_MAX
        or not all(_is_text(kind, KIND_CHARACTERS_MAX) for kind in kinds)
        or kinds != sorted(set(kinds))
    ):
        raise PeerFault("malformed", "kinds are distinct words, and ascend")
    return tuple(kinds)


def _is_text(value: Any, characters_max: int) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value) <= characters_max
        and value.isascii()
        and value.isprintable()
    )
