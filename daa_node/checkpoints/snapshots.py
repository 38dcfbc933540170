"""Whole states in the chain, every few rounds, stored while the next round trains.

A snapshot is large and nobody waits for it: a restart without the newest one goes on from the work
store, or replays deltas from the one before, and stores it then. What a new one lets go is pruned
after it. Chunks come before their manifests.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import trio

from daa_dag.checkpoint import Vertex
from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, Digest, digest_of
from daa_dag.retention import Prunable, Retention, prunable
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import CHUNKS, DELTAS, MANIFESTS, STATES
from daa_node.checkpoints.packing import Packing
from daa_node.checkpoints.recollection import keep_pack_names
from daa_node.checkpoints.scrub import Scrub
from daa_node.checkpoints.writes import Write
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog

# Chunks of a snapshot on their way to disk at once: their syncs share the disk's journal.
SNAPSHOT_WRITERS = 4
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
        """Store the snapshot that is due, if one is; then let packing look at what lies there.

        A disk that fails costs this one alone.
        """
        await self._store_due()
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


@dataclass(frozen=True, slots=True)
class Held:
    """What of a chain can be let go: by height, from the tip down to where nothing is held."""

    vertices: dict[int, Vertex]
    delta_heights: tuple[int, ...]
    snapshots: dict[int, tuple[Manifest, Manifest]]
    first: tuple[Manifest, Manifest] | None = None  # weights from a file, which always stay

    def names(self, going: Prunable) -> set[str]:
        """The files that go, without those that what stays needs too."""
        # Two steps that move nothing are one delta, and snapshots share chunks that did not change.
        staying = set(self.delta_heights) - {*going.delta_heights}
        names = self._delta_names(going.delta_heights) - self._delta_names(staying)
        gone = [self.snapshots[height] for height in going.snapshot_heights]
        kept = [self.snapshots[height] for height in {*self.snapshots} - {*going.snapshot_heights}]
        kept += [self.first] if self.first is not None else []
        return names | (snapshot_names(gone) - snapshot_names(kept))

    def _delta_names(self, heights: Iterable[int]) -> set[str]:
        roots = {self.vertices[height].delta_root.hex() for height in heights}
        return {f"{kind}/{root}" for root in roots for kind in (DELTAS, MANIFESTS)}


async def held_by(chain: ChainStore) -> Held:
    """The deltas and whole snapshots that lie on disk. Raises StorageFailed."""
    vertices: dict[int, Vertex] = {}
    deltas: list[int] = []
    snapshots: dict[int, tuple[Manifest, Manifest]] = {}
    vertex: Vertex | None = await chain.newest()
    # What is deleted is always a prefix: below a vertex that has neither, there is nothing.
    while vertex is not None and vertex.height > 0:
        vertices[vertex.height] = vertex
        has_delta = await chain.store.blob_manifest(DELTAS, vertex.delta_root) is not None
        snapshot = await chain.snapshot(vertex)
        if has_delta:
            deltas.append(vertex.height)
        if snapshot is not None:
            snapshots[vertex.height] = snapshot
        if not has_delta and snapshot is None:
            break
        vertex = await chain.vertex(vertex.parents[0])
    return Held(vertices, tuple(deltas), snapshots, await chain.first_snapshot())


async def prune(chain: ChainStore, policy: Retention) -> int:
    """Delete what the policy lets go; how many files that was. Raises StorageFailed."""
    if policy.vertices_restorable is None:
        return 0
    held = await held_by(chain)
    going = prunable(policy, max(held.vertices, default=0), held.delta_heights, held.snapshots)
    names = held.names(going)
    await chain.groups.drop(sorted(names))
    if names:
        await keep_pack_names(chain)
    return len(names)


async def snapshot_writes(chain: ChainStore, vertex: Vertex) -> list[Write]:
    """Of the vertex's states, which lie in the work store. Raises StorageFailed."""
    manifests = []
    for root in (vertex.model_root, vertex.outer_state_root):
        manifest = await chain.work.blob_manifest(STATES, root)
        if manifest is None:
            raise StorageFailed(f"work/{STATES}/{root.hex()}, for a snapshot, is missing")
        manifests.append(manifest)
    places: dict[Digest, tuple[BlobRoot, int]] = {}
    for manifest in manifests:
        for index, digest in enumerate(manifest.digests):
            places.setdefault(digest, (manifest.root, index))
    store = chain.store
    wanted = [d for d in places if not await store.has_record(CHUNKS, d.hex())]
    queue = deque(wanted)

    async def copy_some() -> None:
        while queue:
            digest = queue.popleft()
            payload = await chain.work.read_chunk(STATES, *places[digest])
            if digest_of(payload) != digest:
                raise StorageFailed(f"work/{STATES}/{places[digest][0].hex()} is damaged")
            await chain.store.put_record(CHUNKS, digest.hex(), payload)

    async def copy_all() -> None:
        failed: list[StorageFailed] = []
        if not queue:
            return  # whichever chunk's turn came first has brought them all
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(min(SNAPSHOT_WRITERS, len(queue))):
                    nursery.start_soon(copy_some)
        except* StorageFailed as failures:
            failed.append(_first(failures))
        if failed:  # raised up there, Python may wrap it in a group again
            raise failed[0]

    chunks = [Write(f"{CHUNKS}/{digest.hex()}", copy_all) for digest in wanted]
    tables = [chain.groups.record(MANIFESTS, m.root.hex(), m.encode()) for m in manifests]
    return [*chunks, *tables]


def snapshot_names(snapshots: Iterable[tuple[Manifest, Manifest]]) -> set[str]:
    """The files of these snapshots, as `kind/name`."""
    names: set[str] = set()
    for manifests in snapshots:
        for manifest in manifests:
            names.add(f"{MANIFESTS}/{manifest.root.hex()}")
            names.update(f"{CHUNKS}/{digest.hex()}" for digest in manifest.digests)
    return names


def _first(failures: BaseExceptionGroup[StorageFailed]) -> StorageFailed:
    found = failures.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
