"""Who holds the sessions that a bulk channel serves, and who gives one up for somebody else.

When all are taken, whoever holds most gives up its oldest for whoever holds fewer: fetches resume,
and no few peers keep the others out. Members give way to members only, others to all.

    responder, on the stream --(the socket shows its token)--> the socket, in the same place

A session never has two places: who keeps the stream open beside its socket would be cut off there,
and the socket stay. So there are never more sockets than places.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from daa_node.errors import Unavailable
from daa_node.identity.session import Token
from daa_node.seams import IsMember, PeerId

SESSIONS_PER_PEER_MAX = 8  # inbound; each may hold two frames
SESSIONS_MAX = 256
# A peer that reuses its sessions needs a few a minute. One costs us 1.5 ms: of as many peers as may
# look on by default, 5 % of a core.
HANDSHAKES_PER_MINUTE_MAX = 30


class SessionPlaces:
    """Sessions of peers with us, and handshakes on their way to one."""

    def __init__(self, is_member: IsMember) -> None:
        self._sessions_max = SESSIONS_MAX
        self._is_member = is_member
        self._inbound: dict[PeerId, dict[trio.CancelScope, None]] = {}  # oldest first
        self._awaiting: dict[Token, trio.CancelScope] = {}  # places whose sockets may come
        self._handshakes: Counter[PeerId] = Counter()  # in the current minute
        self._minute = 0

    @property
    def taken(self) -> int:
        """How many sessions all peers hold."""
        return sum(map(len, self._inbound.values()))

    def make_room(self, peer_id: PeerId) -> None:
        """Raises Unavailable when the peer, or all together, hold or open too many sessions."""
        held = self.held_by(peer_id)
        if held >= SESSIONS_PER_PEER_MAX:
            raise Unavailable(f"busy: {SESSIONS_PER_PEER_MAX} sessions a peer")
        if self.taken >= self._sessions_max:
            crowd = self._who_gives_way(peer_id)
            if crowd is None:
                raise Unavailable(f"busy: {self._sessions_max} sessions")
            oldest = next(iter(self._inbound[crowd]))
            self._leave(crowd, oldest)
            oldest.cancel()

    def _who_gives_way(self, peer_id: PeerId) -> PeerId | None:
        """A guest for any member; else who holds most of the same kind, if that is more."""
        guests = [peer for peer in self._inbound if not self._is_member(peer)]
        if self._is_member(peer_id) and guests:
            return max(guests, key=self.held_by)
        equals = list(self._inbound) if self._is_member(peer_id) else guests
        crowd = max(equals, key=self.held_by, default=None)
        fewer = crowd is not None and self.held_by(peer_id) + 2 <= self.held_by(crowd)
        return crowd if fewer else None

    def held_by(self, peer_id: PeerId) -> int:
        return len(self._inbound.get(peer_id, ()))

    def count_handshake(self, peer_id: PeerId) -> None:
        minute = int(trio.current_time() // 60)
        if minute != self._minute:
            self._minute = minute
            self._handshakes.clear()
        self._handshakes[peer_id] += 1
        if self._handshakes[peer_id] > HANDSHAKES_PER_MINUTE_MAX:
            raise Unavailable("busy: too many sessions a minute")

    @contextmanager
    def hold(self, peer_id: PeerId) -> Iterator[trio.CancelScope]:
        """Holds one; what is done within may be cut off for somebody else's sake."""
        with trio.CancelScope() as scope:
            self._inbound.setdefault(peer_id, {})[scope] = None
            try:
                yield scope
            finally:
                self._leave(peer_id, scope)

    @contextmanager
    def await_socket(self, token: Token, place: trio.CancelScope) -> Iterator[None]:
        """Meanwhile the socket that shows the token may take over the place, and end this."""
        self._awaiting[token] = place
        try:
            yield
        finally:
            self._awaiting.pop(token, None)

    @contextmanager
    def take_over(self, peer_id: PeerId, token: Token) -> Iterator[None]:
        """As `hold`, in the place that awaited the socket. Raises Unavailable if that is lost."""
        place = self._awaiting.pop(token, None)
        if place is None or not self._leave(peer_id, place):
            raise Unavailable("the session has given way")
        place.cancel()
        with self.hold(peer_id):
            yield

    def _leave(self, peer_id: PeerId, scope: trio.CancelScope) -> bool:
        """False if it had left before."""
        held = self._inbound.get(peer_id, {})
        was_there = scope in held
        held.pop(scope, None)
        if not held:
            self._inbound.pop(peer_id, None)
        return was_there
