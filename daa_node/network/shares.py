"""What others may make us do for them: every member has a share of its own, all strangers one.

A share is an allowance in bytes a second that is spent afterwards, so that one piece of work may be
larger than what is left: the next one waits until the debt is earned. Within a share one piece of
work goes on at a time. So whoever asks for more than its share waits for itself, and strangers,
however many, for each other. What has been made and not yet taken is bounded: a member is told so,
and strangers share one room, in which who reads nothing gives way (see untaken).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from daa_dag.ids import NodeId
from daa_node.errors import Unavailable
from daa_node.network.directory import Directory
from daa_node.network.pace import Pace
from daa_node.network.untaken import Answer, Untaken
from daa_node.seams import PeerId
from daa_node.wire.limits import MIB

# Work that no byte shows: decoding, a look at the disk, two signatures of ML-DSA. 0.5 ms, in which
# a node encodes about so much.
PIECE_COST_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Allowance:
    """`burst_bytes` at once, `bytes_per_s` in the long run."""

    bytes_per_s: float
    burst_bytes: float


# A member that has been away catches up with pages of 0.06 MB (four validators) to 1.5 MB (a
# hundred): five of the largest a second.
OF_A_MEMBER = Allowance(8.0 * MIB, 16.0 * MIB)
UNTAKEN_BYTES_MAX = 4 * MIB  # of a member's answers, when another one is made
# 7 % of a core and of 100 Mbit/s; a page a second for ten who look on in a small network.
OF_ALL_STRANGERS = Allowance(1.0 * MIB, 4.0 * MIB)


class Share:
    """One allowance, and what is left of it. Times are those of trio's clock."""

    def __init__(self, allowance: Allowance, room: Untaken | None) -> None:
        """`room`: of strangers, who wait for their turn and for room; members are told so."""
        self._room = room
        self._pace = Pace(allowance.bytes_per_s, allowance.burst_bytes)
        self._turn = trio.Lock()
        self._untaken_bytes = 0

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Our turn within this share, however long it takes. Raises Unavailable."""
        async with self._turn:
            if self._room is not None:
                await trio.sleep(self._pace.debt_s)
            elif self._pace.debt_s:
                raise Unavailable(f"busy: ask again in {self._pace.debt_s:.1f} s")
            if self._untaken_bytes > UNTAKEN_BYTES_MAX:
                raise Unavailable(f"busy: {self._untaken_bytes} bytes of answers wait to be read")
            yield

    def spend(self, made_bytes: int) -> None:
        """A piece of work is done; its result has so many bytes."""
        self._pace.spend(PIECE_COST_BYTES + made_bytes)

    @property
    def waits(self) -> bool:
        """Whether whoever comes too early waits, and else is told so."""
        return self._room is not None

    @asynccontextmanager
    async def untaken(self, made_bytes: int) -> AsyncIterator[Answer]:
        """While what was made is on its way. Raises PeerFault "unread" when it is given up."""
        if self._room is not None:
            async with self._room.room(made_bytes) as answer:
                yield answer
            return
        self._untaken_bytes += made_bytes
        try:
            yield Answer(made_bytes)
        finally:
            self._untaken_bytes -= made_bytes


class Shares:
    """Whose share a peer draws on."""

    def __init__(self, directory: Directory, untaken: Untaken) -> None:
        self._directory = directory
        self._untaken = untaken
        self._members: dict[NodeId, Share] = {}  # of each that has asked
        self._strangers: Share | None = None

    def of(self, peer_id: PeerId) -> Share:
        node_id, members = self._directory.node_of(peer_id), self._directory.members()
        if node_id is None or node_id not in members:
            if self._strangers is None:
                self._strangers = Share(OF_ALL_STRANGERS, self._untaken)
            return self._strangers
        if node_id not in self._members:
            # Who has left is a stranger now: one member can bring in ever new names for a while.
            self._members = {
                node: share for node, share in self._members.items() if node in members
            }
            self._members[node_id] = Share(OF_A_MEMBER, None)
        return self._members[node_id]
