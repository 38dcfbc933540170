"""From a final result to a checkpoint on disk: make the vertex, store it with all that proves it.

The order of files in a group is the order of reference: blocks before the certificate that makes
them final, a delta before the certificate and the vertex that name it, chunks before manifests.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import trio

from daa_consensus.bft.messages import (
    Block,
    SetPayload,
    encode_block,
    encode_certificate,
)
from daa_consensus.votes import Certificate
from daa_dag.checkpoint import ZERO_ID, Contributor, Vertex
from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, BlockId, Digest, NodeId, ValidatorSetRoot, digest_of
from daa_dag.retention import Prunable, Retention, prunable
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    CHUNKS,
    DELTAS,
    MANIFESTS,
    STATES,
    UPDATES,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.writes import Write
from daa_node.errors import StorageFailed
from daa_node.seams import BlobStore, StateRef, SteppedState

# Chunks of a snapshot on their way to disk at once: their syncs share the disk's journal.
SNAPSHOT_WRITERS = 4

LEDGER_ROOT_EMPTY = digest_of(b"daa/v1/ledger/empty")  # until there is a ledger


def genesis_vertex(state: StateRef, validator_set_root: ValidatorSetRoot) -> Vertex:
    """Height 0: the initial weights, which nobody has to certify."""
    return Vertex(
        parents=(),
        height=0,
        training_round=0,
        decided_block=BlockId(ZERO_ID),
        contributors=(),
        rule="genesis",
        f_agg=0,
        delta_root=BlobRoot(ZERO_ID),
        model_root=state.model_root,
        outer_state_root=state.outer_root,
        ledger_root=LEDGER_ROOT_EMPTY,
        validator_set_root=validator_set_root,
        tokens_total=0,
    )


def vertex_of(
    parent: Vertex,
    set_block: Block,
    stepped: SteppedState,
    validator_set_root: ValidatorSetRoot,
    excluded: Sequence[NodeId] = (),
) -> Vertex:
    """The one vertex that follows from a final set and its execution on top of `parent`.

    `validator_set_root` is that of the set's epoch; `excluded` are those members of it, sorted, who
    stand convicted once the set is final. Pure: every honest node makes the same.
    """
    payload = set_block.payload
    assert isinstance(payload, SetPayload)
    contributors = tuple(
        Contributor(
            author=offer.author,
            contribution_root=offer.root,
            weight=weight,
            steps=offer.steps,
            tokens=offer.tokens,
            us_per_step=offer.us_per_step,
            upload_bytes_per_s=offer.upload_bytes_per_s,
            base_loss_micronats=offer.base_loss_micronats,
        )
        for offer, weight in zip(payload.offers, payload.weights, strict=True)
    )
    return Vertex(
        parents=(parent.vertex_id,),
        height=parent.height + 1,
        training_round=payload.round,
        decided_block=set_block.id,
        contributors=contributors,
        rule=payload.rule,
        f_agg=payload.f_agg,
        delta_root=stepped.delta_root,
        model_root=stepped.state.model_root,
        outer_state_root=stepped.state.outer_root,
        ledger_root=parent.ledger_root,
        validator_set_root=validator_set_root,
        tokens_total=parent.tokens_total + sum(offer.tokens for offer in payload.offers),
        excluded=tuple(excluded),
    )


@dataclass(frozen=True, slots=True)
class Headers:
    """Newly final blocks, oldest first, and what makes the last of them all final.

    `trailing` blocks, above an epoch's last block, only carry the proof. Both may be empty when
    an earlier call stored them.
    """

    blocks: tuple[Block, ...]
    trailing: tuple[Block, ...]
    certificate: Certificate


async def publish_all(
    chain: ChainStore,
    headers: Headers,
    certified: Sequence[tuple[Vertex, Certificate]],
    snapshot_every: int | None,
) -> None:
    """Store final headers and the vertices of all results among them, lowest first: all or nothing.

    Each vertex's delta lies whole in the work store under "updates", and so do its states under
    "states" when a snapshot is due; with `snapshot_every` None the caller adds it (`add_snapshot`).
    The caller has verified everything. Durable once this returns. Raises StorageFailed; then
    nothing of what was half written remains after the next start.
    """
    # One group: a result that is final here without its vertex would leave a node that restarts
    # there with headers that its model has not followed.
    together = _header_writes(chain, headers)
    snapshots: list[list[Write]] = []
    for vertex, certificate in certified:
        together += await _vertex_writes(chain, vertex, certificate)
        if snapshot_every is not None and vertex.height % snapshot_every == 0:
            snapshots.append(await snapshot_writes(chain, vertex))
    await chain.add([together, *snapshots])
    for vertex, _ in certified:
        chain.graph.add(vertex)
    final_blocks = (*headers.blocks, *headers.trailing)
    if final_blocks:
        chain.advance(final_blocks[-1], headers.certificate)


async def add_snapshot(chain: ChainStore, vertex: Vertex) -> None:
    """Store the states of a published vertex, which lie in the work store. Raises StorageFailed."""
    await chain.add([await snapshot_writes(chain, vertex)])


@dataclass(frozen=True, slots=True)
class Held:
    """What of a chain can be let go: by height, from the tip down to where nothing is held."""

    vertices: dict[int, Vertex]
    delta_heights: tuple[int, ...]
    snapshots: dict[int, tuple[Manifest, Manifest]]

    def names(self, going: Prunable) -> set[str]:
        """The files that go, without those that what stays needs too."""
        # Two steps that move nothing are one delta, and snapshots share chunks that did not change.
        staying = set(self.delta_heights) - {*going.delta_heights}
        names = self._delta_names(going.delta_heights) - self._delta_names(staying)
        gone = [self.snapshots[height] for height in going.snapshot_heights]
        kept = [self.snapshots[height] for height in {*self.snapshots} - {*going.snapshot_heights}]
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
    return Held(vertices, tuple(deltas), snapshots)


async def prune(chain: ChainStore, policy: Retention) -> int:
    """Delete what the policy lets go; how many files that was. Raises StorageFailed."""
    if policy.vertices_restorable is None:
        return 0
    held = await held_by(chain)
    going = prunable(policy, max(held.vertices, default=0), held.delta_heights, held.snapshots)
    names = held.names(going)
    await chain.drop(sorted(names))
    return len(names)


def _header_writes(chain: ChainStore, headers: Headers) -> list[Write]:
    blocks = (*headers.blocks, *headers.trailing)
    writes = [chain.record(BLOCKS, block.id.hex(), encode_block(block)) for block in blocks]
    block_id = headers.certificate.statement.value
    assert isinstance(block_id, bytes), "a finalization certificate, as verified by the caller"
    name = final_name(BlockId(block_id))
    payload = encode_certificate(headers.certificate)
    return [*writes, chain.record(CERTIFICATES, name, payload)]


async def _vertex_writes(
    chain: ChainStore, vertex: Vertex, certificate: Certificate
) -> list[Write]:
    vertex_id = vertex.vertex_id
    return [
        *await delta_writes(chain, vertex),
        chain.record(CERTIFICATES, exec_name(vertex_id), encode_certificate(certificate)),
        chain.record(VERTICES, vertex_id.hex(), vertex.encode()),
    ]


async def delta_writes(chain: ChainStore, vertex: Vertex) -> list[Write]:
    """Of the vertex's delta, which lies in the work store. Raises StorageFailed."""
    manifest = await chain.work.blob_manifest(UPDATES, vertex.delta_root)
    if manifest is None:
        raise StorageFailed(f"work/{UPDATES}/{vertex.delta_root.hex()}, the delta, is missing")

    async def copy_delta() -> None:
        await copy_blob(chain.work, UPDATES, chain.store, DELTAS, manifest)

    return [
        Write(f"{MANIFESTS}/{manifest.root.hex()}", _nothing),  # comes with the blob
        Write(f"{DELTAS}/{manifest.root.hex()}", copy_delta),
    ]


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
    held = set(await chain.store.record_names(CHUNKS))
    wanted = [digest for digest in places if digest.hex() not in held]
    queue = iter(wanted)

    async def copy_some() -> None:
        for digest in queue:
            payload = await chain.work.read_chunk(STATES, *places[digest])
            if digest_of(payload) != digest:
                raise StorageFailed(f"work/{STATES}/{places[digest][0].hex()} is damaged")
            await chain.store.put_record(CHUNKS, digest.hex(), payload)

    async def copy_all() -> None:
        # Whichever chunk's turn comes first brings them all; the queue is empty for the others.
        failed: list[StorageFailed] = []
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(SNAPSHOT_WRITERS):
                    nursery.start_soon(copy_some)
        except* StorageFailed as failures:
            failed.append(_first(failures))
        if failed:  # raised up there, Python may wrap it in a group again
            raise failed[0]

    chunks = [Write(f"{CHUNKS}/{digest.hex()}", copy_all) for digest in wanted]
    tables = [chain.record(MANIFESTS, m.root.hex(), m.encode()) for m in manifests]
    return [*chunks, *tables]


async def copy_blob(
    source: BlobStore, source_kind: str, target: BlobStore, target_kind: str, manifest: Manifest
) -> None:
    """Copy a blob between stores, every chunk verified on the way. Raises StorageFailed."""
    writer = await target.begin_blob(target_kind, manifest)
    for index in writer.missing():
        payload = await source.read_chunk(source_kind, manifest.root, index)
        if digest_of(payload) != manifest.digests[index]:
            raise StorageFailed(f"{source_kind}/{manifest.root.hex()} is damaged in chunk {index}")
        await writer.write_chunk(index, payload)
    await writer.commit()


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


async def _nothing() -> None:
    """Some files come with another one of their group."""
