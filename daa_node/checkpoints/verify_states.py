"""The states of a chain whose headers and proofs are judged, and what does not belong to it.

    snapshots    whole, of a vertex, each manifest and chunk by itself
    replay       genesis weights, or the snapshot that a pruned chain starts with, to every root
    leftovers    what nothing refers to does not belong

An index has the vertices and the names that belong to the chain, so memory is one state, 8 bytes a
parameter, and a delta, however long the chain is. Each file is read when it is first wanted.
"""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from daa_dag.checkpoint import Vertex
from daa_dag.chunking import CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX, Manifest, decode_manifest
from daa_dag.ids import BlobRoot, digest_of
from daa_node.checkpoints.chain_index import ChainIndex, Step
from daa_node.checkpoints.contents import ChainFacts, judged_file
from daa_node.checkpoints.files import ChainReader
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    CHUNKS,
    DELTAS,
    MANIFESTS,
    VERTICES,
)
from daa_node.checkpoints.plain_files import Problem, Unreadable
from daa_node.checkpoints.replay import ReplayedState, delta_bytes_max
from daa_node.checkpoints.verify_report import Anchor, Report
from daa_node.errors import PeerFault
from daa_node.seams import StateRef

T = TypeVar("T")

BAD, MISSING = -1, -2  # in place of a chunk's size


class Listed(Protocol):
    """What a chain directory holds."""

    @property
    def arriving(self) -> frozenset[str]: ...

    def __contains__(self, name: object) -> bool: ...

    def each(self) -> Iterator[str]:
        """Every name, once."""
        ...


class _Damaged(Exception):
    """A snapshot of which something was named."""


def add_vertex(index: ChainIndex, listed: Listed, vertex: Vertex, holds: bool) -> None:
    """The next one, lowest first: the genesis vertex, and those that final results name."""
    names = (
        f"{DELTAS}/{vertex.delta_root.hex()}",
        f"{MANIFESTS}/{vertex.model_root.hex()}",
        f"{MANIFESTS}/{vertex.outer_state_root.hex()}",
    )
    delta, model, outer = (name in listed for name in names)
    index.vertices.add(vertex, holds, (delta, model, outer))


class StateJudge:
    """One pass; what it comes to goes into the report that was given."""

    def __init__(
        self,
        files: ChainReader,
        facts: ChainFacts,
        listed: Listed,
        index: ChainIndex,
        report: Report,
    ) -> None:
        self._files = files
        self._states = facts.states
        self._listed = listed
        self._index = index
        self._report = report

    def run(self, anchor: Anchor | None) -> None:
        """Look for what is trusted, check states, and name what is left."""
        self._index.vertices.index()
        start_at = None
        if anchor is not None:
            height = self._index.vertices.height_of(anchor.vertex_id)
            if height is None:
                where = f"{VERTICES}/{anchor.vertex_id.hex()}"
                self._wrong(where, "is trusted, and no certified vertex of this chain")
            elif anchor.starts_replay:
                start_at = height
        self._check_snapshots()
        self._replay(start_at)
        self._check_leftovers()

    def _wrong(self, where: str, what: str) -> None:
        self._report.problems.append(Problem(what, where))

    def _need(self, name: str, is_listed: bool, why: str) -> None:
        """`name` belongs to the chain; a missing file is a problem, a damaged one is named."""
        if not is_listed:
            self._wrong(name, f"is missing: {why}")
        self._index.names.use(name)

    # Snapshots

    def _check_snapshots(self) -> None:
        for step in self._index.vertices.all():
            if step.has_snapshot:
                self._check_snapshot(step.model_root)
                self._check_snapshot(step.outer_root)
        half: dict[str, tuple[str, int, BlobRoot]] = {}
        for step in self._index.vertices.all():
            if step.has_model == step.has_outer:
                continue
            roots = [step.model_root, step.outer_root]
            there, missing = roots if step.has_model else roots[::-1]
            name = f"{MANIFESTS}/{there.hex()}"
            # The momentum of one height can be another's: only what no whole snapshot uses is half.
            if not self._index.names.uses(name) and name not in self._listed.arriving:
                one = (f"{MANIFESTS}/{missing.hex()}", step.height, there)
                half[name] = min(one, half.get(name, one))
        for _, (missing_name, height, there) in sorted(half.items()):
            self._wrong(missing_name, f"is missing: half of the snapshot of height {height}")
            self._check_snapshot(there)

    def _check_snapshot(self, root: BlobRoot) -> None:
        """Of the weights or the momentum, once."""
        name = f"{MANIFESTS}/{root.hex()}"
        manifest = self._manifest(root) if self._index.names.use(name) else None
        if manifest is None:
            return
        if list(manifest.sizes) != self._states.chunk_sizes:
            self._wrong(name, "cuts a state otherwise than at its tensors")
        for size, digest in zip(manifest.sizes, manifest.digests, strict=True):
            chunk_name = f"{CHUNKS}/{digest.hex()}"
            known = self._index.names.size_of(chunk_name)
            if known is None:
                known = self._chunk(chunk_name) if chunk_name in self._listed else MISSING
                self._index.names.keep_size(chunk_name, known)
            if known == MISSING:
                self._wrong(chunk_name, f"is missing: {name} lists it")
            elif known not in (BAD, size):
                self._wrong(name, f"gives chunk {digest.hex()} another size than it has")

    def _manifest(self, root: BlobRoot, again: bool = False) -> Manifest | None:
        """A listed one; None, with the problem named, if it is bad."""
        name = f"{MANIFESTS}/{root.hex()}"
        return self._judged(name, MANIFEST_BYTES_MAX, decode_manifest, _manifest_name, again)

    def _chunk(self, name: str) -> int:
        """Its bytes; BAD, with the problem named."""
        chunk = self._judged(name, CHUNK_BYTES_MAX, bytes, _chunk_name)
        if chunk is None:
            return BAD
        self._report.chunks += 1
        return len(chunk)

    def _judged(
        self,
        name: str,
        size_bytes_max: int,
        decode: Callable[[bytes], T],
        name_of: Callable[[T], str],
        again: bool = False,
    ) -> T | None:
        found = judged_file(self._files, name, size_bytes_max, decode, name_of, again)
        if isinstance(found, Problem):
            self._report.problems.append(found)
            return None
        return found

    def _snapshot_chunks(self, root: BlobRoot) -> Iterator[bytes]:
        """The state's bytes. Raises _Damaged unless all chunks are there and good."""
        if f"{MANIFESTS}/{root.hex()}" not in self._listed:
            raise _Damaged
        manifest = self._manifest(root, again=True)
        if manifest is None or list(manifest.sizes) != self._states.chunk_sizes:
            raise _Damaged
        for digest, size in zip(manifest.digests, manifest.sizes, strict=True):
            name = f"{CHUNKS}/{digest.hex()}"
            if self._index.names.size_of(name) != size:
                raise _Damaged
            chunk = self._judged(name, size, bytes, _chunk_name, again=True)
            if chunk is None:
                raise _Damaged  # changed between two reads
            yield chunk

    # Replay

    def _replay(self, start_at: int | None) -> None:
        """Step from delta to delta; every height must reach its roots.

        Begins with the genesis weights, with the snapshot that a pruned chain starts with, or with
        the newest snapshot that is no higher than `start_at`, the height of an anchor.
        """
        start = self._report.pruned_below = self._index.vertices.floor()
        if start_at is not None:
            start = self._index.vertices.highest_snapshot(start, start_at) or start
        self._report.replayed_from = start
        state = ReplayedState(self._states)
        if start or self._states.first_root is not None:
            first = next(self._index.vertices.holding(start))
            roots = (first.model_root, first.outer_root)
            for name in () if start else [f"{MANIFESTS}/{root.hex()}" for root in roots]:
                self._need(name, name in self._listed, "the first weights came from a file")
            try:
                state.load(*(self._snapshot_chunks(root) for root in roots))
            except _Damaged:
                return  # what is wrong with the snapshot was named
        else:
            state.start()
        good = True
        for step in self._index.vertices.holding(start + 1):
            delta = self._delta(step)
            # a hole: the deltas above it are still read, for their digests
            good = good and delta is not None and self._steps(state, step, delta)
        for step in self._index.vertices.not_replayed(start, self._report.pruned_below):
            self._delta(step)  # the bytes at least can be checked

    def _steps(self, state: ReplayedState, step: Step, delta: bytes) -> bool:
        """Whether the delta leads to where its vertex says."""
        try:
            state.apply(delta)
        except PeerFault as fault:
            self._wrong(f"{DELTAS}/{step.delta_root.hex()}", f"is no delta: {fault.detail}")
            return False
        reached = state.ref()
        if reached == StateRef(step.model_root, step.outer_root):
            return True
        self._wrong(
            f"{VERTICES}/{step.vertex_id.hex()}",
            f"names roots that the replay does not reach: its delta leads to weights "
            f"{reached.model_root.hex()} and momentum {reached.outer_root.hex()}",
        )
        return False

    def _delta(self, step: Step) -> bytes | None:
        """The delta's bytes, every chunk checked; None, with the problem named, if they are bad."""
        root = step.delta_root
        name, manifest_name = f"{DELTAS}/{root.hex()}", f"{MANIFESTS}/{root.hex()}"
        again = self._index.names.uses(manifest_name)
        has_manifest = manifest_name in self._listed
        self._need(name, step.has_delta, f"the step to height {step.height}")
        self._need(manifest_name, has_manifest, f"it lists the chunks of {name}")
        return self._checked_delta(root, step.has_delta, has_manifest, again, again)

    def _checked_delta(
        self,
        root: BlobRoot,
        has_delta: bool,
        has_manifest: bool,
        manifest_again: bool,
        again: bool,
    ) -> bytes | None:
        """`manifest_again`, `again`: which of both was read before."""
        name = f"{DELTAS}/{root.hex()}"
        manifest = self._manifest(root, manifest_again) if has_manifest else None
        if not has_delta:
            return None
        try:
            payload = self._files.read(name, delta_bytes_max(self._states), again)
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
        for name in self._listed.each():
            if self._index.names.uses(name) or name in bad or self._is_bad(name):
                continue
            kind, _, rest = name.partition("/")
            if name not in self._listed.arriving:
                self._wrong(name, f"does not belong here: {_UNUSED[kind]}")
                continue
            self._report.unfinished += 1
            if kind == DELTAS:
                root = BlobRoot(bytes.fromhex(rest))
                has_manifest = f"{MANIFESTS}/{rest}" in self._listed
                self._checked_delta(root, True, has_manifest, has_manifest, again=False)

    def _is_bad(self, name: str) -> bool:
        """Of a state's file that nobody has wanted, whether a problem was named."""
        kind, _, rest = name.partition("/")
        if kind == MANIFESTS:
            return self._manifest(BlobRoot(bytes.fromhex(rest))) is None
        return kind == CHUNKS and self._chunk(name) == BAD


def _manifest_name(manifest: Manifest) -> str:
    return manifest.root.hex()


def _chunk_name(chunk: bytes) -> str:
    return digest_of(chunk).hex()


_UNUSED = {
    VERTICES: "no final result names this vertex",
    BLOCKS: "no finalization certificate covers this block",
    CERTIFICATES: "what it certifies is not part of this chain",
    DELTAS: "no vertex names this delta",
    MANIFESTS: "no delta and no snapshot has this manifest",
    CHUNKS: "no snapshot has this chunk",
}
