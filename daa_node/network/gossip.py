"""Small news for everybody: changed records, and how far each member's chain reaches.

Nothing here is the only way to learn it: hello carries both, the DHT keeps records, and votes say
where their senders are. So news may be dropped wherever it comes too fast: one member's heads and
records beyond what an honest one says, and records of who is no member beyond a share for each peer
that passes them on, and beyond what the link has for strangers (see link_limits). Heads are
members' alone. Who is one, and which dates are past, nodes judge differently: what only that speaks
against is dropped, and no forwarder is blamed for it.
"""

from collections.abc import Callable
from contextlib import suppress

import trio

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import ChainId, NodeId
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.record import check_dates, decode_record, supersedes
from daa_node.network.directory import Directory
from daa_node.network.link_limits import LinkLimits
from daa_node.network.pace import Pace
from daa_node.network.topics import heads_topic, records_topic
from daa_node.network.turns import share_of
from daa_node.seams import Announcement, Clock, PeerId, Transport

HEAD_BYTES_MAX = 16
HEIGHT_MAX = 2**53
# Between looks whether our chain has grown: three or four of the shortest rounds, so that who looks
# on is not far behind where rounds are short; and seldom enough where they are long.
HEAD_EVERY_DELTAS = 20
HEAD_EVERY_S_MAX = 5.0
HEADS_BURST = 8  # of one member: what lay in queues may come all at once
RECORDS_BURST = 8  # of one member: its own addresses, none, by one relay, by two, at its router
RECORD_EVERY_S = 60.0
# Of a thousand that start at once and tell of themselves within a minute, eight forwarders bring a
# quarter; who comes every few seconds is passed on by all of them.
NEWCOMERS_BURST = 32
NEWCOMER_EVERY_S = 2.0


def head_every_s(delta_s: float) -> float:
    """How often a member looks whether there is a head to tell."""
    return min(HEAD_EVERY_S_MAX, HEAD_EVERY_DELTAS * delta_s)


class Gossip:
    """`run` listens; the `announce` verbs speak. Raises Unavailable before the transport runs."""

    def __init__(
        self,
        transport: Transport,
        directory: Directory,
        clock: Clock,
        chain_id: ChainId,
        told_height: Callable[[], int],
        delta_s: float,
    ) -> None:
        """`told_height`: how far members are, as enough of them say to be believed.

        `delta_s` is the bound on a message's way that the network has agreed on.
        """
        self.limits: LinkLimits | None = None  # of the link; None: as it bears
        self._transport = transport
        self._directory = directory
        self._clock = clock
        self._records = records_topic(chain_id)
        self._heads = heads_topic(chain_id)
        self._told_height = told_height
        self._head_every_s = head_every_s(delta_s)
        self._paces: dict[tuple[str, NodeId], Pace] = {}  # of members, by topic
        self._newcomers: dict[PeerId, Pace] = {}  # of peers that we are connected with

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self._transport.join_topic(self._records, self.may_be_record, self.judge_record)
        self._transport.join_topic(self._heads, self.may_be_head, self.judge_head)
        task_status.started()

    async def announce_record(self, record_bytes: bytes) -> None:
        await self._transport.publish(self._records, record_bytes)

    async def announce_head(self, height: int) -> None:
        await self._transport.publish(self._heads, canonical.encode([height]))

    async def announce_heads(self, newest_height: Callable[[], int]) -> None:
        """Each new height that a look finds, where somebody needs it. Until cancelled.

        Members write to each other where they stand, so this is for those who look on, and ends
        when as many have spoken as they must hear: a hundred that each tell a hundred are a flood.
        """
        told = newest_height()  # hello has said so
        await trio.sleep(self._head_every_s * share_of(self._transport.peer_id))
        while True:
            height = newest_height()
            if height != told and (self._told_height() >= height or not self._is_needed()):
                told = height
            if height != told and self._transport.connected():
                with suppress(Unavailable):  # sent again below: a head is news, not a promise
                    await self.announce_head(height)
                    told = height
            await trio.sleep(self._head_every_s)

    def _is_needed(self) -> bool:
        members = set(self._directory.members())
        met = {self._directory.node_of(s.peer_id) for s in self._directory.standings() if s.signed}
        return self._directory.node_of(self._transport.peer_id) in members and not met <= members

    def may_be_record(self, announcement: Announcement) -> bool:
        """A member's always; of anybody else's what its forwarder's share allows."""
        if self._member_behind(announcement) is not None:
            return True
        return self._newcomers_by(announcement.forwarder).take_at_once()

    def judge_record(self, announcement: Announcement) -> bool:
        """Raises PeerFault unless it is its source's own record, well formed and signed."""
        signed = decode_record(announcement.payload)
        if signed.record.peer_id != announcement.source:
            raise PeerFault("peer-id", "a node announces its own record only")
        try:
            check_dates(signed.record, self._clock.wall_ns())
        except PeerFault:
            return False  # by our clock; by its forwarder's it may be current
        known = self._directory.record_of(signed.record.node_id)
        if known is not None and supersedes(signed.record, known.record):
            return False
        member = self._member_behind(announcement)
        if member is not None and not self._pace_of(self._records, member).take_at_once():
            return False
        # what we have heard already, from its own mouth perhaps, is news to others
        self._directory.learn(signed)
        return member is not None or self.limits is None or self.limits.may_relay(for_guest=True)

    def may_be_head(self, announcement: Announcement) -> bool:
        """A member's that it has not told us; and what is no head at all, so that it is judged."""
        if self._member_behind(announcement) is None:
            return False
        try:
            height = _height_of(announcement.payload)
        except PeerFault:
            return True
        standing = self._directory.standing(announcement.source)
        return standing is None or height > standing.height

    def judge_head(self, announcement: Announcement) -> bool:
        """Raises PeerFault for what is no head."""
        height = _height_of(announcement.payload)
        member = self._member_behind(announcement)
        if member is None or not self._pace_of(self._heads, member).take_at_once():
            return False
        self._directory.saw(announcement.source, height)
        return True

    def _member_behind(self, announcement: Announcement) -> NodeId | None:
        node_id = self._directory.node_of(announcement.source)
        return node_id if node_id in set(self._directory.members()) else None

    def _pace_of(self, topic: str, member: NodeId) -> Pace:
        if (topic, member) not in self._paces:
            members = set(self._directory.members())
            for key in [key for key in self._paces if key[1] not in members]:
                del self._paces[key]
            burst, every_s = (
                (HEADS_BURST, self._head_every_s / 2)
                if topic == self._heads
                else (RECORDS_BURST, RECORD_EVERY_S)
            )
            self._paces[topic, member] = Pace(1 / every_s, burst)
        return self._paces[topic, member]

    def _newcomers_by(self, forwarder: PeerId) -> Pace:
        if forwarder not in self._newcomers:
            connected = set(self._transport.connected())
            for peer_id in [peer for peer in self._newcomers if peer not in connected]:
                del self._newcomers[peer_id]
            self._newcomers[forwarder] = Pace(1 / NEWCOMER_EVERY_S, NEWCOMERS_BURST)
        return self._newcomers[forwarder]


def _height_of(payload: bytes) -> int:
    try:
        value = canonical.decode(payload, HEAD_BYTES_MAX)
    except NotCanonical as fault:
        raise PeerFault("head-malformed", str(fault)) from None
    if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], int):
        raise PeerFault("head-malformed", "a head is one height")
    if isinstance(value[0], bool) or not 0 <= value[0] <= HEIGHT_MAX:
        raise PeerFault("head-malformed", "a height is a whole number below 2^53")
    return value[0]
