"""Bulk sessions that we opened, kept for the next fetch: a handshake costs both ends 1.5 ms.

A session serves one fetch at a time, since answers come in the order of the requests; a second
fetch from the same peer opens a second one, up to a limit, and then waits its turn.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from daa_dag.ids import NodeId
from daa_dag.spread import Patience
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.untaken import Piece
from daa_node.network.waits import Waits
from daa_node.seams import BulkTransport, FrameStream, PeerId
from daa_node.wire.blob_messages import IN_TURN

# Half of what a peer grants us: the other half is slack for sessions that it still thinks open.
SESSIONS_PER_SOURCE_MAX = 4
IDLE_SESSIONS_MAX = 128  # one with each of as many as may vote: every round fetches from all
# The serving side hangs up after 120 s; what is older than this may be dead by the time we ask.
IDLE_REUSE_S = 60.0
CLOSE_TIMEOUT_S = 2.0
# Without a byte for so long the session is given up. A frame that has begun may take a minute.
BULK_ANSWER_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Source:
    """A node to fetch from, and where the transport finds it."""

    node_id: NodeId
    peer_id: PeerId


Came = Callable[[Piece], Awaitable[None]]


async def _nothing(_frame: Piece) -> None:
    """There is no limit."""


@dataclass(slots=True)
class Lease:
    """A session for one fetch; used again if `clean` when it ends: no answer is under way."""

    stream: FrameStream
    reused: bool
    clean: bool = True
    came: Came = _nothing  # told of each frame; it may take its time
    unread: int = 0  # answers of one frame that nobody needs: whoever uses it next drops them
    answer_timeout_s: float = BULK_ANSWER_TIMEOUT_S


class SessionPool:
    """Those of one fetcher."""

    def __init__(
        self, bulk: BulkTransport, came: Came | None = None, slowness: float = 1.0
    ) -> None:
        """`slowness`: how many times longer an answer may take."""
        self._bulk = bulk
        self._limit = came or _nothing
        self.received_bytes = 0  # of frames, counted as each has come: a fetch may take hours
        self._answer_timeout_s = BULK_ANSWER_TIMEOUT_S * slowness
        self.waits = Waits(slowness)
        # The newest of each: who draws out its own counts once, though it closes each session so
        # that ours with it are opened again and again, and others' never.
        self._openings_s = OrderedDict[NodeId, float]()
        # How long a session may take to open, by how long those with most took.
        self.opening_limit_s = Patience().limit_s
        # the node, since when, and answers that are still unread; oldest first
        self._idle: OrderedDict[FrameStream, tuple[NodeId, float, int]] = OrderedDict()
        self._turns: dict[NodeId, trio.Semaphore] = {}

    @asynccontextmanager
    async def lease(self, source: Source) -> AsyncIterator[Lease]:
        """A session with `source`, fresh or reused. Raises Unavailable or PeerFault."""
        turns = self._turns.setdefault(source.node_id, trio.Semaphore(SESSIONS_PER_SOURCE_MAX))
        try:
            async with turns:
                lease = await self._take(source)
                try:
                    yield lease
                finally:
                    await self._put(source, lease)
        finally:
            if turns.value == SESSIONS_PER_SOURCE_MAX:  # so nobody waits, either
                self._turns.pop(source.node_id, None)

    async def aclose(self) -> None:
        """Close what is idle; leases close by themselves."""
        while self._idle:
            stream, _ = self._idle.popitem()
            await _close(stream)

    async def _take(self, source: Source) -> Lease:
        now_s = trio.current_time()
        stale = [s for s, (_, since_s, _) in self._idle.items() if now_s - since_s > IDLE_REUSE_S]
        for stream in stale:
            del self._idle[stream]
        mine = [s for s, (node_id, _, _) in self._idle.items() if node_id == source.node_id]
        unread = self._idle.pop(mine[-1])[2] if mine else 0
        for stream in stale:
            await _close(stream)
        if mine and await _drop(mine[-1], unread):
            return self._leased(mine[-1], reused=True)
        began_s = trio.current_time()
        stream = await self._bulk.open(source.peer_id)
        self._note_opening(source.node_id, trio.current_time() - began_s)
        if stream.node_id != source.node_id:
            await _close(stream)
            raise PeerFault("identity-mismatch", f"{source.peer_id} is another node")
        return self._leased(stream, reused=False)

    async def _came(self, frame: Piece) -> None:
        self.received_bytes += len(frame)
        await self._limit(frame)

    def _note_opening(self, node_id: NodeId, took_s: float) -> None:
        self._openings_s[node_id] = took_s
        self._openings_s.move_to_end(node_id)
        while len(self._openings_s) > IDLE_SESSIONS_MAX:
            self._openings_s.popitem(last=False)
        patience = Patience()
        patience.took(sorted(self._openings_s.values())[(len(self._openings_s) - 1) // 2])
        self.opening_limit_s = patience.limit_s

    def _leased(self, stream: FrameStream, reused: bool) -> Lease:
        return Lease(stream, reused, came=self._came, answer_timeout_s=self._answer_timeout_s)

    async def _put(self, source: Source, lease: Lease) -> None:
        if not lease.clean:
            await _close(lease.stream)
            return
        self._idle[lease.stream] = (source.node_id, trio.current_time(), lease.unread)
        while len(self._idle) > IDLE_SESSIONS_MAX:
            oldest, _ = self._idle.popitem(last=False)
            await _close(oldest)


async def _drop(stream: FrameStream, count: int) -> bool:
    """Read so many answers that nobody needs; else the session is closed, and False."""
    is_sound = False
    try:
        with trio.move_on_after(CLOSE_TIMEOUT_S):
            while count and (frame := await stream.receive_frame()) is not None:
                count -= frame != IN_TURN
            is_sound = not count
    except (PeerFault, Unavailable, trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # as dead as one that says nothing
    finally:
        if not is_sound:
            await _close(stream)
    return is_sound


async def _close(stream: FrameStream) -> None:
    with trio.move_on_after(CLOSE_TIMEOUT_S) as scope:
        scope.shield = True
        await stream.aclose()
