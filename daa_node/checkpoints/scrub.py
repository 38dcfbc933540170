"""All that a chain keeps, read again and again, slowly: damage is known before it is needed.

A disk loses bits without a word, and old rounds are read by nobody for months. What is read here is
checked as any reader checks it: names, digests, and the checks of packs.
"""

import trio

from daa_consensus.bft.messages import ResultPayload
from daa_dag.checkpoint import Vertex
from daa_dag.chunking import Manifest
from daa_dag.ids import BlockId, VertexId, digest_of
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import DELTAS
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog

PAUSE_S = 24 * 3600.0  # before each pass
BYTES_PER_S = 2**20  # a hundredth of a slow disk; a year of four validators' proofs takes a day
HEADERS_BYTES = 2**16  # what a block with what proves it is taken for


class Scrub:
    """Of one chain, beside everything else."""

    def __init__(self, chain: ChainStore, log: EventLog) -> None:
        self._chain = chain
        self._log = log
        self._damaged: list[str] = []  # in this pass

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(PAUSE_S)
            await self.once()

    async def once(self) -> list[str]:
        """One pass over what is final now; what is wrong, in words, each told as an event too."""
        self._damaged, blocks = [], 0
        try:
            await self._chain.look_up()
            async for block_id in self._chain.path.ids():
                read_bytes = await self._read(block_id)
                await trio.sleep((HEADERS_BYTES + read_bytes) / BYTES_PER_S)
                blocks += 1
        except StorageFailed as failure:
            self._wrong(failure)  # the path itself cannot be had: no start would go better
        self._log.emit(events.CHAIN_SCRUBBED, blocks=blocks, damaged=len(self._damaged))
        return self._damaged

    async def _read(self, block_id: BlockId) -> int:
        """A block, and what became final with it; how many bytes of states that was."""
        chain = self._chain
        try:
            block = await chain.block(block_id)
            if block is None:
                raise StorageFailed(f"blocks/{block_id.hex()} is missing")
        except StorageFailed as failure:
            self._wrong(failure)
            return 0
        try:
            await chain.final_certificate(block_id)
        except StorageFailed as failure:
            self._wrong(failure)
        if not isinstance(block.payload, ResultPayload):
            return 0
        return await self._read_vertex(block.payload.vertex_id)

    async def _read_vertex(self, vertex_id: VertexId) -> int:
        chain, read_bytes = self._chain, 0
        try:
            await chain.exec_certificate(vertex_id)
        except StorageFailed as failure:
            self._wrong(failure)
        try:
            vertex = await chain.vertex(vertex_id)
            if vertex is not None:
                read_bytes += await self._read_delta(vertex)
                for manifest in await chain.snapshot(vertex) or ():
                    read_bytes += await self._read_snapshot(manifest)
        except StorageFailed as failure:
            self._wrong(failure)
        return read_bytes

    async def _read_delta(self, vertex: Vertex) -> int:
        store, root = self._chain.store, vertex.delta_root
        manifest = await store.blob_manifest(DELTAS, root)
        if manifest is None:
            return 0  # let go, or of a vertex that was taken over without it
        for index, digest in enumerate(manifest.digests):
            if digest_of(await store.read_chunk(DELTAS, root, index)) != digest:
                raise StorageFailed(f"{DELTAS}/{root.hex()} is damaged in chunk {index}")
        return manifest.size_bytes

    async def _read_snapshot(self, manifest: Manifest) -> int:
        for digest in manifest.digests:
            try:
                await self._chain.chunk(digest)
            except StorageFailed as failure:
                self._wrong(failure)
        return manifest.size_bytes

    def _wrong(self, failure: StorageFailed) -> None:
        self._damaged.append(str(failure))
        self._log.emit(events.RECORD_DAMAGED, detail=str(failure))
