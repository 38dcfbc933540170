"""Check every file of a chain, trusting nothing but the genesis and its validator set.

    contents     each file by itself: names, canonical bytes, digests, every signature
    headers      one final chain of blocks from the genesis block
    results      each vertex is the one that its final set and execution make
    snapshots    whole, and of a vertex
    replay       genesis weights, or the snapshot that a pruned chain starts with, to every root
    leftovers    what nothing refers to does not belong

Every byte of every file is covered by a digest or a signature that leads back to the genesis, so
one changed byte is always named. Needs no torch and no network; holds one state, 8 bytes a
parameter.

A result that is final but whose vertex has not been stored yet is no problem at the end of a chain:
that node is behind. Files that a publishing note names may lie there unreferenced, but whole.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from daa_consensus.bft.messages import Block, SetPayload, genesis_block
from daa_consensus.errors import ConsensusError
from daa_dag.checkpoint import Vertex, result_root
from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, BlockId, VertexId, digest_of
from daa_node.checkpoints.contents import ChainFacts, Contents, read_contents
from daa_node.checkpoints.files import ChainFiles, Listing, Problem, Unreadable
from daa_node.checkpoints.headers import Outcome, judge_headers
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    CHUNKS,
    DELTAS,
    MANIFESTS,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.publish import genesis_vertex, vertex_of
from daa_node.checkpoints.replay import ReplayedState, delta_size_bytes
from daa_node.errors import PeerFault
from daa_node.seams import StateRef, SteppedState

Progress = Callable[[int, int], None]  # bytes read so far, bytes in all


@dataclass(slots=True)
class Report:
    """What was checked. Problems name files by their path in the chain directory."""

    heights: int = 0  # of the highest vertex that holds
    vertices: int = 0
    certificates: int = 0
    chunks: int = 0
    bytes_read: int = 0
    unfinished: int = 0  # files of a write under way: whole, and not yet part of the chain
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


def verify_chain(
    directory: Path, facts: ChainFacts, on_progress: Progress = lambda done, total: None
) -> Report:
    """Check the chain in `directory`, a node's chain/. Blocking; takes no lock."""
    return _Verifier(directory, facts, on_progress).run()


class _Verifier:
    """One pass over one directory; the steps run in the order of the module's table."""

    def __init__(self, directory: Path, facts: ChainFacts, on_progress: Progress) -> None:
        self._facts = facts
        self._on_progress = on_progress
        self._files = ChainFiles(directory, self._count)
        self._listing = Listing({}, (), frozenset(), frozenset())
        self._size_bytes = 0
        self._contents = Contents()
        self._placed: list[Vertex] = []  # named by a final result, whether they hold or not
        self._report = Report()
        self._used: set[str] = set()  # names that the certified chain refers to

    def run(self) -> Report:
        report = self._report
        self._listing = self._files.listing()
        self._size_bytes = sum(self._listing.sizes.values())
        report.problems += self._listing.strange
        state = ReplayedState(self._facts.states)
        state.start()
        first = genesis_vertex(state.ref(), self._facts.committee.root)
        genesis = genesis_block(self._facts.chain_id, first.vertex_id)
        self._contents = read_contents(self._files, self._listing, self._facts, report.problems)
        report.certificates = len(self._contents.execs) + len(self._contents.finals)
        report.chunks = len(self._contents.chunk_sizes)
        outcomes = self._check_headers(genesis)
        chain = self._check_results(first, outcomes)
        report.vertices, report.heights = len(chain), chain[-1].height
        self._check_snapshots(first)
        self._replay(chain, state)
        self._check_leftovers()
        report.problems = sorted(set(report.problems), key=lambda p: (p.where, p.what))
        return report

    def _count(self, size_bytes: int) -> None:
        self._report.bytes_read += size_bytes
        self._on_progress(self._report.bytes_read, self._size_bytes)

    def _wrong(self, where: str, what: str) -> None:
        self._report.problems.append(Problem(what, where))

    def _need(self, name: str, why: str) -> None:
        """`name` belongs to the chain; a missing file is a problem, a damaged one was named."""
        self._used.add(name)
        if name not in self._listing.sizes:
            self._wrong(name, f"is missing: {why}")

    # Headers

    def _check_headers(self, genesis: Block) -> list[Outcome]:
        contents = self._contents
        self._need(f"{BLOCKS}/{genesis.id.hex()}", "the genesis block")
        certified = set()
        for block_id, certificate in contents.finals.items():
            name, statement = f"{CERTIFICATES}/{final_name(block_id)}", certificate.statement
            self._used.add(name)
            self._need(f"{BLOCKS}/{block_id.hex()}", f"{name} makes it final")
            block = contents.blocks.get(block_id)
            if block is None:
                continue
            said = (statement.domain.epoch, statement.view, statement.height)
            if said != (block.epoch, block.view, block.height):
                self._wrong(name, "names another epoch, view or height than its block has")
            else:
                certified.add(block_id)
        damaged = {
            BlockId(bytes.fromhex(name.partition("/")[2])) for name in self._listing.names(BLOCKS)
        } - contents.blocks.keys()
        judged = judge_headers(
            contents.blocks, certified, damaged, genesis, self._facts.epoch_rounds
        )
        self._report.problems += judged.problems
        self._used |= {f"{BLOCKS}/{block_id.hex()}" for block_id in judged.final}
        return judged.outcomes

    # Results

    def _check_results(self, first: Vertex, outcomes: list[Outcome]) -> list[Vertex]:
        """The vertices that hold, from height 0 up, as far as they stand on each other."""
        contents, chain = self._contents, [first]
        self._need(f"{VERTICES}/{first.vertex_id.hex()}", "the genesis vertex")
        stored = [self._is_stored(outcome.result.vertex_id) for outcome in outcomes]
        while stored and not stored[-1]:  # results whose vertices this node has not made yet
            stored.pop()
        unbroken = True
        for outcome in outcomes[: len(stored)]:
            vertex_id = outcome.result.vertex_id
            vertex_name = f"{VERTICES}/{vertex_id.hex()}"
            block_name = f"{BLOCKS}/{outcome.block.id.hex()}"
            self._need(vertex_name, f"{block_name} makes it final")
            self._need(f"{CERTIFICATES}/{exec_name(vertex_id)}", f"nothing certifies {vertex_name}")
            vertex = contents.vertices.get(vertex_id)
            if vertex is None:
                unbroken = False
                continue
            self._placed.append(vertex)
            self._used.add(f"{DELTAS}/{vertex.delta_root.hex()}")
            self._check_execution(vertex, outcome)
            if not unbroken:
                continue
            wrong = self._misfit(chain[-1], vertex, outcome)
            if wrong is None:
                chain.append(vertex)
            else:
                self._wrong(vertex_name, wrong)
                unbroken = False
        return chain

    def _is_stored(self, vertex_id: VertexId) -> bool:
        names = {f"{VERTICES}/{vertex_id.hex()}", f"{CERTIFICATES}/{exec_name(vertex_id)}"}
        # While they arrive they prove nothing: what they stand on may not have come yet.
        return bool((names & self._listing.sizes.keys()) - self._listing.arriving)

    def _check_execution(self, vertex: Vertex, outcome: Outcome) -> None:
        root = result_root(vertex.model_root, vertex.outer_state_root, vertex.delta_root)
        if outcome.result.result_root != root:
            self._wrong(
                f"{BLOCKS}/{outcome.block.id.hex()}", "names other roots than its vertex has"
            )
        certificate = self._contents.execs.get(vertex.vertex_id)
        if certificate is None:
            return  # missing or damaged: named already
        statement = certificate.statement
        name = f"{CERTIFICATES}/{exec_name(vertex.vertex_id)}"
        if statement.value != [vertex.vertex_id, root]:
            self._wrong(name, "certifies other roots than its vertex has")
        epoch = None if outcome.set_block is None else outcome.set_block.epoch
        if statement.height != outcome.result.round or epoch not in (None, statement.domain.epoch):
            self._wrong(name, "certifies another round or epoch than the one that ended so")

    def _misfit(self, parent: Vertex, vertex: Vertex, outcome: Outcome) -> str | None:
        """Why this is not the vertex that the final set makes on top of `parent`."""
        set_block = outcome.set_block
        if set_block is None:
            return "cannot be placed: the block of its set is missing or damaged"
        payload = set_block.payload
        assert isinstance(payload, SetPayload)
        if (payload.rule, payload.f_agg) != (self._facts.rule, self._facts.f_agg):
            return f"was merged by {payload.rule} with f {payload.f_agg}, not by the genesis' rule"
        authors = {offer.author for offer in payload.offers}
        validators = self._contents.validators
        may_contribute = set(validators.contributors(set_block.epoch)) - set(parent.excluded)
        if not authors <= may_contribute:
            return "its set has an author who may not contribute"
        if any(offer.base_vertex_id != parent.vertex_id for offer in payload.offers):
            return "its set has a contribution on another base"
        state = StateRef(vertex.model_root, vertex.outer_state_root)
        stepped = SteppedState(state, vertex.delta_root)
        try:
            root = validators.domain(set_block.epoch).validator_set_root
            expected = vertex_of(parent, set_block, stepped, self._facts.limits, root)
        except ConsensusError as fault:
            return f"its set carries bad evidence: {fault}"
        if vertex != expected:
            return "is not the vertex that its parent and its final set make"
        return None

    # Snapshots

    def _check_snapshots(self, first: Vertex) -> None:
        contents, half = self._contents, set()
        for vertex in (first, *self._placed):
            roots = [vertex.model_root, vertex.outer_state_root]
            names = [f"{MANIFESTS}/{root.hex()}" for root in roots]
            there = [name for name in names if name in self._listing.sizes]
            if len(there) == len(names):
                self._used |= set(names)
            elif there:
                half |= {(there[0], (set(names) - set(there)).pop(), vertex.height)}
        for there_name, missing_name, height in sorted(half):
            # The momentum of one height can be another's: only what no whole snapshot uses is half.
            if there_name not in self._used and there_name not in self._listing.arriving:
                self._used.add(there_name)
                self._wrong(missing_name, f"is missing: half of the snapshot of height {height}")
        for root, manifest in contents.manifests.items():
            if f"{MANIFESTS}/{root.hex()}" in self._used:
                self._check_snapshot_chunks(manifest)

    def _check_snapshot_chunks(self, manifest: Manifest) -> None:
        name = f"{MANIFESTS}/{manifest.root.hex()}"
        if list(manifest.sizes) != self._facts.states.chunk_sizes:
            self._wrong(name, "cuts a state otherwise than at its tensors")
        for size, digest in zip(manifest.sizes, manifest.digests, strict=True):
            chunk_name = f"{CHUNKS}/{digest.hex()}"
            self._need(chunk_name, f"{name} lists it")
            if self._contents.chunk_sizes.get(digest.hex(), size) != size:
                self._wrong(name, f"gives chunk {digest.hex()} another size than it has")

    def _snapshot_bytes(self, root: BlobRoot) -> bytearray | None:
        """The state's bytes out of its chunks; None unless all are there and good."""
        manifest = self._contents.manifests.get(root)
        if manifest is None or list(manifest.sizes) != self._facts.states.chunk_sizes:
            return None
        joined = bytearray()
        for digest, size in zip(manifest.digests, manifest.sizes, strict=True):
            if self._contents.chunk_sizes.get(digest.hex()) != size:
                return None
            chunk = self._files.read(f"{CHUNKS}/{digest.hex()}", size)
            if digest_of(chunk) != digest:
                return None  # changed between two reads
            joined += chunk
        return joined

    # Replay

    def _replay(self, chain: list[Vertex], state: ReplayedState) -> None:
        """Step from delta to delta; every height must reach its roots."""
        steps = chain[1:]
        start = self._pruned_height(steps)
        if start:
            vertex = chain[start]
            weights = self._snapshot_bytes(vertex.model_root)
            momentum = self._snapshot_bytes(vertex.outer_state_root)
            if weights is None or momentum is None:
                return  # what is wrong with the snapshot was named
            state.load(weights, momentum)
        good = True
        for vertex in steps[start:]:
            delta = self._delta(vertex)
            if delta is None or not good:
                good = False  # a hole: the deltas above it are still read, for their digests
                continue
            try:
                state.apply(delta)
            except PeerFault as fault:
                self._wrong(f"{DELTAS}/{vertex.delta_root.hex()}", f"is no delta: {fault.detail}")
                good = False
                continue
            reached = state.ref()
            if reached != StateRef(vertex.model_root, vertex.outer_state_root):
                self._wrong(
                    f"{VERTICES}/{vertex.vertex_id.hex()}",
                    f"names roots that the replay does not reach: its delta leads to weights "
                    f"{reached.model_root.hex()} and momentum {reached.outer_root.hex()}",
                )
                good = False
        replayed = set(steps)
        for vertex in self._placed:
            if vertex not in replayed:  # above a broken vertex: the bytes at least can be checked
                self._delta(vertex)

    def _pruned_height(self, steps: list[Vertex]) -> int:
        """The height whose snapshot a pruned chain starts with; 0 for a chain kept whole.

        Pruning keeps the snapshot of some height s and, of the deltas up to s, only those that are
        steps above s as well.
        """
        names = [f"{DELTAS}/{vertex.delta_root.hex()}" for vertex in steps]
        lacking = [v.height for v, n in zip(steps, names, strict=True) if not self._has(n)]
        for vertex in steps[max(lacking, default=len(steps) + 1) - 1 :]:
            roots = (vertex.model_root, vertex.outer_state_root)
            if not all(self._has(f"{MANIFESTS}/{root.hex()}") for root in roots):
                continue
            below, above = names[: vertex.height], set(names[vertex.height :])
            if all(name in above or not self._has(name) for name in below):
                return vertex.height
        return 0

    def _has(self, name: str) -> bool:
        return name in self._listing.sizes

    def _delta(self, vertex: Vertex) -> bytes | None:
        """The delta's bytes, every chunk checked; None, with the problem named, if they are bad."""
        root = vertex.delta_root
        name, manifest_name = f"{DELTAS}/{root.hex()}", f"{MANIFESTS}/{root.hex()}"
        self._need(name, f"the step to height {vertex.height}")
        self._need(manifest_name, f"it lists the chunks of {name}")
        return self._checked_blob(name, self._contents.manifests.get(root))

    def _checked_blob(self, name: str, manifest: Manifest | None) -> bytes | None:
        if name not in self._listing.sizes:
            return None
        try:
            payload = self._files.read(name, delta_size_bytes(self._facts.states))
        except Unreadable as fault:
            self._wrong(name, str(fault))
            return None
        if manifest is None:
            return None  # the manifest is missing or damaged: that is named
        if len(payload) != manifest.size_bytes:
            self._wrong(name, f"has {len(payload)} bytes, its manifest says {manifest.size_bytes}")
            return None
        good = True
        for index, digest in enumerate(manifest.digests):
            at = manifest.offsets[index]
            if digest_of(memoryview(payload)[at : at + manifest.sizes[index]]) != digest:
                self._wrong(name, f"does not hash to its manifest in chunk {index}")
                good = False
        self._report.chunks += len(manifest.digests)
        return payload if good else None

    # Leftovers

    def _check_leftovers(self) -> None:
        """Name what nothing certified refers to; of a write under way, only what is not whole."""
        bad = {problem.where for problem in self._report.problems}
        for name in sorted(self._listing.sizes.keys() - self._used):
            if name in bad:
                continue
            kind, _, rest = name.partition("/")
            if name not in self._listing.arriving:
                self._wrong(name, f"does not belong here: {_UNUSED[kind]}")
                continue
            self._report.unfinished += 1
            if kind == DELTAS:
                self._checked_blob(
                    name, self._contents.manifests.get(BlobRoot(bytes.fromhex(rest)))
                )


_UNUSED = {
    VERTICES: "no final result names this vertex",
    BLOCKS: "no finalization certificate covers this block",
    CERTIFICATES: "what it certifies is not part of this chain",
    DELTAS: "no vertex names this delta",
    MANIFESTS: "no delta and no snapshot has this manifest",
    CHUNKS: "no snapshot has this chunk",
}
