"""Take a chain across a gap: past vertices whose deltas nobody keeps, up to a state that is kept.

What is certified on the way is staged in the work store, so that a gap of any length costs memory
for its names only. Then it all comes in one group, together with the state as a snapshot; and what
lay below goes, since a chain is restorable from one floor up (see retention).
"""

from collections.abc import AsyncIterator, Sequence

from daa_consensus.bft.messages import Block, encode_block, encode_certificate
from daa_consensus.votes import Certificate
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlockId, VertexId
from daa_dag.retention import Prunable
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    STAGED,
    STATES,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.publish import Page, delta_writes
from daa_node.checkpoints.snapshots import held_by, snapshot_names, snapshot_writes
from daa_node.checkpoints.writes import Write
from daa_node.errors import StorageFailed


class Gap:
    """One crossing: `begin`, `stage` page after page, `publish`. All raise StorageFailed."""

    def __init__(self, chain: ChainStore) -> None:
        self._chain = chain
        self._writes: dict[str, Write] = {}  # pages may overlap
        self._vertex_ids: list[VertexId] = []
        self._pages: list[tuple[BlockId, ...]] = []  # the last block of each has a certificate

    async def begin(self) -> None:
        """Forget what an earlier crossing, which did not arrive, has left."""
        for name in await self._chain.work.record_names(STAGED):
            await self._chain.work.delete_record(STAGED, name)

    async def stage(self, page: Page) -> None:
        """Keep final headers and the vertices of all results among them; verified by the caller."""
        for block in page.blocks:
            await self._keep(BLOCKS, block.id.hex(), encode_block(block))
        final = final_name(page.blocks[-1].id)
        await self._keep(CERTIFICATES, final, encode_certificate(page.certificate))
        for vertex, certificate in page.vertices:
            vertex_id = vertex.vertex_id
            await self._keep(CERTIFICATES, exec_name(vertex_id), encode_certificate(certificate))
            await self._keep(VERTICES, vertex_id.hex(), vertex.encode())
            self._vertex_ids.append(vertex_id)
        self._pages.append(tuple(block.id for block in page.blocks))

    async def publish(self, floor: Vertex, above: Sequence[Vertex]) -> None:
        """Store all that was staged, all or nothing; durable once this returns.

        The states of `floor` and the deltas of `above`, the vertices on top of it, lie in the work
        store.
        """
        chain = self._chain
        held = await held_by(chain)
        going = held.names(Prunable(held.delta_heights, tuple(held.snapshots)))
        landing = await snapshot_writes(chain, floor)
        for vertex in above:
            landing += await delta_writes(chain, vertex)
        # snapshot_writes names no chunk that is there already: it would go with the old ones
        going -= await self._snapshot(floor) | {write.name for write in landing}
        await chain.groups.add([[*landing, *self._writes.values()]], sorted(going))
        for vertex_id in self._vertex_ids:
            published = await chain.vertex(vertex_id)
            assert published is not None, "stored a moment ago"
            await chain.heights.add(published)
        async for blocks, certificate in self.pages():
            chain.advance(blocks[-1], certificate)
        await self.begin()

    async def pages(self) -> AsyncIterator[tuple[tuple[Block, ...], Certificate]]:
        """Each page's blocks, oldest first, and what makes them final; once they are published."""
        for ids in self._pages:
            blocks = [await self._chain.block(block_id) for block_id in ids]
            certificate = await self._chain.final_certificate(ids[-1])
            assert certificate is not None, "published"
            yield tuple(block for block in blocks if block is not None), certificate

    async def _snapshot(self, vertex: Vertex) -> set[str]:
        roots = (vertex.model_root, vertex.outer_state_root)
        weights, momentum = [await self._chain.work.blob_manifest(STATES, r) for r in roots]
        assert weights is not None, "snapshot_writes has read it"
        assert momentum is not None, "and this"
        return snapshot_names([(weights, momentum)])

    async def _keep(self, kind: str, name: str, payload: bytes) -> None:
        chain, staged = self._chain, f"{kind}.{name}"
        # Not durable: after a crash the crossing starts anew.
        await chain.work.put_record(STAGED, staged, payload, durable=False)

        async def put() -> None:
            kept = await chain.work.get_record(STAGED, staged)
            if kept is None:
                raise StorageFailed(f"work/{STAGED}/{staged} went away")
            await chain.store.put_record(kind, name, kept)

        self._writes[f"{kind}/{name}"] = Write(f"{kind}/{name}", put)
