"""Take a chain across a gap: past vertices whose deltas nobody keeps, up to a state that is kept.

What is certified on the way is staged in the work store, a page at a time, so that a gap of any
length costs memory for its names only. Then it all comes in one group, together with the state as a
snapshot. Proofs come in one pack: as files they would be a thousand syncs for a hundred rounds.
What lay below goes, since a chain is restorable from one floor up (see retention).
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from functools import partial

from daa_consensus.bft.messages import Block, encode_block, encode_certificate
from daa_consensus.votes import Certificate
from daa_dag import canonical
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlockId, VertexId
from daa_dag.retention import Prunable
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.held import held_by
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    PROOFS,
    STAGED,
    STATES,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.pages import decode_page, page_value
from daa_node.checkpoints.publish import Page, delta_writes
from daa_node.checkpoints.snapshot_files import snapshot_names, snapshot_writes
from daa_node.checkpoints.writes import Write
from daa_node.errors import PeerFault, StorageFailed


class Gap:
    """One crossing: `begin`, `stage` page after page, `publish`. All raise StorageFailed."""

    def __init__(self, chain: ChainStore) -> None:
        self._chain = chain
        self._names: list[tuple[str, ...]] = []  # of each page's files, as they are to come
        self._vertex_ids: list[VertexId] = []
        self._pages: list[tuple[BlockId, ...]] = []  # the last block of each has a certificate
        self._opened: tuple[int, dict[str, bytes]] = (-1, {})  # the page that was read last

    async def begin(self) -> None:
        """Forget what an earlier crossing, which did not arrive, has left."""
        for name in await self._chain.work.record_names(STAGED):
            await self._chain.work.delete_record(STAGED, name)

    async def stage(self, page: Page) -> None:
        """Keep final headers and the vertices of all results among them; verified by the caller."""
        name, payload = _staged_name(len(self._pages)), canonical.encode(page_value(page))
        # Not durable: after a crash the crossing starts anew.
        await self._chain.work.put_record(STAGED, name, payload, durable=False)
        self._names.append(tuple(name for name, _ in _files_of(page)))
        self._vertex_ids += [vertex.vertex_id for vertex, _ in page.vertices]
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
        with suppress(StorageFailed):
            await chain.pack(PROOFS, 1)  # what lies there is judged first: the others join it
        await chain.groups.add([[*landing, *self._proofs()]], sorted(going))
        for vertex_id in self._vertex_ids:
            published = await chain.vertex(vertex_id)
            assert published is not None, "stored a moment ago"
            await chain.heights.add(published)
        async for blocks, certificate in self.pages():
            chain.advance(blocks[-1], certificate)
        with suppress(StorageFailed):  # then the next start reads the chain once
            await chain.pack(PROOFS, 1)  # which writes down what packs hold by now
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

    def _proofs(self) -> list[Write]:
        """All that was staged, each file once: pages may overlap."""
        places: dict[str, int] = {}
        for place, names in enumerate(self._names):
            for name in names:
                places.setdefault(name, place)
        return [
            Write(
                name, partial(self._put, place, name, True), partial(self._put, place, name, False)
            )
            for name, place in places.items()
        ]

    async def _put(self, place: int, name: str, durable: bool) -> None:
        kind, _, rest = name.partition("/")
        payload = (await self._files(place))[name]
        await self._chain.store.put_record(kind, rest, payload, durable)

    async def _files(self, place: int) -> dict[str, bytes]:
        if self._opened[0] != place:
            staged = _staged_name(place)
            kept = await self._chain.work.get_record(STAGED, staged)
            if kept is None:
                raise StorageFailed(f"work/{STAGED}/{staged} went away")
            try:
                page = decode_page(kept, self._chain.limits, len(kept))
            except PeerFault as fault:  # it was checked, and the disk has changed it since
                raise StorageFailed(f"work/{STAGED}/{staged} is damaged: {fault}") from fault
            assert page is not None, "None was never staged"
            self._opened = (place, dict(_files_of(page)))
        return self._opened[1]


def _staged_name(place: int) -> str:
    return f"{place:08}"


def _files_of(page: Page) -> Iterator[tuple[str, bytes]]:
    """`kind/name` and bytes, what is referred to before what refers."""
    for block in page.blocks:
        yield f"{BLOCKS}/{block.id.hex()}", encode_block(block)
    final = final_name(page.blocks[-1].id)
    yield f"{CERTIFICATES}/{final}", encode_certificate(page.certificate)
    for vertex, certificate in page.vertices:
        vertex_id = vertex.vertex_id
        if certificate is not None:
            yield f"{CERTIFICATES}/{exec_name(vertex_id)}", encode_certificate(certificate)
        yield f"{VERTICES}/{vertex_id.hex()}", vertex.encode()
