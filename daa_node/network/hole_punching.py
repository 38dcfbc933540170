"""Peers that a relay joins us with, one after another: may we reach them without it?

    relayed --both dial at once--> punched --the connection ends--> relayed again, or gone
        \\--no stream comes about, or the peer does not want it--> relayed, asked again much later

Of two peers the one whose peer id is smaller asks, so that never both do. What fails is not tried
for ever: routers that show another port to each host never let it through.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault, Unavailable
from daa_node.observability.events import HOLE_FAILED, HOLE_PUNCHED, EventLog
from daa_node.seams import PeerId, Transport
from daa_node.wire.framing import TRUNCATED

LOOK_S = 1.0
SETTLE_S = 3.0  # a peer that has just come has much to say over the relay
PUNCH_TIMEOUT_S = 60.0  # each step has its own limit; this is for all of them together
# After the first failure, the second and so on: the other end was busy or late, or a router has
# been restarted by then.
WAITS_S = (15.0, 60.0, 300.0, 1800.0)
TRIES_KEPT_MAX = 1024  # peers; whoever is beyond stays relayed


class Punches(Protocol):
    """Direct connections with peers behind routers, in place of relayed ones."""

    async def punch(self, peer_id: PeerId) -> None:
        """Raises Unavailable when none came about, PeerFault for what is no answer."""

    def is_punched(self, peer_id: PeerId) -> bool:
        """Whether we are connected with it so."""


@dataclass(slots=True)
class _Tries:
    """Of one peer."""

    next_s: float
    failures: int = 0
    why: str = ""


class HolePunching:
    """`run` asks; `standing` says who was reached so and who was not."""

    def __init__(
        self,
        punches: Punches,
        transport: Transport,
        is_relayed: Callable[[PeerId], bool],
        node_of: Callable[[PeerId], NodeId | None],
        is_member: Callable[[PeerId], bool],
        blame: Callable[[PeerId, PeerFault], None],
        events: EventLog,
    ) -> None:
        self._punches = punches
        self._transport = transport
        self._is_relayed = is_relayed
        self._node_of = node_of
        self._is_member = is_member
        self._blame = blame
        self._events = events
        self._tries: dict[PeerId, _Tries] = {}  # of those whom we ask
        self._told: set[PeerId] = set()  # of whom it was told that they are punched

    def is_punched(self, peer_id: PeerId) -> bool:
        return self._punches.is_punched(peer_id)

    def standing(self) -> Mapping[str, Any]:
        """For `status`."""
        failed = {peer: tries.why for peer, tries in self._tries.items() if tries.failures}
        return {"punched": sorted(self._told), "not_punched": failed}

    def why_none(self, peer_id: PeerId) -> str:
        """Why no hole leads to a relayed peer."""
        tries = self._tries.get(peer_id)
        if tries is not None and tries.failures:
            return f"no hole: {tries.why}"
        if self._transport.peer_id > peer_id:
            return "no hole yet: that node is to ask for one"
        return "no hole yet: it is tried soon"

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            self._look()
            peer_id = self._next()
            if peer_id is not None:
                await self._punch(peer_id)

    def _look(self) -> None:
        """Tell of those whom we, or they, have punched; forget those who are gone or reached.

        Of those who ask us nothing is kept in mind, nor is it looked up whether they are relayed.
        """
        here, now_s = self._transport.connected(), trio.current_time()
        punched = set(filter(self._punches.is_punched, here))
        for peer_id in sorted(punched - self._told):
            self._events.emit(HOLE_PUNCHED, peer_id=peer_id, node_id=self._node_of(peer_id))
        self._told = punched
        ours = (peer for peer in here if self._transport.peer_id < peer and peer not in punched)
        relayed = {peer: None for peer in ours if self._is_relayed(peer)}
        self._tries = {
            peer: tries
            for peer, tries in self._tries.items()
            # who comes and goes is not asked more often for it
            if peer in relayed or (tries.failures and tries.next_s > now_s)
        }
        for peer_id in relayed:
            if peer_id not in self._tries and len(self._tries) < TRIES_KEPT_MAX:
                self._tries[peer_id] = _Tries(now_s + SETTLE_S)

    def _next(self) -> PeerId | None:
        """Of those who are here: members first, then whom we have not tried yet.

        Else strangers that come as new names, and draw out theirs, would keep members from it, and
        a router that lets nobody through those whose routers do.
        """
        now_s, here = trio.current_time(), set(self._transport.connected())
        due = [
            (not self._is_member(peer), tries.failures, tries.next_s, peer)
            for peer, tries in self._tries.items()
            if tries.next_s <= now_s and peer in here
        ]
        return min(due)[-1] if due else None

    async def _punch(self, peer_id: PeerId) -> None:
        tries, why = self._tries[peer_id], f"no end within {PUNCH_TIMEOUT_S:.0f} s"
        try:
            with trio.move_on_after(PUNCH_TIMEOUT_S):
                await self._punches.punch(peer_id)
                return
        except Unavailable as reason:
            why = str(reason)
        except PeerFault as fault:
            why = str(fault)
            if fault.reason != TRUNCATED:  # it went away; that is no lie
                self._blame(peer_id, fault)
        tries.next_s = trio.current_time() + WAITS_S[min(tries.failures, len(WAITS_S) - 1)]
        tries.failures, tries.why = tries.failures + 1, why
        self._events.emit(
            HOLE_FAILED,
            node_id=self._node_of(peer_id),
            peer_id=peer_id,
            why=why,
            failures=tries.failures,
        )
