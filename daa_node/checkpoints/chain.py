"""The certified chain of one node in its blob store: what is final, what is newest, and each part.

Reads decode and name-check what the disk hands back; that it is certified was checked before it was
written, and `verify` checks it again. Writes come in whole groups (see writes).
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TypeVar

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    GenesisPayload,
    ResultPayload,
    decode_block,
    decode_certificate,
    encode_block,
)
from daa_consensus.errors import ConsensusError
from daa_consensus.votes import Certificate, Kind
from daa_dag.checkpoint import Vertex, decode_vertex
from daa_dag.chunking import Manifest, decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, BlockId, Digest, VertexId, digest_of
from daa_node.checkpoints.digests import Digests
from daa_node.checkpoints.final_path import Descent, EpochEnds, FinalPath
from daa_node.checkpoints.heights import Heights
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    CHUNKS,
    EXEC_SUFFIX,
    FINAL_SUFFIX,
    MANIFESTS,
    PROOFS,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.loose_proofs import LooseProofs
from daa_node.checkpoints.recollection import (
    certified_in_files,
    is_pack_due,
    keep_pack_names,
    loose_files,
    recall,
)
from daa_node.checkpoints.turns import Turns
from daa_node.checkpoints.writes import GroupWriter
from daa_node.errors import StorageFailed
from daa_node.packs.format import key_of
from daa_node.prompt_lock import PromptLock
from daa_node.seams import BlobStore

T = TypeVar("T")

# Certificates that packing looks at before it goes on. Those that an earlier process has left are
# verified: a hundred thousand at once would keep a daemon from its rounds.
LOOKED_AT_ONCE = 256
EPOCHS_AHEAD = 4096  # of those that are known, a certificate's may be without another look


class ChainStore:
    """One writer at a time, readers at any time. What is wrong with the disk is StorageFailed."""

    def __init__(self, store: BlobStore, work: BlobStore, limits: Limits) -> None:
        self.store = store
        self.work = work
        self.limits = limits
        self.loose = LooseProofs()
        self.groups = GroupWriter(store, work, self.loose)  # all writing goes through it
        self._walking = PromptLock()
        self._first: VertexId | None = None
        self._tip: tuple[Block, Certificate | None] | None = None
        self.blocks_read = 0  # ever; whoever serves others tells by it what they cost
        self.lacks_blocks = False  # packs hold fewer than a summary counts: see Scrub.look
        self.turns = Turns(self.path_down)
        self._begin()

    def _begin(self) -> None:
        """Knowing nothing."""
        self.heights = Heights(self.work, partial(_height_of, self))
        self.path = FinalPath(self.work)  # as of the last look upwards
        # A certificate has a signature of each member, and epochs are as many as a chain is long:
        # it stays on the disk.
        self.furthest = EpochEnds(self.work)
        self.certified = Digests()  # blocks whose finalization lies in a file of its own
        self.turns.recall(None)

    async def open(self, genesis_vertex: Vertex, genesis_block: Block) -> None:
        """Repair what a crash left, make the genesis files if there are none, learn the tips."""
        record, first_id = self.groups.record, genesis_vertex.vertex_id
        self._first = first_id
        block = record(BLOCKS, genesis_block.id.hex(), encode_block(genesis_block))
        await self.groups.add([[block, record(VERTICES, first_id.hex(), genesis_vertex.encode())]])
        self.loose.lie_there(await self.store.record_names(CERTIFICATES, packed=False))
        known = await recall(self, first_id)
        if known is not None:
            await self._learn(genesis_block, known)
        if known is None or not self.heights.is_whole:
            self._begin()
            await self._learn(genesis_block, None)

    async def _learn(self, genesis_block: Block, known: BlockId | None) -> None:
        """Read all, or what is newer than a summary whose newest final block is `known`."""
        at_height = list[tuple[int, VertexId]]()
        for name in await self.store.record_names(VERTICES, packed=known is None):
            vertex = await self.vertex(VertexId(_id_in(VERTICES, name)))
            if vertex is None:  # listed a moment ago: a link that leads nowhere, say
                raise StorageFailed(f"{VERTICES}/{name} is missing")
            at_height.append((vertex.height, vertex.vertex_id))
        await self.heights.take(at_height)
        self._tip = await self._find_tip(genesis_block, known)

    async def pack(self, kinds: Sequence[str], files_min: int, apart: bool = False) -> int:
        """Move files of these kinds into a pack if so many lie there; how many it moved.

        Deltas are not counted: one may be too large to move. `apart`: states into one of their own.
        Certificates are looked at before, and what has rotted stays a file, which counts for none.
        """
        states = [kind for kind in kinds if kind not in PROOFS]
        parts = [PROOFS, states] if apart and states else [kinds]
        files_min += len(self.loose.rotten)
        if await loose_files(self, kinds) < files_min:
            return 0
        good = await _looked_at(self)  # nobody waits with a write until all are verified
        moved = await self.groups.pack(parts, lambda: is_pack_due(self, kinds, files_min), good)
        if moved:  # of proofs in packs the path tells
            self.certified = await certified_in_files(self)
            known = self.loose.names  # more may be published while the disk is asked
            left = await self.store.record_names(CERTIFICATES, packed=False)
            self.loose.forget(known.difference(left))
            await keep_pack_names(self)
        return moved

    # Reading

    @property
    def final_tip(self) -> tuple[Block, Certificate | None]:
        """The newest final block, and its certificate unless it is the genesis block."""
        assert self._tip is not None, "open() comes first"
        return self._tip

    async def newest(self) -> Vertex:
        """The highest vertex held."""
        vertex = await self.vertex(self.heights.newest)
        assert vertex is not None, "what is listed is held"
        return vertex

    async def vertex(self, vertex_id: VertexId) -> Vertex | None:
        name = vertex_id.hex()
        payload = await self.store.get_record(VERTICES, name)
        if payload is None:
            return None
        vertex = _decoded(f"{VERTICES}/{name}", lambda: decode_vertex(payload))
        if vertex.vertex_id != vertex_id:
            raise StorageFailed(f"{VERTICES}/{name} is damaged: it is another vertex")
        return vertex

    async def block(self, block_id: BlockId) -> Block | None:
        name = block_id.hex()
        self.blocks_read += 1
        payload = await self.store.get_record(BLOCKS, name)
        if payload is None:
            return None
        block = _decoded(f"{BLOCKS}/{name}", lambda: decode_block(payload, self.limits))
        if block.id != block_id:
            raise StorageFailed(f"{BLOCKS}/{name} is damaged: it is another block")
        return block

    async def exec_certificate(self, vertex_id: VertexId) -> Certificate | None:
        return await _certificate(self, exec_name(vertex_id), Kind.EXEC, vertex_id)

    async def final_certificate(self, block_id: BlockId) -> Certificate | None:
        return await _certificate(self, final_name(block_id), Kind.FINALIZE, block_id)

    async def path_down(self, block_id: BlockId) -> AsyncGenerator[Block, None]:
        """The block and its ancestors down to the genesis block, newest first; to be closed."""
        while True:
            block = await self.block(block_id)
            if block is None:
                raise StorageFailed(f"{BLOCKS}/{block_id.hex()} is missing")
            yield block
            if block.view == 0:
                return
            block_id = block.parent_id

    async def path_up(self, block_id: BlockId, count_max: int) -> list[Block] | None:
        """At most so many final blocks right above this one, oldest first; None if it is not final.

        Cheap however long the chain is and however often others ask: the first question walks the
        whole chain, later ones what was added to it.
        """
        async with self._walking:
            await _look_up(self)
            block = await self.block(block_id)
            wanted = None if block is None else await self.path.above(block, count_max)
        if wanted is None:
            return None
        blocks = [await self.block(wanted_id) for wanted_id in wanted]
        assert None not in blocks, "final blocks are never deleted"
        return [block for block in blocks if block is not None]

    async def look_up(self) -> None:
        """Lead `path` on to the newest final block. Raises StorageFailed."""
        async with self._walking:
            await _look_up(self)

    async def resume_point(self) -> Block:
        """Where to follow others from: the newest final block below which no vertex is missing.

        It closes a round, or is the genesis block. The tip itself may be further: a set that is
        still open, results whose vertices are not here, empty blocks that others need not have.
        """
        found: Block | None = None
        async with aclosing(self.path_down(self.final_tip[0].id)) as path_down:
            async for block in path_down:
                match block.payload:
                    case ResultPayload(vertex_id=vertex_id) if not await self.heights.has(
                        vertex_id
                    ):
                        found = None  # everything above stands on what we lack
                    case ResultPayload() | GenesisPayload():
                        return found or block
                    case AbortPayload():
                        found = found or block
                    case _:
                        pass
        raise AssertionError("path_down ends at the genesis block")

    async def snapshot(self, vertex: Vertex) -> tuple[Manifest, Manifest] | None:
        """Manifests of the snapshot's weights and momentum; None if this vertex has none here."""
        weights = await state_manifest(self.store, vertex.model_root)
        momentum = await state_manifest(self.store, vertex.outer_state_root)
        return None if weights is None or momentum is None else (weights, momentum)

    async def first_snapshot(self) -> tuple[Manifest, Manifest] | None:
        """That of the genesis vertex, which there is where its weights came from a file."""
        assert self._first is not None, "open() comes first"
        first = await self.vertex(self._first)
        return None if first is None else await self.snapshot(first)

    async def chunk(self, digest: Digest) -> bytes:
        """A snapshot's chunk, verified."""
        payload = await self.store.get_record(CHUNKS, digest.hex())
        if payload is None or digest_of(payload) != digest:
            state = "missing" if payload is None else "damaged"
            raise StorageFailed(f"{CHUNKS}/{digest.hex()} is {state}")
        return payload

    # Writing

    def advance(self, block: Block, certificate: Certificate) -> None:
        """`block`, stored with its certificate, is final."""
        tip, _ = self.final_tip
        self.certified.add(block.id)
        self.path.certify(block)
        self.furthest.note(*_slot_of(certificate), block.id)
        # An epoch's proof may lie in later views than the next epoch's first blocks.
        if (block.epoch, block.view) > (tip.epoch, tip.view):
            self._tip = (block, certificate)

    async def _find_tip(
        self, genesis_block: Block, known: BlockId | None
    ) -> tuple[Block, Certificate | None]:
        """`known` was the newest final block when all was packed that is."""
        newest = None if known is None else await self.final_certificate(known)
        for name in await self.store.record_names(CERTIFICATES, packed=known is None):
            if not name.endswith(FINAL_SUFFIX):
                continue
            block_id = BlockId(_id_in(CERTIFICATES, name, FINAL_SUFFIX))
            certificate = await self.final_certificate(block_id)
            if certificate is None:
                raise StorageFailed(f"{CERTIFICATES}/{name} is missing")
            await _check_epoch(self, block_id, certificate.statement.domain.epoch)
            self.certified.add(block_id)
            self.furthest.note(*_slot_of(certificate), block_id)
            if newest is None or _slot_of(certificate) > _slot_of(newest):
                newest = certificate
        if newest is None:
            return genesis_block, None
        block_id = final_block_of(newest)
        block = await self.block(block_id)
        if block is None:
            raise StorageFailed(
                f"{BLOCKS}/{block_id.hex()} is missing; a certificate makes it final"
            )
        return block, newest


async def _check_epoch(chain: ChainStore, block_id: BlockId, epoch: int) -> None:
    """Blocks must lead to an epoch so far ahead: nobody has looked at who signed this.

    Raises StorageFailed, before there is a row for each epoch below it.
    """
    if epoch <= len(chain.furthest) + EPOCHS_AHEAD:
        return
    async with aclosing(chain.path_down(block_id)) as path_down:
        async for block in path_down:
            if block.epoch not in (epoch, epoch - 1):
                name = f"{CERTIFICATES}/{final_name(block_id)}"
                raise StorageFailed(f"{name} is damaged: its block is of another epoch")
            epoch = block.epoch
            if epoch <= len(chain.furthest):
                return


def final_block_of(certificate: Certificate) -> BlockId:
    """What a finalization certificate makes final."""
    value = certificate.statement.value
    assert isinstance(value, bytes), "the decoder lets nothing else through"
    return BlockId(value)


async def _looked_at(chain: ChainStore) -> set[str]:
    """Names of certificates in files of their own that are good: as many as are looked at once."""
    good = set[str]()
    for name in await chain.store.record_names(CERTIFICATES, packed=False):
        if len(good) == LOOKED_AT_ONCE:
            break
        if key_of(CERTIFICATES, name) is None or name in chain.loose.rotten:
            continue  # somebody else has put it there, or it waits to be mended
        try:
            certificate = await _certificate_named(chain, name)
        except StorageFailed:
            chain.loose.damaged(name)
            continue
        with suppress(StorageFailed):  # it is noted
            if certificate and chain.loose.check(name, certificate):
                good.add(name)
    return good


async def _look_up(chain: ChainStore) -> None:
    tip_id = chain.final_tip[0].id
    if chain.path.newest == tip_id:
        return
    above, below = Descent(certified=chain.certified), None
    async with aclosing(chain.path_down(tip_id)) as path_down:
        async for block in path_down:
            if block in chain.path:
                below = block
                break
            above.add(block)
    chain.path.lead_on(below, above)


async def _height_of(chain: ChainStore, vertex_id: VertexId) -> int | None:
    vertex = await chain.vertex(vertex_id)
    return None if vertex is None else vertex.height


async def _certificate_named(chain: ChainStore, name: str) -> Certificate | None:
    if name.endswith(FINAL_SUFFIX):
        return await chain.final_certificate(BlockId(_id_in(CERTIFICATES, name, FINAL_SUFFIX)))
    return await chain.exec_certificate(VertexId(_id_in(CERTIFICATES, name, EXEC_SUFFIX)))


async def _certificate(
    chain: ChainStore, name: str, kind: Kind, certified: bytes
) -> Certificate | None:
    payload = await chain.store.get_record(CERTIFICATES, name)
    if payload is None:
        return None
    limits = chain.limits
    certificate = _decoded(f"{CERTIFICATES}/{name}", lambda: decode_certificate(payload, limits))
    value = certificate.statement.value
    thing = value[0] if isinstance(value, list) and value else value
    if certificate.statement.kind is not kind or thing != certified:
        raise StorageFailed(f"{CERTIFICATES}/{name} is damaged: it certifies something else")
    return certificate


def _id_in(kind: str, name: str, suffix: str = "") -> bytes:
    """Raises StorageFailed for a name that nothing of a chain has."""
    if key_of(kind, name) is None or not name.endswith(suffix):
        raise StorageFailed(f"{kind}/{name} does not belong there")
    return bytes.fromhex(name.removesuffix(suffix))


def _slot_of(certificate: Certificate) -> tuple[int, int]:
    return certificate.statement.domain.epoch, certificate.statement.view


def _decoded(name: str, decode: Callable[[], T]) -> T:
    # What our own disk hands back is nobody's fault but the disk's.
    try:
        return decode()
    except (DagError, ConsensusError) as fault:
        raise StorageFailed(f"{name} is damaged: {fault}") from fault


async def state_manifest(store: BlobStore, root: BlobRoot) -> Manifest | None:
    """Of a snapshot's weights, or of its momentum; None if it is not here. Raises StorageFailed."""
    payload = await store.get_record(MANIFESTS, root.hex())
    if payload is None:
        return None
    manifest = _decoded(f"{MANIFESTS}/{root.hex()}", lambda: decode_manifest(payload))
    if manifest.root != root:
        raise StorageFailed(f"{MANIFESTS}/{root.hex()} is damaged: it is another blob's")
    return manifest
