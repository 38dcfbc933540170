"""Whole states in the chain, every few rounds, stored while the next round trains.

A snapshot is large and nobody waits for it: a restart without the newest one replays deltas from
the one before. What a new one lets go is pruned after it.
"""

import trio

from daa_dag.checkpoint import Vertex
from daa_dag.retention import Retention
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.publish import add_snapshot, prune
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog


class Snapshots:
    """Those of one chain: which vertex has one, and the one that is still to be stored."""

    def __init__(self, chain: ChainStore, every: int, retention: Retention, log: EventLog) -> None:
        """`every` is in heights."""
        self._chain = chain
        self.every = every
        self._retention = retention
        self._log = log
        self._due: Vertex | None = None  # published, its states not yet in the chain

    def published(self, vertex: Vertex) -> None:
        """The vertex is in the chain without its states, which lie in the work store."""
        self._due = vertex if self._has_one(vertex) else None

    async def store(self) -> None:
        """Store the snapshot that is due, if one is. A disk that fails costs this one alone."""
        vertex, self._due = self._due, None
        if vertex is None:
            return
        started_s = trio.current_time()
        try:
            await add_snapshot(self._chain, vertex)
        except StorageFailed as failure:
            self._log.emit(events.STORAGE_FAILED, detail=str(failure))
            return
        wall_s = round(trio.current_time() - started_s, 4)
        self._log.emit(events.SNAPSHOT_STORED, height=vertex.height, wall_s=wall_s)
        await self.prune_after(vertex)

    async def prune_after(self, *vertices: Vertex) -> None:
        """A new snapshot, if any of these has one, may let older data go."""
        if not any(self._has_one(vertex) for vertex in vertices):
            return
        try:
            count = await prune(self._chain, self._retention)
        except StorageFailed as failure:
            # What is begun is finished by the next write; the checkpoint itself is whole.
            self._log.emit(events.STORAGE_FAILED, detail=str(failure))
            return
        if count:
            self._log.emit(events.DATA_PRUNED, count=count)

    def _has_one(self, vertex: Vertex) -> bool:
        return vertex.height % self.every == 0
