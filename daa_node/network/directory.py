"""What we know about others: records, positions, faults; and who is banned, for how long.

    known --faults--> score sinks --below BAN_SCORE--> banned --ban ends--> known, on probation

A score recovers by half every SCORE_HALF_LIFE_S. Each further ban doubles the last one's time, up
to BAN_S_MAX. Members of the present committee and the next are always kept; of others whoever
is not connected makes room, and of those the one seen longest ago.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.identity.record import SignedRecord, supersedes
from daa_node.observability.events import PEER_BANNED, PEER_FAULT, EventLog
from daa_node.seams import PeerId

OTHERS_MAX = 1024  # peers that are not members; 10 kB each with their record
REASONS_MAX = 16  # different fault words remembered of one peer
SCORE_HALF_LIFE_S = 600.0
BAN_SCORE = -100.0
BAN_S_FIRST = 60.0
BAN_S_MAX = 3600.0
FAULT_COST = 10.0  # ten faults in ten minutes are no accident
# A slow machine or link, or one just restarted, is no danger: only a flood of these is.
# Whoever asks for one answer after another, reads a tenth of a megabit and is given up for others
# every five seconds is not banned for it.
MILD_COSTS = {"late_offer": 1.0, "unread": 0.25}
# Faults that no honest program commits: three are enough.
GRAVE_COST = 40.0
GRAVE_REASONS = frozenset({"record-signature", "peer-id", "bad-signature", "oversize"})


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
    height: int = 0  # its finalized height, as it says
    faults: Counter[str] = field(default_factory=Counter)
    score: float = 0.0
    scored_at_s: float = 0.0
    ban_s: float = 0.0  # length of the last ban
    banned_until_s: float = 0.0


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

    def attend(self, crowd: Crowd) -> None:
        """Whoever is connected is not forgotten to make room for others."""
        self._crowd = crowd

    def members(self) -> Collection[NodeId]:
        return self._members.keys()

    def is_member(self, peer_id: PeerId) -> bool:
        return self._nodes.get(peer_id) in self._members

    def enlist(self, members: Mapping[NodeId, PeerId]) -> None:
        """These are the members now, by the chain, and nobody else is."""
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
            self._inherit(before, peer_id)
        self._peers[node_id] = peer_id
        self._nodes[peer_id] = node_id
        self._meet(peer_id).signed = signed
        return True

    def _inherit(self, before: PeerId, after: PeerId) -> None:
        """A node is another peer now: its bans go with it, or they would mean nothing."""
        old, new = self._standings.get(before), self._meet(after)
        if old is None:
            return
        new.score, new.scored_at_s = min(self.score(before), self.score(after)), self._now_s()
        new.ban_s = max(old.ban_s, new.ban_s)
        new.banned_until_s = max(old.banned_until_s, new.banned_until_s)

    def saw(self, peer_id: PeerId, height: int, rtt_s: float | None = None) -> None:
        """The peer spoke to us and says how far it is."""
        standing = self._meet(peer_id)
        standing.seen_at_s = self._now_s()
        standing.height = max(standing.height, height)
        if rtt_s is not None:
            standing.rtt_s = rtt_s

    def blame(self, peer_id: PeerId, fault: PeerFault) -> bool:
        """Count a fault; True when it gets the peer banned."""
        standing, now_s = self._meet(peer_id), self._now_s()
        known = fault.reason in standing.faults or len(standing.faults) < REASONS_MAX
        standing.faults[fault.reason if known else "other"] += 1
        standing.score = self.score(peer_id)
        standing.scored_at_s = now_s
        standing.score -= _cost(fault.reason)
        self._events.emit(
            PEER_FAULT,
            peer_id=peer_id,
            reason=fault.reason,
            detail=fault.detail,
            score=round(standing.score, 1),
        )
        if standing.score > BAN_SCORE or standing.banned_until_s > now_s:
            return False
        standing.ban_s = min(max(BAN_S_FIRST, 2 * standing.ban_s), BAN_S_MAX)
        standing.banned_until_s = now_s + standing.ban_s
        self._events.emit(
            PEER_BANNED, peer_id=peer_id, score=round(standing.score, 1), for_s=standing.ban_s
        )
        # half way back: what follows the ban counts sooner than a first offence
        standing.score = BAN_SCORE / 2
        return True

    def score(self, peer_id: PeerId) -> float:
        """0 for a stranger, less for faults, halved every SCORE_HALF_LIFE_S."""
        standing = self._standings.get(peer_id)
        if standing is None:
            return 0.0
        halvings = (self._now_s() - standing.scored_at_s) / SCORE_HALF_LIFE_S
        return float(standing.score * 0.5**halvings)

    def banned_for_s(self, peer_id: PeerId) -> float:
        """Seconds that are left of a ban; 0 when there is none."""
        standing = self._standings.get(peer_id)
        return max(0.0, standing.banned_until_s - self._now_s()) if standing is not None else 0.0

    def _meet(self, peer_id: PeerId) -> Standing:
        standing = self._standings.get(peer_id)
        if standing is None:
            self._make_room()
            now_s = self._now_s()
            standing = self._standings[peer_id] = Standing(
                peer_id, seen_at_s=now_s, scored_at_s=now_s
            )
        return standing

    def _make_room(self) -> None:
        others = [s for s in self._standings.values() if not self.is_member(s.peer_id)]
        if len(others) < OTHERS_MAX:
            return
        here, now_s = set(self._crowd.connected() if self._crowd else ()), self._now_s()
        # the banned stay long: else a ban would end by making many acquaintances
        oldest = min(
            others, key=lambda s: (s.peer_id in here, s.banned_until_s > now_s, s.seen_at_s)
        )
        del self._standings[oldest.peer_id]
        node_id = self._nodes.pop(oldest.peer_id, None)
        if node_id is not None:
            self._peers.pop(node_id, None)


def _cost(reason: str) -> float:
    if reason in MILD_COSTS:
        return MILD_COSTS[reason]
    if reason in GRAVE_REASONS:
        return GRAVE_COST
    return FAULT_COST
