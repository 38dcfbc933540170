"""All that a chain keeps, read again and again, slowly: damage is known before it is needed.

A disk loses bits without a word, and old rounds are read by nobody for months. What is read here is
checked as any reader checks it: names, digests, and the checks of packs.
"""

from itertools import islice

import trio

from daa_consensus.bft.messages import Block, GenesisPayload, ResultPayload
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlockId, VertexId, digest_of
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    DELTAS,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog

PAUSE_S = 24 * 3600.0  # before each pass
BYTES_PER_S = 2**20  # a hundredth of a slow disk; a year of four validators' proofs takes a day
FOUND_MAX = 64  # told of by `status`; the events name all
HEADERS_BYTES = 2**16  # what a block with what proves it is taken for


class Scrub:
    """Of one chain, beside everything else."""

    def __init__(self, chain: ChainStore, log: EventLog) -> None:
        self._chain = chain
        self._log = log
        self._damaged = dict[str, None]()  # in this pass, each once
        self._height = self._epoch = 0  # that this pass has come to
        self._lacking: list[str] = []  # executions of this epoch: lost, if a later one is here
        self.found: tuple[str, ...] = ()  # by the newest pass that has ended, in words

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(PAUSE_S)
            await self.once()

    async def once(self) -> list[str]:
        """One pass over what is final now; what is wrong, in words, each told as an event too."""
        self._damaged, self._height, self._epoch, blocks = {}, 0, 0, 0
        self._lacking = []
        try:
            await self._chain.look_up()
            async for block_id in self._chain.path.ids():
                await self._read(block_id)
                await self._pause(HEADERS_BYTES)
                blocks += 1
            await self._read_end(self._epoch)
            self._miss_lacking()
        except StorageFailed as failure:
            self._wrong(failure)  # the path itself cannot be had: no start would go better
        self.found = tuple(islice(self._damaged, FOUND_MAX))
        self._log.emit(events.CHAIN_SCRUBBED, blocks=blocks, damaged=len(self._damaged))
        return list(self._damaged)

    async def _read(self, block_id: BlockId) -> None:
        """A block, and what became final with it."""
        block = await self._read_header(block_id)
        if block is None:
            return
        if block.epoch != self._epoch:
            await self._read_end(self._epoch)
            self._epoch, self._lacking = block.epoch, []
        try:
            is_certified = await self._chain.path.is_certified(block)
            await self._read_proof(block_id, is_certified)
        except StorageFailed as failure:
            self._wrong(failure)
        match block.payload:
            case GenesisPayload(vertex_id=vertex_id):  # with weights from a file, it has a snapshot
                await self._read_vertex(vertex_id)
            case ResultPayload(vertex_id=vertex_id):
                self._height += 1
                await self._read_vertex(vertex_id)
            case _:
                pass

    async def _read_header(self, block_id: BlockId) -> Block | None:
        try:
            block = await self._chain.block(block_id)
            if block is None:
                raise StorageFailed(f"{BLOCKS}/{block_id.hex()} is missing")
        except StorageFailed as failure:
            self._wrong(failure)
            return None
        return block

    async def _read_proof(self, block_id: BlockId, is_held: bool) -> None:
        if await self._chain.final_certificate(block_id) is None and is_held:
            raise StorageFailed(f"{CERTIFICATES}/{final_name(block_id)} is missing")

    async def _read_end(self, epoch: int) -> None:
        """The furthest proof of an epoch: its block may lie beside the path."""
        end = await self._chain.furthest.get(epoch)
        block = None if end is None else await self._read_header(end.block_id)
        if block is None:
            return
        is_light = epoch < self._chain.path.light_below  # it is all that proves the epoch
        if not is_light and await self._chain.path.place_of(block) is not None:
            return
        try:
            await self._read_proof(block.id, is_held=True)
        except StorageFailed as failure:
            self._wrong(failure)
        await self._pause(HEADERS_BYTES)

    async def _read_vertex(self, vertex_id: VertexId) -> None:
        chain = self._chain
        # A vertex that was never here is no loss: it comes when a gap is closed.
        is_held = await chain.heights.at(self._height) == vertex_id
        try:
            proof = await chain.exec_certificate(vertex_id)
            if proof is not None:
                self._miss_lacking()
            elif is_held and self._height > 0:
                self._lacking.append(f"{CERTIFICATES}/{exec_name(vertex_id)}")
        except StorageFailed as failure:
            self._wrong(failure)
        try:
            vertex = await chain.vertex(vertex_id)
            if vertex is None and is_held:
                raise StorageFailed(f"{VERTICES}/{vertex_id.hex()} is missing")
            if vertex is not None:
                await self._read_delta(vertex)
                await self._read_snapshot(vertex)
        except StorageFailed as failure:
            self._wrong(failure)

    def _miss_lacking(self) -> None:
        """Say that these are lost: of an epoch that is over its end may stand for the last ones."""
        for name in self._lacking:
            self._wrong(StorageFailed(f"{name} is missing"))
        self._lacking = []

    async def _read_delta(self, vertex: Vertex) -> None:
        store, root = self._chain.store, vertex.delta_root
        manifest = await store.blob_manifest(DELTAS, root)
        if manifest is None:
            return  # let go, or of a vertex that was taken over without it
        try:
            for index, digest in enumerate(manifest.digests):
                if digest_of(await store.read_chunk(DELTAS, root, index)) != digest:
                    raise StorageFailed(f"{DELTAS}/{root.hex()} is damaged in chunk {index}")
                await self._pause(manifest.sizes[index])
        except StorageFailed as failure:
            await self._chain.groups.settle()
            if await store.blob_manifest(DELTAS, root) is not None:
                self._wrong(failure)

    async def _read_snapshot(self, vertex: Vertex) -> None:
        for manifest in await self._chain.snapshot(vertex) or ():
            for size_bytes, digest in zip(manifest.sizes, manifest.digests, strict=True):
                try:
                    await self._chain.chunk(digest)
                except StorageFailed as failure:
                    await self._chain.groups.settle()
                    if await self._chain.snapshot(vertex) is None:
                        return  # it was let go while it was read
                    self._wrong(failure)
                await self._pause(size_bytes)

    async def _pause(self, size_bytes: int) -> None:
        """For what was read. After each piece: a whole state at once would hold up the rounds."""
        await trio.sleep(size_bytes / BYTES_PER_S)

    def _wrong(self, failure: StorageFailed) -> None:
        what = str(failure)
        if what not in self._damaged:
            self._damaged[what] = None
            self._log.emit(events.RECORD_DAMAGED, detail=what)
