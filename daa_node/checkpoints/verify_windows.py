"""A chain verified in windows of some epochs, in memory that does not grow with it.

    listed   names are counted, and the newest finalization is looked for
    path     from its block down to the genesis block; ids go into a file (see chain_index)
    windows  from the genesis block up, some epochs at a time, by the judges of `certified`
    states   each snapshot's chunks, and every delta replayed to its roots
    packs    no byte but whole records, and an index of them
    counted  as many files of each kind as belong to the chain

It says yes to a chain that is whole and at rest, and nothing else: at the first thing that it does
not expect it gives up, and `verify` holds everything in memory to name what is wrong.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    ResultPayload,
    decode_block,
    decode_certificate,
    genesis_block,
)
from daa_consensus.errors import ConsensusError
from daa_consensus.votes import Kind
from daa_dag.checkpoint import VERTEX_BYTES_MAX, Vertex, decode_vertex
from daa_dag.chunking import MANIFEST_BYTES_MAX, Manifest, decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, BlockId, NodeId, VertexId, digest_of
from daa_node.checkpoints.certified import Judge
from daa_node.checkpoints.chain_index import ChainIndex, Step
from daa_node.checkpoints.contents import ChainFacts, Start, read_contents
from daa_node.checkpoints.files import ChainFiles, Listing
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    CHUNKS,
    DELTAS,
    FINAL_SUFFIX,
    MANIFESTS,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.plain_files import Problem, Unreadable
from daa_node.checkpoints.replay import ReplayedState, delta_bytes_max
from daa_node.errors import PeerFault
from daa_node.seams import StateRef

WINDOW_BLOCKS = 256  # at least, and up to the end of their epoch: a megabyte or two

EXECS, FINALS = "execs", "finals"  # of certificates, as they are counted


class _NotPlain(Exception):
    """This is for somebody else to name."""


class Windows:
    """One pass over `files`; `on_total` is told how many bytes there are."""

    def __init__(
        self, files: ChainFiles, facts: ChainFacts, on_total: Callable[[int], None]
    ) -> None:
        self._files = files
        self._facts = facts
        self._on_total = on_total
        self._validators = facts.validators()
        self._asked: dict[NodeId, bytes] = {}
        self._there: Counter[str] = Counter()
        self._belongs: Counter[str] = Counter()
        self.newest = facts.first_vertex
        self.replayed_from = 0
        self.light = 0  # vertices that a certificate of their epoch proves, and no other
        self.delta_chunks = 0

    def run(self, trusted: VertexId | None) -> bool:
        """Whether all is well, and this vertex, if one is given, is one of the chain."""
        try:
            with TemporaryDirectory(prefix="daa-verify-") as folder:
                index = ChainIndex(Path(folder) / "index")
                try:
                    self._check(index, trusted)
                finally:
                    index.close()
        except (_NotPlain, Unreadable, DagError, ConsensusError, PeerFault):
            return False
        except (OSError, sqlite3.Error):
            return False  # no room for the index, or a listing that fails
        return True

    @property
    def certificates(self) -> int:
        """How many were verified."""
        return self._belongs[EXECS] + self._belongs[FINALS]

    @property
    def chunks(self) -> int:
        """How many were verified, of snapshots and of deltas."""
        return self._belongs[CHUNKS] + self.delta_chunks

    def _check(self, index: ChainIndex, trusted: VertexId | None) -> None:
        tip_id = self._list(index)
        genesis = genesis_block(self._facts.chain_id, self.newest.vertex_id)
        self._check_first(genesis)
        index.add_vertex(self.newest, False, self._has_snapshot(self.newest))
        self._find_path(index, tip_id, genesis)
        below = genesis
        for window in self._windows(index):
            below = self._check_window(index, below, window)
        _expect(trusted is None or index.has_vertex(trusted))
        self._check_states(index)
        _expect(not any(self._files.pack_faults()))
        self._belongs.update(index.used())
        _expect(+self._there == +self._belongs)

    def _list(self, index: ChainIndex) -> BlockId | None:
        """The block of the newest finalization; None if there is none."""
        newest, tip_id, size_bytes = (-1, -1), None, 0
        limits = self._facts.limits
        for name, size in self._files.plain_names():
            size_bytes += size
            kind, _, rest = name.partition("/")
            if kind == CERTIFICATES:
                kind = FINALS if rest.endswith(FINAL_SUFFIX) else EXECS
            self._there[kind] += 1
            if kind != FINALS:
                continue
            payload = self._files.read(name, limits.certificate_bytes_max, again=True)
            statement = decode_certificate(payload, limits).statement
            _expect(statement.kind is Kind.FINALIZE and isinstance(statement.value, bytes))
            block_id = BlockId(bytes.fromhex(rest.removesuffix(FINAL_SUFFIX)))
            _expect(statement.value == block_id)
            index.add_final(block_id, statement.domain.epoch)
            slot = (statement.domain.epoch, statement.view)
            if slot > newest:
                newest, tip_id = slot, block_id
        index.index_epochs()
        self._on_total(size_bytes + self._files.packs_bytes)
        return tip_id

    def _check_first(self, genesis: Block) -> None:
        name = f"{VERTICES}/{self.newest.vertex_id.hex()}"
        _expect(decode_vertex(self._files.read(name, VERTEX_BYTES_MAX)) == self.newest)
        _expect(self._block(genesis.id) == genesis)
        self._files.read(f"{BLOCKS}/{genesis.id.hex()}", self._facts.limits.block_bytes_max)
        self._belongs.update((VERTICES, BLOCKS))

    def _find_path(self, index: ChainIndex, tip_id: BlockId | None, genesis: Block) -> None:
        while tip_id is not None and tip_id != genesis.id:
            index.add_below(tip_id)
            block = self._block(tip_id)
            _expect(block.view > 0)
            tip_id = block.parent_id

    def _windows(self, index: ChainIndex) -> Iterator[list[Block]]:
        """Blocks of the path; each window but the last ends with the proof of an epoch's end."""
        window: list[Block] = []
        is_full = False
        for block_id in index.path_up():
            block = self._block(block_id)
            if is_full and not (
                isinstance(block.payload, EmptyPayload) and block.epoch == window[-1].epoch
            ):
                yield window
                window, is_full = [], False
            window.append(block)
            if len(window) >= WINDOW_BLOCKS and self._ends_epoch(block):
                # else the next epoch proves this one, too, and judges it with it
                beside = index.beside_path(block.epoch, block.epoch)
                is_full = is_full or index.has_final(block.id) or bool(beside)
        if window:
            yield window

    def _ends_epoch(self, block: Block) -> bool:
        closes = isinstance(block.payload, ResultPayload | AbortPayload)
        return closes and block.height % self._facts.epoch_rounds == 0

    def _check_window(self, index: ChainIndex, below: Block, path: list[Block]) -> Block:
        """What the next window stands on."""
        blocks = {block.id: block for block in path}
        for block_id in index.beside_path(path[0].epoch, path[-1].epoch):
            while block_id not in blocks:  # empty blocks that carry the proof of an epoch's end
                blocks[block_id] = block = self._block(block_id)
                _expect(isinstance(block.payload, EmptyPayload))
                block_id = block.parent_id
        results = [b.payload.vertex_id for b in path if isinstance(b.payload, ResultPayload)]
        finals = [block_id for block_id in blocks if index.has_final(block_id)]
        proofs = [f"{CERTIFICATES}/{exec_name(vertex_id)}" for vertex_id in results]
        proofs_here = [name for name in proofs if self._files.has(name)]  # of light epochs none
        names = {
            *(f"{BLOCKS}/{block_id.hex()}" for block_id in blocks),
            *(f"{CERTIFICATES}/{final_name(block_id)}" for block_id in finals),
            *proofs_here,
            *(f"{VERTICES}/{vertex_id.hex()}" for vertex_id in results),
        }
        listing = Listing(dict.fromkeys(names, 0), (), frozenset(), frozenset())
        problems: list[Problem] = []
        start = Start(below, self._validators)
        contents = read_contents(self._files, listing, self._facts, problems, start)
        judge = Judge(self._facts, listing, contents, problems, self._asked)
        chain = judge.check_results(self.newest, judge.check_headers(below))
        _expect(not problems and not judge.promised and len(chain) == len(results) + 1)
        _expect(names <= judge.used)
        self._asked = judge.asked
        self.light += len(judge.light)
        counts = (len(blocks), len(finals), len(proofs_here), len(results))
        self._belongs.update(dict(zip((BLOCKS, FINALS, EXECS, VERTICES), counts, strict=True)))
        for vertex in chain[1:]:
            has_delta = self._files.has(f"{DELTAS}/{vertex.delta_root.hex()}")
            index.add_vertex(vertex, has_delta, self._has_snapshot(vertex))
        self.newest = chain[-1]
        return next((b for b in reversed(path) if self._ends_epoch(b)), below)

    def _block(self, block_id: BlockId) -> Block:
        """As it is, to be judged with its window."""
        limits = self._facts.limits
        name = f"{BLOCKS}/{block_id.hex()}"
        payload = self._files.read(name, limits.block_bytes_max, again=True)
        block = decode_block(payload, limits)
        _expect(block.id == block_id)
        return block

    # States

    def _has_snapshot(self, vertex: Vertex) -> bool:
        roots = (vertex.model_root, vertex.outer_state_root)
        return all(self._files.has(f"{MANIFESTS}/{root.hex()}") for root in roots)

    def _check_states(self, index: ChainIndex) -> None:
        floor = index.floor()
        _expect(floor is not None)
        self.replayed_from = start = floor or 0
        state: ReplayedState | None = None
        for step in index.steps():
            if step.has_snapshot:
                self._check_snapshot(index, step)
            if step.height == start:
                state = self._first_state(step)
            elif step.height > start:
                assert state is not None
                state.apply(self._delta(index, step))
                _expect(state.ref() == StateRef(step.model_root, step.outer_root))
        for step in index.steps():  # half a snapshot is part of another one, or a problem
            if not step.has_snapshot:
                for root in (step.model_root, step.outer_root):
                    name = f"{MANIFESTS}/{root.hex()}"
                    _expect(index.uses(name) or not self._files.has(name))

    def _first_state(self, step: Step) -> ReplayedState:
        """The genesis weights, or a snapshot: the first of a pruned chain, or one from a file."""
        state = ReplayedState(self._facts.states)
        if step.height == 0 and self._facts.states.first_root is None:
            state.start()
            return state
        _expect(step.has_snapshot)
        state.load(self._chunks(step.model_root), self._chunks(step.outer_root))
        return state

    def _check_snapshot(self, index: ChainIndex, step: Step) -> None:
        for root in (step.model_root, step.outer_root):
            manifest_name = f"{MANIFESTS}/{root.hex()}"
            if index.use(MANIFESTS, manifest_name) is not None:
                continue
            manifest = self._manifest(root, again=False)
            _expect(list(manifest.sizes) == self._facts.states.chunk_sizes)
            for size, digest in zip(manifest.sizes, manifest.digests, strict=True):
                name = f"{CHUNKS}/{digest.hex()}"
                known = index.use(CHUNKS, name, size)
                _expect(known is None or known == size)
                if known is None:
                    chunk = self._files.read(name, size)
                    _expect(len(chunk) == size and digest_of(chunk) == digest)

    def _chunks(self, root: BlobRoot) -> Iterator[bytes]:
        """A state's bytes."""
        manifest = self._manifest(root, again=True)
        for size, digest in zip(manifest.sizes, manifest.digests, strict=True):
            chunk = self._files.read(f"{CHUNKS}/{digest.hex()}", size, again=True)
            _expect(len(chunk) == size and digest_of(chunk) == digest)
            yield chunk

    def _delta(self, index: ChainIndex, step: Step) -> bytes:
        """Every chunk checked."""
        name = f"{DELTAS}/{step.delta_root.hex()}"
        again = index.use(DELTAS, name) is not None
        index.use(MANIFESTS, f"{MANIFESTS}/{step.delta_root.hex()}")
        manifest = self._manifest(step.delta_root, again)
        payload = self._files.read(name, delta_bytes_max(self._facts.states), again)
        _expect(len(payload) == manifest.size_bytes)
        for at, size, digest in zip(
            manifest.offsets, manifest.sizes, manifest.digests, strict=True
        ):
            _expect(digest_of(memoryview(payload)[at : at + size]) == digest)
        self.delta_chunks += len(manifest.digests)
        return payload

    def _manifest(self, root: BlobRoot, again: bool) -> Manifest:
        name = f"{MANIFESTS}/{root.hex()}"
        manifest = decode_manifest(self._files.read(name, MANIFEST_BYTES_MAX, again))
        _expect(manifest.root == root)
        return manifest


def _expect(holds: bool) -> None:
    if not holds:
        raise _NotPlain
