"""What is said before bytes are relayed, one message each way.

RELAY, to a relay:      ["reserve"]            -> ["ok", seconds]
                        ["connect", peer id]   -> ["ok", 0], then bytes
RELAYED, from a relay:  ["from", peer id]      -> ["ok", 0], then bytes
any of them                                    -> ["refused", why]
"""

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import PeerId

MESSAGE_BYTES_MAX = 512
WHY_CHARACTERS_MAX = 200
PEER_ID_CHARACTERS_MAX = 64
RESERVED_S_MAX = 3600
MALFORMED = "relay-malformed"


def reserve() -> bytes:
    return canonical.encode(["reserve"])


def connect(peer_id: PeerId) -> bytes:
    return canonical.encode(["connect", peer_id])


def from_peer(peer_id: PeerId) -> bytes:
    return canonical.encode(["from", peer_id])


def granted(seconds: int = 0) -> bytes:
    return canonical.encode(["ok", seconds])


def refused(why: str) -> bytes:
    return canonical.encode(["refused", why[:WHY_CHARACTERS_MAX]])


def wish_of(payload: bytes) -> tuple[str, PeerId]:
    """The word, and the peer that it names, or "". Raises PeerFault("relay-malformed")."""
    match decoded(payload):
        case ["reserve"]:
            return "reserve", PeerId("")
        case ["connect" | "from" as word, str(peer_id)] if len(peer_id) <= PEER_ID_CHARACTERS_MAX:
            return word, PeerId(peer_id)
    raise PeerFault(MALFORMED, "nothing that a relay understands")


def seconds_granted(payload: bytes) -> int:
    """Raises Unavailable with the reason of a refusal, PeerFault("relay-malformed")."""
    match decoded(payload):
        case ["ok", int(seconds)] if 0 <= seconds <= RESERVED_S_MAX:
            return seconds
        case ["refused", str(why)] if why.isprintable():
            raise Unavailable(f"the relay refuses: {why}")
    raise PeerFault(MALFORMED, "neither granted nor refused")


def decoded(payload: bytes, reason: str = MALFORMED) -> canonical.Value:
    """Any such message. Raises PeerFault(reason)."""
    try:
        value: canonical.Value = canonical.decode(payload, MESSAGE_BYTES_MAX)
        return value
    except NotCanonical as fault:
        raise PeerFault(reason, str(fault)) from None
