"""What of a chain lies on a disk and can be let go: deltas and whole states, by height."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from daa_dag.checkpoint import Vertex
from daa_dag.chunking import Manifest
from daa_dag.ids import VertexId
from daa_dag.retention import Prunable
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import CHUNKS, DELTAS, MANIFESTS, VERTICES
from daa_node.checkpoints.snapshot_files import snapshot_names
from daa_node.errors import StorageFailed

HOLES_MAX = 64  # vertices in a row of which a disk has lost all: what lies below is looked for


@dataclass(frozen=True, slots=True)
class Held:
    """What of a chain can be let go: by height, from the tip down to where nothing is held."""

    vertices: dict[int, Vertex]
    delta_heights: tuple[int, ...]
    snapshots: dict[int, tuple[Manifest, Manifest]]
    first: tuple[Manifest, Manifest] | None = None  # weights from a file, which always stay
    delta_bytes: Mapping[int, int] = field(default_factory=dict)  # by height
    # Heights of vertices that a disk has damaged or lost, by what is wrong with each: until they
    # are mended nobody knows which files are theirs.
    unreadable: Mapping[int, str] = field(default_factory=dict)

    def lowest_floor(self) -> int:
        """Below a state at this height, or higher, nothing is needed by what cannot be read."""
        return max(self.unreadable, default=0) + 1

    def snapshot_bytes(self) -> dict[int, int]:
        """By height; what two of them share counts for both."""
        return {
            height: sum(manifest.size_bytes for manifest in manifests)
            for height, manifests in self.snapshots.items()
        }

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
    deltas: dict[int, int] = {}
    snapshots: dict[int, tuple[Manifest, Manifest]] = {}
    unreadable: dict[int, str] = {}
    newest = await chain.newest()
    vertex_id: VertexId | None = newest.vertex_id
    # What is deleted is always a prefix: below vertices that have neither, there is nothing.
    height, holes = newest.height, 0
    while vertex_id is not None and height > 0:
        vertex = await _read(chain, vertex_id, height, unreadable)
        if vertex is None:  # the list of heights leads round it
            height -= 1
            vertex_id = await chain.heights.at(height) if height + 1 in unreadable else None
            continue
        vertices[vertex.height] = vertex
        delta = await chain.store.blob_manifest(DELTAS, vertex.delta_root)
        snapshot = await _snapshot_of(chain, vertex)
        holes = 0 if delta is not None or snapshot is not None else holes + 1
        if delta is not None:
            deltas[vertex.height] = delta.size_bytes
        if snapshot is not None:
            snapshots[vertex.height] = snapshot
        if holes == HOLES_MAX:
            break
        vertex_id, height = vertex.parents[0], height - 1
    first = await chain.first_snapshot()
    return Held(vertices, tuple(deltas), snapshots, first, deltas, unreadable)


async def _read(
    chain: ChainStore, vertex_id: VertexId, height: int, unreadable: dict[int, str]
) -> Vertex | None:
    """The vertex; or None, and why, unless it never was here."""
    try:
        vertex = await chain.vertex(vertex_id)
    except StorageFailed as failure:
        unreadable[height] = str(failure)
        return None
    if vertex is None and await chain.heights.at(height) == vertex_id:
        unreadable[height] = f"{VERTICES}/{vertex_id.hex()} is missing"
    return vertex


async def _snapshot_of(chain: ChainStore, vertex: Vertex) -> tuple[Manifest, Manifest] | None:
    """One of which a manifest is damaged is none, and no reason for all others to stay."""
    try:
        return await chain.snapshot(vertex)
    except StorageFailed:
        return None


async def is_whole(chain: ChainStore, manifests: Iterable[Manifest]) -> bool:
    """Whether each chunk of these is here, good or not. Raises StorageFailed."""
    for manifest in manifests:
        for digest in manifest.digests:
            if not await chain.store.has_record(CHUNKS, digest.hex()):
                return False
    return True


async def is_good(chain: ChainStore, manifests: Iterable[Manifest]) -> bool:
    """The same, and each of them is what it should be: all of it is read."""
    for manifest in manifests:
        for digest in manifest.digests:
            try:
                await chain.chunk(digest)
            except StorageFailed:
                return False
    return True
