"""The certified chain of one node in its blob store: read it, add whole groups of files, repair it.

A write is a few groups of files (see layout). Before it starts, a durable note names the files that
it will add; then the files follow, what is referred to before what refers; then the note goes.
After a crash or a failed write the next one, or `open`, finishes the thought: a group whose last
file is there is kept, what there is of any other is removed. So the chain is always one that a
verifier accepts, and nothing certified is lost.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import trio

from daa_consensus.bft.messages import Block, Limits, decode_block, encode_block
from daa_consensus.errors import ConsensusError
from daa_consensus.votes import Certificate
from daa_dag.checkpoint import Vertex, decode_vertex
from daa_dag.chunking import Manifest, decode_manifest
from daa_dag.errors import DagError
from daa_dag.graph import CheckpointGraph
from daa_dag.ids import BlobRoot, BlockId, Digest, VertexId, digest_of
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    CHUNKS,
    DELTAS,
    MANIFESTS,
    NOTE,
    PUBLISHING,
    VERTICES,
    Group,
    decode_note,
    encode_note,
    exec_name,
    final_name,
)
from daa_node.errors import PeerFault, StorageFailed
from daa_node.identity.envelope import decode_certificate
from daa_node.seams import BlobStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Write:
    """One file on its way in: its name `kind/name`, and how to put it there, durably."""

    name: str
    put: Callable[[], Awaitable[None]]


class ChainStore:
    """One writer at a time, readers at any time. What is wrong with the disk is StorageFailed."""

    def __init__(self, store: BlobStore, work: BlobStore, limits: Limits) -> None:
        self.store = store
        self.work = work
        self.graph = CheckpointGraph()
        self._limits = limits
        self._writing = trio.Lock()
        self._noted = True  # a note may be there, from this process or one before it
        self._tip: tuple[Block, Certificate | None] | None = None

    async def open(self, genesis_vertex: Vertex, genesis_block: Block) -> None:
        """Repair what a crash left, make the genesis files if there are none, learn the tips."""
        await self.add(
            [
                [
                    self.record(BLOCKS, genesis_block.id.hex(), encode_block(genesis_block)),
                    self.record(VERTICES, genesis_vertex.vertex_id.hex(), genesis_vertex.encode()),
                ]
            ]
        )
        for name in await self.store.record_names(VERTICES):
            vertex = await self.vertex(VertexId(bytes.fromhex(name)))
            assert vertex is not None, "listed a moment ago, and nothing deletes vertices"
            self.graph.add(vertex)
        self._tip = await self._find_tip(genesis_block)

    # Reading

    @property
    def final_tip(self) -> tuple[Block, Certificate | None]:
        """The newest final block, and its certificate unless it is the genesis block."""
        assert self._tip is not None, "open() comes first"
        return self._tip

    async def newest(self) -> Vertex:
        """The highest vertex held."""
        vertex = await self.vertex(self.graph.tips()[0])
        assert vertex is not None, "the graph lists what is held"
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
        payload = await self.store.get_record(BLOCKS, name)
        if payload is None:
            return None
        block = _decoded(f"{BLOCKS}/{name}", lambda: decode_block(payload, self._limits))
        if block.id != block_id:
            raise StorageFailed(f"{BLOCKS}/{name} is damaged: it is another block")
        return block

    async def exec_certificate(self, vertex_id: VertexId) -> Certificate | None:
        certificate = await self._certificate(exec_name(vertex_id))
        value = None if certificate is None else certificate.statement.value
        if certificate is not None and not (isinstance(value, list) and value[0] == vertex_id):
            raise StorageFailed(f"{CERTIFICATES}/{exec_name(vertex_id)} certifies something else")
        return certificate

    async def final_certificate(self, block_id: BlockId) -> Certificate | None:
        certificate = await self._certificate(final_name(block_id))
        if certificate is not None and certificate.statement.value != block_id:
            raise StorageFailed(f"{CERTIFICATES}/{final_name(block_id)} certifies something else")
        return certificate

    async def path_down(self, block_id: BlockId) -> AsyncIterator[Block]:
        """The block and its ancestors down to the genesis block, newest first."""
        while True:
            block = await self.block(block_id)
            if block is None:
                raise StorageFailed(f"{BLOCKS}/{block_id.hex()} is missing")
            yield block
            if block.view == 0:
                return
            block_id = block.parent_id

    async def snapshot(self, vertex: Vertex) -> tuple[Manifest, Manifest] | None:
        """Manifests of the snapshot's weights and momentum; None if this vertex has none here."""
        weights = await self._manifest(vertex.model_root)
        momentum = await self._manifest(vertex.outer_state_root)
        return None if weights is None or momentum is None else (weights, momentum)

    async def chunk(self, digest: Digest) -> bytes:
        """A snapshot's chunk, verified."""
        payload = await self.store.get_record(CHUNKS, digest.hex())
        if payload is None or digest_of(payload) != digest:
            state = "missing" if payload is None else "damaged"
            raise StorageFailed(f"{CHUNKS}/{digest.hex()} is {state}")
        return payload

    # Writing

    def record(self, kind: str, name: str, payload: bytes) -> Write:
        """A durable write of a small record."""
        return Write(f"{kind}/{name}", lambda: self.store.put_record(kind, name, payload))

    async def add(self, groups: Sequence[Sequence[Write]]) -> None:
        """Add the files that are not there yet, group by group, each in the given order."""
        async with self._writing:
            await self._finish_last_write()
            new = await self._absent(groups)
            if not new:
                return
            await self._take_note([Group("add", tuple(w.name for w in group)) for group in new])
            for group in new:
                for write in group:
                    await write.put()
            await self._discard_note()

    async def drop(self, names: Sequence[str]) -> None:
        """Delete these files; what is interrupted here is finished by the next write or `open`."""
        async with self._writing:
            await self._finish_last_write()
            if not names:
                return
            await self._take_note([Group("drop", tuple(names))])
            for name in names:
                await self._delete(name)
            await self._discard_note()

    def advance(self, block: Block, certificate: Certificate) -> None:
        """`block`, stored with its certificate, is final."""
        if block.view > self.final_tip[0].view:
            self._tip = (block, certificate)

    async def _absent(self, groups: Sequence[Sequence[Write]]) -> list[list[Write]]:
        listed: dict[str, set[str]] = {}
        absent = []
        for group in groups:
            new = []
            for write in group:
                kind, _, rest = write.name.partition("/")
                if kind not in listed:
                    listed[kind] = set(await self._names(kind))
                if rest not in listed[kind]:
                    new.append(write)
            if new:
                absent.append(new)
        return absent

    async def _names(self, kind: str) -> list[str]:
        if kind == DELTAS:
            return [root.hex() for root in await self.store.blob_roots(DELTAS)]
        return await self.store.record_names(kind)

    async def _take_note(self, groups: list[Group]) -> None:
        self._noted = True
        await self.work.put_record(PUBLISHING, NOTE, encode_note(groups))

    async def _discard_note(self) -> None:
        await self.work.delete_record(PUBLISHING, NOTE)
        self._noted = False

    async def _finish_last_write(self) -> None:
        if not self._noted:
            return
        payload = await self.work.get_record(PUBLISHING, NOTE)
        groups = (
            []
            if payload is None
            else _decoded(f"work/{PUBLISHING}/{NOTE}", lambda: decode_note(payload))
        )
        for group in groups:
            kind, _, rest = group.names[-1].partition("/")
            if group.verb == "add" and rest in await self._names(kind):
                continue  # written last: the group is whole
            for name in group.names:
                await self._delete(name)
        await self._discard_note()

    async def _delete(self, name: str) -> None:
        kind, _, rest = name.partition("/")
        if kind == DELTAS:
            await self.store.delete_blob(DELTAS, BlobRoot(bytes.fromhex(rest)))
        else:
            await self.store.delete_record(kind, rest)

    async def _find_tip(self, genesis_block: Block) -> tuple[Block, Certificate | None]:
        newest: Certificate | None = None
        for name in await self.store.record_names(CERTIFICATES):
            if not name.endswith(".final"):
                continue
            certificate = await self._certificate(name)
            assert certificate is not None, "listed a moment ago, and nothing deletes certificates"
            if newest is None or certificate.statement.view > newest.statement.view:
                newest = certificate
        if newest is None:
            return genesis_block, None
        block_id = newest.statement.value
        assert isinstance(block_id, bytes), "the decoder lets nothing else through"
        block = await self.block(BlockId(block_id))
        if block is None:
            raise StorageFailed(
                f"{BLOCKS}/{block_id.hex()} is missing; a certificate makes it final"
            )
        return block, newest

    async def _certificate(self, name: str) -> Certificate | None:
        payload = await self.store.get_record(CERTIFICATES, name)
        if payload is None:
            return None
        n = self._limits.validators
        return _decoded(f"{CERTIFICATES}/{name}", lambda: decode_certificate(payload, n))

    async def _manifest(self, root: BlobRoot) -> Manifest | None:
        payload = await self.store.get_record(MANIFESTS, root.hex())
        if payload is None:
            return None
        manifest = _decoded(f"{MANIFESTS}/{root.hex()}", lambda: decode_manifest(payload))
        if manifest.root != root:
            raise StorageFailed(f"{MANIFESTS}/{root.hex()} is damaged: it is another blob's")
        return manifest


def _decoded(name: str, decode: Callable[[], T]) -> T:
    # What our own disk hands back is nobody's fault but the disk's.
    try:
        return decode()
    except (DagError, ConsensusError, PeerFault) as fault:
        raise StorageFailed(f"{name} is damaged: {fault}") from fault
