"""Whole states in the chain, every few rounds, stored while the next round trains.

A snapshot is large and nobody waits for it: a restart without the newest one goes on from the work
store, or replays deltas from the one before, and stores it then. What a new one lets go is pruned
after it. Chunks come before their manifests.
"""

import trio

from daa_dag.checkpoint import Vertex
from daa_dag.retention import Retention, prunable
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.held import held_by
from daa_node.checkpoints.packing import Packing
from daa_node.checkpoints.quota import Quota
from daa_node.checkpoints.recollection import keep_pack_names
from daa_node.checkpoints.scrub import Scrub
from daa_node.checkpoints.snapshot_files import snapshot_writes
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog

# Of what is kept, an eighth more may lie there: to look through all of it, and to write packs anew,
# costs more than the room of a few states.
SLACK = 8


class Snapshots:
    """Those of one chain: which vertex has one, and the one that is still to be stored."""

    def __init__(self, chain: ChainStore, every: int, retention: Retention, log: EventLog) -> None:
        """`every` is in heights."""
        self._chain = chain
        self.every = every
        self._retention = retention
        self._log = log
        self.packing = Packing(chain, retention, log)
        self.scrub = Scrub(chain, log)
        self.quota = Quota(chain, retention, self.packing, log)
        self._due: Vertex | None = None  # published, its states not yet in the chain
        self._pruned_to: int | None = None  # height below which nothing was wanted at the last look

    def published(self, vertex: Vertex) -> None:
        """The vertex is in the chain without its states, which lie in the work store."""
        self._due = vertex if self._has_one(vertex) else None

    async def restored(self, newest: Vertex) -> None:
        """Its states lie in the work store: what a stop has cut off is due again.

        A large state takes longer to store than a stop waits.
        """
        is_due = newest.height > 0 and self._has_one(newest)
        if is_due and await self._chain.snapshot(newest) is None:
            self._due = newest

    async def store(self) -> None:
        """Store the snapshot that is due, if one is; then look at what lies there, and how much.

        A disk that fails costs this one alone.
        """
        await self._store_due()
        await self.quota.look()
        self.packing.wake()

    async def _store_due(self) -> None:
        vertex, self._due = self._due, None
        if vertex is None:
            return
        started_s = trio.current_time()
        try:
            await self._chain.groups.add([await snapshot_writes(self._chain, vertex)])
        except StorageFailed as failure:
            self._log.emit(events.STORAGE_FAILED, detail=str(failure))
            return
        wall_s = round(trio.current_time() - started_s, 4)
        self._log.emit(events.SNAPSHOT_STORED, height=vertex.height, wall_s=wall_s)
        await self.prune_after(vertex)

    async def prune_after(self, *vertices: Vertex) -> None:
        """A new snapshot, if any of these has one, may let older data go."""
        wanted = self._retention.vertices_restorable
        if wanted is None or not any(self._has_one(vertex) for vertex in vertices):
            return
        oldest_wanted = max(vertex.height for vertex in vertices) - wanted + 1
        if self._pruned_to is not None and oldest_wanted - self._pruned_to < wanted // SLACK:
            return
        try:
            count = await prune(self._chain, self._retention)
        except StorageFailed as failure:
            # What is begun is finished by the next write; the checkpoint itself is whole.
            self._log.emit(events.STORAGE_FAILED, detail=str(failure))
            return
        self._pruned_to = oldest_wanted
        if count:
            self._log.emit(events.DATA_PRUNED, count=count)

    def _has_one(self, vertex: Vertex) -> bool:
        return vertex.height % self.every == 0


async def prune(chain: ChainStore, policy: Retention) -> int:
    """Delete what the policy lets go; how many files that was. Raises StorageFailed."""
    if policy.vertices_restorable is None:
        return 0
    held = await held_by(chain)
    going = prunable(policy, max(held.vertices, default=0), held.delta_heights, held.snapshots)
    lowest = max((*going.delta_heights, *going.snapshot_heights), default=held.lowest_floor())
    if lowest < held.lowest_floor() - 1:
        what = held.unreadable[held.lowest_floor() - 1]
        raise StorageFailed(f"{what}: no older states go before it is mended")
    names = held.names(going)
    await chain.groups.drop(sorted(names))
    if names:
        await keep_pack_names(chain)
    return len(names)
