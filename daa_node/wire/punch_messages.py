"""What is said before two peers behind routers dial each other at the same moment.

PUNCH, to a relay:                       ["where", peer id]  -> ["at", host, port]
PUNCH, to a peer that a relay joins us:  ["connect"] -> ["ready"], then at most TRIES_MAX times
                                         ["ping"] -> ["pong"], ["sync"], and both dial;
                                         ["done"] follows once the other end has the connection
any of them                              -> ["refused", why]

The order is that of DCUtR (libp2p specs, relay/DCUtR.md), but that no end says where it is itself:
the relay says where it sees the other one.
"""

from enum import StrEnum

from daa_dag import canonical
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import PeerId
from daa_node.wire.hosts import is_host
from daa_node.wire.relay_messages import PEER_ID_CHARACTERS_MAX, decoded

TRIES_MAX = 3
MALFORMED = "punch-malformed"
PORT_FIRST, PORT_LAST = 1024, 65_535  # no router shows an inside's stream below


class Word(StrEnum):
    """Messages of one word."""

    CONNECT = "connect"
    READY = "ready"
    PING = "ping"
    PONG = "pong"
    SYNC = "sync"
    DONE = "done"


def where(peer_id: PeerId) -> bytes:
    return canonical.encode(["where", peer_id])


def at(host: str, port: int) -> bytes:
    return canonical.encode(["at", host, port])


def said(word: Word) -> bytes:
    return canonical.encode([str(word)])


def wish_of(payload: bytes) -> Word | PeerId:
    """A word, or the peer that somebody asks a relay for. Raises as `word_of` does."""
    match decoded(payload, MALFORMED):
        case ["where", str(peer_id)] if len(peer_id) <= PEER_ID_CHARACTERS_MAX:
            return PeerId(peer_id)
    return word_of(payload)


def word_of(payload: bytes) -> Word:
    """Raises Unavailable with the reason of a refusal, PeerFault("punch-malformed")."""
    match decoded(payload, MALFORMED):
        case [str(text)] if text in {str(word) for word in Word}:
            return Word(text)
        case ["refused", str(why)] if why.isprintable():
            raise Unavailable(f"the other end refuses: {why}")
    raise PeerFault(MALFORMED, "no word of punching")


def place_of(payload: bytes) -> tuple[str, int]:
    """Host and port. Raises Unavailable with a refusal, PeerFault("punch-malformed")."""
    match decoded(payload, MALFORMED):
        case ["at", str(host), int(port)] if PORT_FIRST <= port <= PORT_LAST and is_host(host):
            return host, port
        case ["refused", str(why)] if why.isprintable():
            raise Unavailable(f"the relay refuses: {why}")
    raise PeerFault(MALFORMED, "neither a place nor a refusal")
