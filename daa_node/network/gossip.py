"""Small news for everybody: changed records, and how far each member's chain reaches.

Nothing here is the only way to learn it: hello carries both, the DHT keeps records, and votes say
where their senders are.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import trio

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import ChainId
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.record import check_dates, decode_record
from daa_node.network.directory import Directory
from daa_node.network.topics import heads_topic, records_topic
from daa_node.network.turns import share_of
from daa_node.seams import Announcement, Clock, Transport

HEAD_BYTES_MAX = 16
HEIGHT_MAX = 2**53
HEAD_EVERY_S = 5.0  # between looks whether our chain has grown


class Gossip:
    """`run` listens; the `announce` verbs speak. Raises Unavailable before the transport runs."""

    def __init__(
        self,
        transport: Transport,
        directory: Directory,
        clock: Clock,
        chain_id: ChainId,
        told_height: Callable[[], int],
    ) -> None:
        """`told_height`: how far members are, as enough of them say to be believed."""
        self._transport = transport
        self._directory = directory
        self._clock = clock
        self._records = records_topic(chain_id)
        self._heads = heads_topic(chain_id)
        self._told_height = told_height

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        records = self._transport.join_topic(self._records, self._judge_record)
        heads = self._transport.join_topic(self._heads, self._judge_head)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_drain, records)  # the judge has learnt each already
            nursery.start_soon(self._follow_heads, heads)
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
        await trio.sleep(HEAD_EVERY_S * share_of(self._transport.peer_id))
        while True:
            height = newest_height()
            if height != told and (self._told_height() >= height or not self._is_needed()):
                told = height
            if height != told and self._transport.connected():
                with suppress(Unavailable):  # said again below: a head is news, not a promise
                    await self.announce_head(height)
                    told = height
            await trio.sleep(HEAD_EVERY_S)

    def _is_needed(self) -> bool:
        members = set(self._directory.members())
        met = {self._directory.node_of(s.peer_id) for s in self._directory.standings() if s.signed}
        return self._directory.node_of(self._transport.peer_id) in members and not met <= members

    async def _judge_record(self, announcement: Announcement) -> bool:
        """News spreads; what is known already or not of its sender does not."""
        signed = decode_record(announcement.payload)
        if signed.record.peer_id != announcement.source:
            raise PeerFault("peer-id", "a node announces its own record only")
        check_dates(signed.record, self._clock.wall_ns())
        self._directory.learn(signed)
        return True

    async def _judge_head(self, announcement: Announcement) -> bool:
        _height_of(announcement.payload)
        return True

    async def _follow_heads(self, heads: AsyncIterator[Announcement]) -> None:
        async for announcement in heads:
            height = _height_of(announcement.payload)
            if self._directory.node_of(announcement.source) is not None:
                self._directory.saw(announcement.source, height)


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


async def _drain(announcements: AsyncIterator[Announcement]) -> None:
    async for _ in announcements:
        pass
