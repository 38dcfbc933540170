"""Sessions that are agreed, and wait for the socket that shows their token."""

import hmac

from daa_node.errors import Unavailable
from daa_node.identity.session import SessionKeys, Token
from daa_node.seams import PeerId

# The peer dials at once; what has not arrived by then was lost, or was stolen.
TOKEN_LIFETIME_S = 30.0
# Handshakes of one peer that wait for their socket; and of all peers.
TOKENS_PER_PEER_MAX = 8
TOKENS_MAX = 512


class TokenTable:
    """Sessions that wait for their socket: each token is good once, for 30 s, for its holder."""

    def __init__(self) -> None:
        self._waiting: dict[Token, tuple[SessionKeys, PeerId, float]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def issue(self, keys: SessionKeys, peer_id: PeerId, now_s: float) -> None:
        """Raises Unavailable when this peer, or all together, have too many waiting."""
        self._drop_expired(now_s)
        mine = sum(holder == peer_id for _, holder, _ in self._waiting.values())
        if mine >= TOKENS_PER_PEER_MAX or len(self._waiting) >= TOKENS_MAX:
            raise Unavailable(f"{mine} of the peer's sessions and {len(self._waiting)} in all wait")
        self._waiting[keys.token] = (keys, peer_id, now_s + TOKEN_LIFETIME_S)

    def redeem(self, token: bytes, proof: bytes, now_s: float) -> tuple[SessionKeys, PeerId] | None:
        """The session and its holder, once; None for a token that is none any more, or unproven."""
        self._drop_expired(now_s)
        entry = self._waiting.get(Token(token))
        # a wrong proof spends nothing: who saw a token go by must not be able to burn it
        if entry is None or not hmac.compare_digest(entry[0].dial_proof(), proof):
            return None
        del self._waiting[Token(token)]
        return entry[0], entry[1]

    def withdraw(self, token: Token) -> bool:
        """Spend the token without a socket; False when it was spent before, or has expired."""
        return self._waiting.pop(token, None) is not None

    def _drop_expired(self, now_s: float) -> None:
        # insertion order is expiry order: every token lives equally long
        while self._waiting:
            token, (_, _, expires_s) = next(iter(self._waiting.items()))
            if now_s < expires_s:
                return
            del self._waiting[token]
