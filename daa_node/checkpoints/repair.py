"""What the daily reading has found damaged or lost, fetched anew from whoever holds it.

    named --asked of one member after the other--> judged as any reader judges it --> put in place

A record, or a few chunks, are in memory at a time, and the next one waits until as much might have
been read: so a disk that loses much is mended slowly, and nobody notices. A liar's answer is
refused and held against it, and the next member is asked. Nothing here is trusted: a good record is
one that the chain itself names.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

import trio

from daa_consensus.bft.messages import (
    Block,
    ResultPayload,
    encode_block,
    encode_certificate,
)
from daa_dag import canonical
from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, BlockId, NodeId, VertexId
from daa_node.checkpoints import records
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import CHUNKS, DELTAS, KINDS, MANIFESTS, PROOFS
from daa_node.checkpoints.publish import copy_blob
from daa_node.errors import PeerFault, StorageFailed, Unavailable
from daa_node.identity.validators import Validators
from daa_node.network.blob_exchange import OpenWriter, Want
from daa_node.network.blob_server import SNAPSHOTS

ASKED_MAX = 32  # members, for one record: a third of them may be gone, or lie, and some hold it
FETCH_S_MAX = 3600.0  # for a large delta over a slow link; the next pass takes up what has come
REPAIRS = "repairs"  # a kind of the work store: blobs on their way


@dataclass(frozen=True, slots=True)
class Lenders:
    """The other members, as far as repair needs them."""

    members: Callable[[], Sequence[NodeId]]  # within reach, in the order in which to ask
    # The answer to a request of a member, by its name. Raises Unavailable and PeerFault.
    ask: Callable[[NodeId, str, bytes, int], Awaitable[bytes]]
    # A blob out of theirs, some of whom say that they hold it; raises as BlobFetcher.fetch.
    fetch: Callable[[Want, OpenWriter, float, Collection[NodeId]], Awaitable[Manifest]]
    fault: Callable[[NodeId, PeerFault], None]
    validators: Validators  # of all epochs up to now
    delta_bytes_max: int
    state_bytes: int  # of a state's weights, and of its momentum


class Repair:
    """Of one chain. Each verb says whether a good one is in its place; raises StorageFailed."""

    def __init__(self, chain: ChainStore, lenders: Lenders) -> None:
        self._chain = chain
        self._lenders = lenders
        self._proofs_came = self._states_came = False
        self._turn = 0  # where among the members the next record is asked for

    async def block(self, block_id: BlockId) -> Block | None:
        """Mended, and here; None if nobody has it."""
        limits, name = self._lenders.validators.limits, records.name_of_block(block_id)
        found: list[Block] = []

        def judge(payload: bytes) -> bytes:
            found[:] = [records.opened_block(payload, block_id, limits)]
            return encode_block(found[0])

        return found[0] if await self._record(name, judge) else None

    async def vertex(self, vertex_id: VertexId) -> bool:
        name = records.name_of_vertex(vertex_id)
        return await self._record(
            name, lambda payload: records.opened_vertex(payload, vertex_id).encode()
        )

    async def final(self, block: Block) -> bool:
        """The finalization of a block."""

        def judge(payload: bytes) -> bytes:
            proof = records.opened_final(payload, block, self._lenders.validators)
            return encode_certificate(proof)

        def note() -> None:
            # It lies in a file of its own now: packing waits for whoever does not say so.
            self._chain.certified.add(block.id)

        name = records.name_of_final(block.id)
        return await self._record(name, judge, note, self._not_let_go(name, block.epoch))

    async def execution(self, result: ResultPayload, epoch: int) -> bool:
        """The execution certificate of a vertex."""

        def judge(payload: bytes) -> bytes:
            validators = self._lenders.validators
            return encode_certificate(records.opened_exec(payload, result, epoch, validators))

        name = records.name_of_exec(result.vertex_id)
        return await self._record(name, judge, is_wanted=self._not_let_go(name, epoch))

    def _not_let_go(self, name: str, epoch: int) -> Callable[[], Awaitable[bool]]:
        """Whether a certificate did not go since now, with the others of its epoch.

        Come again by itself, it would say that the others are lost.
        """
        chain, (kind, _, rest) = self._chain, name.partition("/")
        was_light = epoch < chain.path.light_below

        async def is_wanted() -> bool:
            is_light = epoch < chain.path.light_below
            return is_light == was_light or await chain.store.has_record(kind, rest)

        return is_wanted

    async def delta(self, root: BlobRoot, is_wanted: Callable[[], Awaitable[bool]]) -> bool:
        """An agreed aggregate with its manifest; `is_wanted`: it was not let go meanwhile."""
        chain, work = self._chain, self._chain.work
        want = Want(DELTAS, root, self._lenders.delta_bytes_max)
        manifest = await self._fetched(want, lambda found: work.begin_blob(REPAIRS, found))
        if manifest is None:
            return False

        async def put() -> None:
            await copy_blob(work, REPAIRS, chain.store, DELTAS, manifest, anew=True)

        is_good = await is_wanted()
        if is_good:
            await chain.groups.put_anew(put)
            self._states_came = True
        await work.delete_blob(REPAIRS, root)
        return is_good

    async def manifest(self, root: BlobRoot) -> bool:
        """That of a snapshot's weights or momentum."""
        want = Want(SNAPSHOTS, root, self._lenders.state_bytes)
        found = await self._fetched(want, lambda _found: _writer(self._chain, want, ()))
        if found is None:
            return False
        is_good = await self._chain.groups.put_record_anew(
            MANIFESTS, root.hex(), found.encode(), _not_let_go_of(self._chain, root)
        )
        self._states_came = self._states_came or is_good
        return is_good

    async def chunks(self, manifest: Manifest, indices: Sequence[int]) -> bool:
        """These pieces of a snapshot."""
        want = Want(SNAPSHOTS, manifest.root, manifest.size_bytes, manifest=manifest)
        found = await self._fetched(want, lambda _found: _writer(self._chain, want, indices))
        self._states_came = True  # some may have, even where others did not
        return found is not None

    async def settle(self) -> None:
        """Once a pass: packs lose what was damaged, and a start knows what lies here."""
        for root in await self._chain.work.blob_roots(REPAIRS):  # of a process that was killed
            await self._chain.work.delete_blob(REPAIRS, root)
        if self._proofs_came or self._states_came:
            await self._chain.groups.purge(KINDS if self._states_came else PROOFS)
        if self._proofs_came:
            await self._chain.pack(PROOFS, 1)
        self._proofs_came = self._states_came = False

    async def _record(
        self,
        name: str,
        judge: Callable[[bytes], bytes],
        note: Callable[[], None] | None = None,
        is_wanted: Callable[[], Awaitable[bool]] | None = None,
    ) -> bool:
        """Ask one member after the other for what `judge` takes: it gives the bytes to keep."""
        kind, _, rest = name.partition("/")
        lenders = self._lenders
        body = canonical.encode([kind, rest])
        bytes_max = records.answer_bytes_max(lenders.validators.limits)
        members = lenders.members()
        turn = self._turn % max(1, len(members))
        in_turn = [*members[turn:], *members[:turn]][:ASKED_MAX]
        for place, node in enumerate(in_turn, turn):
            # Whoever had one has the next one, too; where none of these has it, others are asked.
            self._turn = place
            try:
                payload = await lenders.ask(node, records.REQUEST, body, bytes_max)
                good = judge(payload) if payload else b""
            except Unavailable:
                continue
            except PeerFault as fault:
                lenders.fault(node, fault)
                continue
            if good:
                if note is not None:
                    note()
                if not await self._chain.groups.put_record_anew(kind, rest, good, is_wanted):
                    return False
                self._proofs_came = True
                return True
        self._turn += 1
        return False

    async def _fetched(self, want: Want, open_writer: OpenWriter) -> Manifest | None:
        try:
            return await self._lenders.fetch(want, open_writer, FETCH_S_MAX, ())
        except (Unavailable, PeerFault):  # nobody has it, or all that was shown is too large
            return None


def _not_let_go_of(chain: ChainStore, root: BlobRoot) -> Callable[[], Awaitable[bool]]:
    """Whether a state of this root is still kept."""
    return lambda: chain.store.has_record(MANIFESTS, root.hex())


async def _writer(chain: ChainStore, want: Want, indices: Sequence[int]) -> "_Pieces":
    return _Pieces(chain, want, indices)


class _Pieces:
    """A BlobWriter for some pieces of a snapshot, which are put into the chain one by one."""

    def __init__(self, chain: ChainStore, want: Want, indices: Sequence[int]) -> None:
        self._chain = chain
        self._manifest = want.manifest
        self._missing = list(indices)

    def missing(self) -> list[int]:
        return list(self._missing)

    async def write_chunk(self, index: int, payload: bytes) -> None:
        await self.write_chunks([(index, payload)])

    async def write_chunks(self, chunks: Sequence[tuple[int, bytes | memoryview]]) -> None:
        for index, payload in chunks:
            assert self._manifest is not None, "nothing is missing without it"
            is_wanted = _not_let_go_of(self._chain, self._manifest.root)
            name = self._manifest.digests[index].hex()
            await self._chain.groups.put_record_anew(CHUNKS, name, bytes(payload), is_wanted)
            self._missing.remove(index)

    async def read_into(self, indices: Sequence[int], target: memoryview) -> None:
        """Raises StorageFailed: whoever wants a piece from us asks for the whole, as ever."""
        await trio.lowlevel.checkpoint()
        raise StorageFailed("it lies in the chain")

    async def commit(self, durable: bool = True) -> None:
        """Each piece is durable already."""
