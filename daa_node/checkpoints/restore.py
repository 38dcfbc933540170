"""From a vertex to its state in the work store: the nearest state held, then delta after delta.

Nearest first: a state that is already in the work store, a snapshot of the chain, the genesis
weights. Every step must reach exactly the roots that the vertex names.
"""

from typing import Protocol

from daa_dag.checkpoint import Vertex
from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, digest_of
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import DELTAS, STATES, UPDATES
from daa_node.checkpoints.publish import copy_blob, state_of
from daa_node.errors import StorageFailed
from daa_node.seams import BlobStore, StateRef


class Replayer(Protocol):
    """The two verbs of the Trainer seam that a restore needs."""

    async def initial_state(self) -> StateRef: ...

    async def apply_delta(self, base: StateRef, delta_root: BlobRoot) -> StateRef: ...


async def restore(chain: ChainStore, vertex: Vertex, replayer: Replayer) -> StateRef:
    """Have the state of `vertex` whole and checked in the work store.

    States of vertices in between are deleted again. Raises StorageFailed when what is held does not
    lead to the roots, and whatever the replayer raises.
    """
    base, above = await _nearest_state(chain, vertex, replayer)
    for step in reversed(above):
        manifest = await chain.store.blob_manifest(DELTAS, step.delta_root)
        if manifest is None:
            raise StorageFailed(
                f"{DELTAS}/{step.delta_root.hex()}, the step to height {step.height}, is missing"
            )
        if not await intact(chain.work, UPDATES, step.delta_root):
            await copy_blob(chain.store, DELTAS, chain.work, UPDATES, manifest)
        reached = await replayer.apply_delta(base, step.delta_root)
        _check(reached, step)
        if step is not above[-1]:  # the nearest state was there before: it is not ours to delete
            await _forget(chain.work, base, keep=reached)
        base = reached
    return base


async def _nearest_state(
    chain: ChainStore, vertex: Vertex, replayer: Replayer
) -> tuple[StateRef, list[Vertex]]:
    """A state in the work store, and the vertices from `vertex` down to just above it."""
    above: list[Vertex] = []
    while True:
        wanted = state_of(vertex)
        roots = (wanted.model_root, wanted.outer_root)
        if all([await intact(chain.work, STATES, root) for root in roots]):
            return wanted, above
        snapshot = await chain.snapshot(vertex)
        if snapshot is not None:
            for manifest in snapshot:
                await _load(chain, manifest)
            return wanted, above
        if vertex.height == 0:
            reached = await replayer.initial_state()
            _check(reached, vertex)
            return reached, above
        if len(vertex.parents) != 1:
            raise StorageFailed(f"vertex {vertex.vertex_id.hex()} is a merge: fetch a snapshot")
        above.append(vertex)
        parent = await chain.vertex(vertex.parents[0])
        if parent is None:
            raise StorageFailed(
                f"vertices/{vertex.parents[0].hex()}, the parent of height {vertex.height}, "
                "is missing"
            )
        vertex = parent


async def intact(work: BlobStore, kind: str, root: BlobRoot) -> bool:
    """Whether the blob is held and every chunk of it is right; a damaged one is deleted.

    States and deltas in the work store are caches, written without a sync: a power cut can leave
    anything in them.
    """
    manifest = await work.blob_manifest(kind, root)
    if manifest is None:
        return False
    try:
        for index, digest in enumerate(manifest.digests):
            if digest_of(await work.read_chunk(kind, root, index)) != digest:
                break
        else:
            return True
    except StorageFailed:
        pass  # shorter than its manifest: damaged all the same
    await work.delete_blob(kind, root)
    return False


async def _load(chain: ChainStore, manifest: Manifest) -> None:
    writer = await chain.work.begin_blob(STATES, manifest)
    for index in writer.missing():
        await writer.write_chunk(index, await chain.chunk(manifest.digests[index]))
    await writer.commit()


async def _forget(work: BlobStore, state: StateRef, keep: StateRef) -> None:
    for root in sorted({state.model_root, state.outer_root} - {keep.model_root, keep.outer_root}):
        await work.delete_blob(STATES, root)


def _check(reached: StateRef, vertex: Vertex) -> None:
    if reached != state_of(vertex):
        raise StorageFailed(
            f"the replay to height {vertex.height} reached weights {reached.model_root.hex()} and "
            f"momentum {reached.outer_root.hex()}, its vertex names {vertex.model_root.hex()} and "
            f"{vertex.outer_state_root.hex()}"
        )
