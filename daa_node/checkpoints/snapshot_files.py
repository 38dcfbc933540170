"""The files of one whole state: how they come into a chain, and what they are called.

Chunks come before the manifests that name them; snapshots share chunks that did not change.
"""

from collections import deque
from collections.abc import Iterable

import trio

from daa_dag.checkpoint import Vertex
from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, Digest, digest_of
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import CHUNKS, MANIFESTS, STATES
from daa_node.checkpoints.writes import Write
from daa_node.errors import StorageFailed

# Chunks of a snapshot on their way to disk at once: their syncs share the disk's journal.
SNAPSHOT_WRITERS = 4


async def snapshot_writes(chain: ChainStore, vertex: Vertex, shelf: str = STATES) -> list[Write]:
    """Of the vertex's states, which lie in the work store under this kind. Raises StorageFailed."""
    manifests = []
    for root in (vertex.model_root, vertex.outer_state_root):
        manifest = await chain.work.blob_manifest(shelf, root)
        if manifest is None:
            raise StorageFailed(f"work/{shelf}/{root.hex()}, for a snapshot, is missing")
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
            payload = await chain.work.read_chunk(shelf, *places[digest])
            if digest_of(payload) != digest:
                raise StorageFailed(f"work/{shelf}/{places[digest][0].hex()} is damaged")
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
