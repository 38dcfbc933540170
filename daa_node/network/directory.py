"""What we know about others: their records, how far they are, and what they are held for.

Members of the present committee and the next are always kept; of others whoever
is not connected makes room, and of those the one seen longest ago.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import trio

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.identity.record import SignedRecord, supersedes
from daa_node.network.reputation import Reputation
from daa_node.network.round_trips import RoundTrips
from daa_node.observability.events import PEER_BANNED, PEER_FAULT, EventLog
from daa_node.seams import PeerId

OTHERS_MAX = 1024  # peers that are not members; 10 kB each with their record


class Crowd(Protocol):
    """Of a Transport: who is connected."""

    def connected(self) -> list[PeerId]: ...


@dataclass(slots=True)
class Standing:
    """One peer, as far as we have met or heard of it."""

    peer_id: PeerId
    signed: SignedRecord | None = None
    seen_at_s: float = 0.0
    rtt_s: float | None = None
    round_trips: RoundTrips | None = None  # None: a hello may have measured one, and nobody more
    clock_off_s: float | None = None  # ahead of ours, by its newest hello; the way of it included
    height: int = 0  # its finalized height, as it says
    reputation: Reputation = field(default_factory=Reputation)


class Directory:
    """All times are of `now_s`, a monotonic clock in seconds."""

    def __init__(
        self,
        now_s: Callable[[], float],
        members: Mapping[NodeId, PeerId],
        events: EventLog,
    ) -> None:
        self._now_s = now_s
        self._crowd: Crowd | None = None
        self._events = events
        self._members = dict(members)
        self._standings: dict[PeerId, Standing] = {}
        self._peers: dict[NodeId, PeerId] = {}
        self._nodes: dict[PeerId, NodeId] = {peer: node for node, peer in members.items()}
        self.on_fault: Callable[[NodeId, str], None] = lambda _node_id, _reason: None
        self.changes = 0  # in who is a member, who is where, and who is banned
        self.crowd_changed = trio.lowlevel.ParkingLot()  # in these or in who is connected

    def attend(self, crowd: Crowd) -> None:
        """Whoever is connected is not forgotten to make room for others."""
        self._crowd = crowd

    def members(self) -> Collection[NodeId]:
        return self._members.keys()

    def is_member(self, peer_id: PeerId) -> bool:
        return self._nodes.get(peer_id) in self._members

    def enlist(self, members: Mapping[NodeId, PeerId]) -> None:
        """These are the members now, by the chain, and nobody else is."""
        self.changes += 1
        for node_id in [node_id for node_id in self._members if node_id not in members]:
            peer_id = self._members.pop(node_id)
            if peer_id not in self._standings:
                self._nodes.pop(peer_id, None)
        for node_id, peer_id in members.items():
            if node_id not in self._members:
                self._members[node_id] = peer_id
                self._nodes[peer_id] = node_id

    def peer_of(self, node_id: NodeId) -> PeerId | None:
        """Where this node is now: by its newest record, else as the genesis has it."""
        return self._peers.get(node_id) or self._members.get(node_id)

    def node_of(self, peer_id: PeerId) -> NodeId | None:
        return self._nodes.get(peer_id)

    def record_of(self, node_id: NodeId) -> SignedRecord | None:
        standing = self._standings.get(self.peer_of(node_id) or PeerId(""))
        return standing.signed if standing is not None else None

    def standing(self, peer_id: PeerId) -> Standing | None:
        return self._standings.get(peer_id)

    def standings(self) -> list[Standing]:
        return list(self._standings.values())

    def heights(self) -> dict[NodeId, int]:
        """How far each member says that it is, in its hello and since by gossip."""
        met = {
            node: self._standings.get(self.peer_of(node) or PeerId("")) for node in self._members
        }
        return {node: standing.height for node, standing in met.items() if standing is not None}

    def learn(self, signed: SignedRecord) -> bool:
        """Keep a verified record if it is newer than what we have; whether it was."""
        node_id, peer_id = signed.record.node_id, signed.record.peer_id
        known = self.record_of(node_id)
        if known is not None and not supersedes(known.record, signed.record):
            return False
        holder = self._nodes.get(peer_id, node_id)
        if holder != node_id:
            if holder in self._members:
                return False  # the transport key is a member's, by the chain
            self._peers.pop(holder, None)  # who has the transport key says it is another now
        before = self._peers.get(node_id)
        if before is not None and before != peer_id:
            self._nodes.pop(before, None)
            old = self._standings.get(before)
            if old is not None:  # its bans go with it, or they would mean nothing
                self._meet(peer_id).reputation.inherit(old.reputation, self._now_s())
        self._peers[node_id] = peer_id
        self._nodes[peer_id] = node_id
        self._meet(peer_id).signed = signed
        self.changes += 1
        return True

    def saw(
        self,
        peer_id: PeerId,
        height: int,
        rtt_s: float | None = None,
        clock_off_s: float | None = None,
    ) -> None:
        """The peer spoke to us and says how far it is."""
        standing = self._meet(peer_id)
        standing.seen_at_s = self._now_s()
        standing.height = max(standing.height, height)
        if rtt_s is not None:
            standing.rtt_s = rtt_s
        if clock_off_s is not None:
            standing.clock_off_s = clock_off_s

    def note_round_trip(self, peer_id: PeerId, rtt_s: float) -> None:
        """Of a peer that we know: a measure alone makes nobody known."""
        standing = self._standings.get(peer_id)
        if standing is None:
            return
        standing.rtt_s = rtt_s
        if standing.round_trips is None:
            standing.round_trips = RoundTrips()
        standing.round_trips.note(rtt_s, self._now_s())

    def blame(self, peer_id: PeerId, fault: PeerFault) -> bool:
        """Count a fault; True when it gets the peer banned."""
        reputation, now_s = self._meet(peer_id).reputation, self._now_s()
        reputation.count(fault.reason, now_s)
        score = round(reputation.score(now_s), 1)
        self._events.emit(
            PEER_FAULT, peer_id=peer_id, reason=fault.reason, detail=fault.detail, score=score
        )
        node_id = self._nodes.get(peer_id)
        if node_id is not None:
            self.on_fault(node_id, fault.reason)
        if not reputation.ban_if_due(now_s):
            return False
        self.changes += 1
        self._events.emit(PEER_BANNED, peer_id=peer_id, score=score, for_s=reputation.ban_s)
        return True

    def score(self, peer_id: PeerId) -> float:
        """0 for a stranger, less for faults, halved every SCORE_HALF_LIFE_S."""
        standing = self._standings.get(peer_id)
        return standing.reputation.score(self._now_s()) if standing is not None else 0.0

    def banned_for_s(self, peer_id: PeerId) -> float:
        """Seconds that are left of a ban; 0 when there is none."""
        standing = self._standings.get(peer_id)
        return standing.reputation.banned_for_s(self._now_s()) if standing is not None else 0.0

    def _meet(self, peer_id: PeerId) -> Standing:
        standing = self._standings.get(peer_id)
        if standing is None:
            self._make_room()
            now_s = self._now_s()
            standing = self._standings[peer_id] = Standing(peer_id, seen_at_s=now_s)
        return standing

    def _make_room(self) -> None:
        others = [s for s in self._standings.values() if not self.is_member(s.peer_id)]
        if len(others) < OTHERS_MAX:
            return
        here, now_s = set(self._crowd.connected() if self._crowd else ()), self._now_s()
        # the banned stay long: else a ban would end by making many acquaintances
        oldest = min(
            others,
            key=lambda s: (s.peer_id in here, s.reputation.banned_for_s(now_s) > 0, s.seen_at_s),
        )
        del self._standings[oldest.peer_id]
        self.changes += 1
        node_id = self._nodes.pop(oldest.peer_id, None)
        if node_id is not None:
            self._peers.pop(node_id, None)
