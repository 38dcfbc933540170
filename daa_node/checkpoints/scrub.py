"""All that a chain keeps, read again and again, slowly: damage is known before it is needed.

A disk loses bits without a word, and old rounds are read by nobody for months. What is read here is
checked as any reader checks it: names, digests, and the checks of packs. What is damaged or lost is
mended at once, out of what others hold (see repair), before the reading goes on.
"""

from collections.abc import Mapping
from contextlib import aclosing

import trio

from daa_consensus.bft.messages import Block, GenesisPayload, ResultPayload
from daa_dag.checkpoint import Vertex
from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, BlockId, Digest, VertexId, digest_of
from daa_node.checkpoints.chain import ChainStore, state_manifest
from daa_node.checkpoints.found_damage import FoundDamage, Mend
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    DELTAS,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.repair import Repair
from daa_node.checkpoints.shown_proofs import shown_exec, shown_final
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog

PAUSE_S = 24 * 3600.0  # before each pass
LOOK_AFTER_S = 600.0  # of a start that misses blocks: others are within reach by then
BYTES_PER_S = 2**20  # a hundredth of a slow disk; a year of four validators' proofs takes a day
HEADERS_BYTES = 2**16  # what a block with what proves it is taken for
PIECES_AT_ONCE = 16  # of a snapshot that are mended together: 4 MiB


class Scrub:
    """Of one chain, beside everything else."""

    def __init__(self, chain: ChainStore, log: EventLog) -> None:
        self._chain = chain
        self._log = log
        self.repair: Repair | None = None  # None: nobody is asked, and what is found is only told
        self._found = FoundDamage(log)
        self._asks_from = 0  # blocks of the path, below which earlier passes have asked in vain
        self._height = self._epoch = 0  # that this pass has come to
        # Executions of this epoch that are not here: lost, if a later one is.
        self._lacking: list[ResultPayload] = []
        self._delta_below: BlobRoot | None = None  # the newest that this pass has seen
        self.found: tuple[str, ...] = ()  # by the newest pass that has ended, in words
        self.mended: tuple[str, ...] = ()  # by the same pass

    async def run(self) -> None:
        """Until cancelled."""
        if self._chain.lacks_blocks:
            await trio.sleep(LOOK_AFTER_S)
            await self.look()
        while True:
            await trio.sleep(PAUSE_S)
            await self.once()

    async def once(self) -> list[str]:
        """One pass over what is final now; what is wrong and stays so, in words.

        Each thing that is wrong is told as an event, and another one tells if it was mended.
        """
        self._found.begin(self.repair)
        self._height, self._epoch = 0, 0
        self._lacking, self._delta_below = [], None
        blocks, spent_at = 0, -1
        try:
            await self._look_up()
            async for block_id in self._chain.path.ids():
                self._found.asks = blocks >= self._asks_from
                try:
                    await self._read(block_id)
                except StorageFailed as failure:  # of what is kept by its names: the rest is read
                    await self._wrong(failure)
                await self._pause(HEADERS_BYTES)
                if spent_at < 0 and self._found.is_spent:
                    spent_at = blocks
                blocks += 1
            await self._read_end(self._epoch)
            await self._miss_lacking()
            if self.repair is not None:
                await self.repair.settle()
        except StorageFailed as failure:
            await self._wrong(failure)  # the path itself cannot be had: no start would go better
        self._asks_from = spent_at + 1
        self.found, self.mended = self._found.shown()
        damaged, mended = self._found.damaged, len(self._found.mended)
        self._log.emit(events.CHAIN_SCRUBBED, blocks=blocks, damaged=len(damaged), repaired=mended)
        return damaged

    async def look(self) -> None:
        """Mend blocks that are not here at all; what is here is not read."""
        self._found.begin(self.repair)
        has = self._chain.store.has_record
        try:
            await self._look_up()
            async for block_id in self._chain.path.ids():
                if not await has(BLOCKS, block_id.hex()):
                    await self._read_header(block_id)
            for epoch in range(len(self._chain.furthest)):
                await self._read_beside(epoch)
            if self.repair is not None:
                await self.repair.settle()
        except StorageFailed as failure:
            await self._wrong(failure)
        self.found, self.mended = self._found.shown()

    async def _look_up(self) -> None:
        """Know the path. Raises StorageFailed if a block of it cannot be read, and not be mended.

        After a start with a summary few blocks are new; without one, it is the whole chain.
        """
        while True:
            try:
                return await self._chain.look_up()
            except StorageFailed:
                if not await self._mend_path():
                    raise

    async def _mend_path(self) -> bool:
        """Whether the highest block that cannot be read is a good one now."""
        next_id = self._chain.final_tip[0].id
        try:
            async with aclosing(self._chain.path_down(next_id)) as path_down:
                async for block in path_down:
                    next_id = block.parent_id
        except StorageFailed:
            return await self._read_header(next_id) is not None
        return False

    async def _read(self, block_id: BlockId) -> None:
        """A block, and what became final with it."""
        block = await self._read_header(block_id)
        if block is None:
            return
        if block.epoch != self._epoch:
            await self._read_end(self._epoch)
            self._epoch, self._lacking = block.epoch, []
        await self._read_proof(block)
        match block.payload:
            case GenesisPayload(vertex_id=vertex_id):  # with weights from a file, it has a snapshot
                await self._read_vertex(vertex_id)
            case ResultPayload(vertex_id=vertex_id) as result:
                self._height += 1
                await self._read_execution(result)
                await self._read_vertex(vertex_id)
            case _:
                pass

    async def _read_header(self, block_id: BlockId) -> Block | None:
        mended: list[Block] = []

        async def mend(repair: Repair) -> bool:
            block = await repair.block(block_id)
            mended[:] = [] if block is None else [block]
            return block is not None

        try:
            block = await self._chain.block(block_id)
            if block is None:
                raise StorageFailed(f"{BLOCKS}/{block_id.hex()} is missing")
        except StorageFailed as failure:
            await self._wrong(failure, mend)
            return mended[0] if mended else None
        return block

    async def _read_proof(self, block: Block, is_end: bool = False) -> None:
        try:
            if await shown_final(self._chain, block.id) is not None:
                return
        except StorageFailed as failure:
            await self._wrong(failure, lambda repair: repair.final(block))
            return
        try:
            # Asked afterwards: before the first one of an old epoch goes, none of it is expected.
            is_lost = is_end or await self._chain.path.is_certified(block)
        except StorageFailed as failure:
            await self._wrong(failure)
            return
        if is_lost:
            missing = StorageFailed(f"{CERTIFICATES}/{final_name(block.id)} is missing")
            await self._wrong(missing, lambda repair: repair.final(block))

    async def _read_end(self, epoch: int) -> None:
        """The furthest proof of an epoch: its block may lie beside the path."""
        block, is_beside = await self._read_beside(epoch)
        is_light = epoch < self._chain.path.light_below  # it is all that proves the epoch
        if block is None or not (is_light or is_beside):
            return
        await self._read_proof(block, is_end=True)
        await self._pause(HEADERS_BYTES)

    async def _read_beside(self, epoch: int) -> tuple[Block | None, bool]:
        """The block of an epoch's furthest proof, and whether it lies beside the path.

        Those between it and the path are read as well: they carry the proof.
        """
        path = self._chain.path
        end = await self._chain.furthest.get(epoch)
        block = furthest = None if end is None else await self._read_header(end.block_id)
        while block is not None and block.view and await path.place_of(block) is None:
            await self._pause(HEADERS_BYTES)
            block = await self._read_header(block.parent_id)
        return furthest, block is not furthest

    async def _read_execution(self, result: ResultPayload) -> None:
        """The certificate of what a round came to."""
        chain, vertex_id, epoch = self._chain, result.vertex_id, self._epoch
        try:
            if await shown_exec(chain, vertex_id) is not None:
                if self._lacking:  # or they are going just now, all of this epoch in one write
                    await chain.groups.settle()
                    if await chain.exec_certificate(vertex_id) is None:
                        self._lacking.append(result)
                        return
                await self._miss_lacking()
            elif await chain.heights.at(self._height) == vertex_id:
                self._lacking.append(result)
        except StorageFailed as failure:
            await self._wrong(failure, lambda repair: repair.execution(result, epoch))

    async def _read_vertex(self, vertex_id: VertexId) -> None:
        chain = self._chain
        # A vertex that was never here is no loss: it comes when a gap is closed.
        is_held = await chain.heights.at(self._height) == vertex_id
        try:
            vertex = await chain.vertex(vertex_id)
            if vertex is None and is_held:
                raise StorageFailed(f"{VERTICES}/{vertex_id.hex()} is missing")
        except StorageFailed as failure:
            if not await self._wrong(failure, lambda repair: repair.vertex(vertex_id)):
                return
            vertex = await chain.vertex(vertex_id)
        if vertex is None:
            return
        if vertex.height > 0:
            await self._read_delta(vertex)
        await self._read_snapshot(vertex)

    async def _miss_lacking(self) -> None:
        """Say that these are lost: of an epoch that is over its end may stand for the last ones."""
        lacking, self._lacking = self._lacking, []
        epoch = self._epoch
        for result in lacking:
            failure = StorageFailed(f"{CERTIFICATES}/{exec_name(result.vertex_id)} is missing")

            async def mend(repair: Repair, result: ResultPayload = result) -> bool:
                return await repair.execution(result, epoch)

            await self._wrong(failure, mend)

    async def _read_delta(self, vertex: Vertex) -> None:
        store, root = self._chain.store, vertex.delta_root

        async def mend(repair: Repair) -> bool:
            return await repair.delta(root, lambda: self._is_wanted(vertex))

        try:
            manifest = await store.blob_manifest(DELTAS, root)
            if manifest is None:
                if not await self._is_wanted(vertex):
                    return  # let go, or of a vertex that was taken over without it
                raise StorageFailed(f"{DELTAS}/{root.hex()} is missing, or its manifest is damaged")
            for index, digest in enumerate(manifest.digests):
                if digest_of(await store.read_chunk(DELTAS, root, index)) != digest:
                    raise StorageFailed(f"{DELTAS}/{root.hex()} is damaged in chunk {index}")
                await self._pause(manifest.sizes[index])
            self._delta_below = root
        except StorageFailed as failure:
            if await self._is_wanted(vertex):
                await self._wrong(failure, mend)

    async def _is_wanted(self, vertex: Vertex) -> bool:
        """Whether a good delta belongs in the place of a bad one, or of none.

        What is let go are always the lowest ones.
        """
        store = self._chain.store
        await self._chain.groups.settle()
        if await store.has_record(DELTAS, vertex.delta_root.hex()):
            return True
        below = self._delta_below
        if below is None or vertex.height > (await self._chain.newest()).height:
            return False
        return await store.has_record(DELTAS, below.hex())

    async def _read_snapshot(self, vertex: Vertex) -> None:
        for root in (vertex.model_root, vertex.outer_state_root):

            async def mend(repair: Repair, root: BlobRoot = root) -> bool:
                return await repair.manifest(root)

            try:
                await state_manifest(self._chain.store, root)
            except StorageFailed as failure:
                await self._wrong(failure, mend)
        try:
            manifests = await self._chain.snapshot(vertex)
        except StorageFailed:
            return  # told of already
        for manifest in manifests or ():
            for start in range(0, len(manifest.sizes), PIECES_AT_ONCE):
                bad = dict[int, StorageFailed]()
                for index in range(start, min(start + PIECES_AT_ONCE, len(manifest.sizes))):
                    try:
                        await self._chain.chunk(manifest.digests[index])
                    except StorageFailed as failure:
                        await self._chain.groups.settle()
                        if await self._chain.snapshot(vertex) is None:
                            return  # it was let go while it was read
                        bad[index] = failure
                    await self._pause(manifest.sizes[index])
                await self._miss_pieces(manifest, bad)

    async def _miss_pieces(self, manifest: Manifest, bad: Mapping[int, StorageFailed]) -> None:
        """Say of each of these chunks what is wrong with it; all are asked for at once."""
        asked = False
        for index, failure in bad.items():

            async def mend(repair: Repair, digest: Digest = manifest.digests[index]) -> bool:
                nonlocal asked
                if not asked:
                    await repair.chunks(manifest, tuple(bad))
                asked = True
                try:
                    await self._chain.chunk(digest)
                except StorageFailed:
                    return False
                return True

            await self._wrong(failure, mend)

    async def _pause(self, size_bytes: int) -> None:
        """For what was read. After each piece: a whole state at once would hold up the rounds."""
        await trio.sleep(size_bytes / BYTES_PER_S)

    async def _wrong(self, failure: StorageFailed, mend: Mend | None = None) -> bool:
        """Tell of it, and mend it; whether there is a good one now."""
        is_good = await self._found.wrong(failure, mend)
        if is_good:
            await self._pause(HEADERS_BYTES)
        return is_good
