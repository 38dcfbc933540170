"""Check every file of a chain, trusting nothing but the genesis and its validator set.

    certified    headers, results and their proofs (see certified)
    states       each manifest and chunk by itself
    snapshots    whole, and of a vertex
    replay       genesis weights, or the snapshot that a pruned chain starts with, to every root
    leftovers    what nothing refers to does not belong
    packs        no byte but whole records, each once, and an index of them

Every byte of every file is covered by a digest or a signature that leads back to the genesis, so
one changed byte is always named. Needs no torch and no network; holds one state, 8 bytes a
parameter.

Files that a publishing note names may lie there unreferenced, but whole. A final result whose
vertex is not here is a problem unless that note names it: headers come with their vertices or not
at all.

A chain proves itself only against keys of its own past: whoever holds those of a former committee
can sign another one (weak subjectivity). An `Anchor` is a vertex that the operator has from
somebody whom he trusts; a chain without it is refused.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daa_dag.checkpoint import Vertex
from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, ChainId, VertexId, digest_of
from daa_node.checkpoints.certified import Certified, certified_chain
from daa_node.checkpoints.contents import ChainFacts, States, read_states
from daa_node.checkpoints.files import ChainFiles, ChainReader
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    CHUNKS,
    DELTAS,
    MANIFESTS,
    VERTICES,
    exec_name,
)
from daa_node.checkpoints.plain_files import Problem, Unreadable
from daa_node.checkpoints.publish import state_of
from daa_node.checkpoints.replay import ReplayedState, delta_bytes_max
from daa_node.checkpoints.verify_windows import Windows
from daa_node.errors import PeerFault

Progress = Callable[[int, int], None]  # bytes read so far, bytes in all


@dataclass(frozen=True, slots=True)
class Anchor:
    """A vertex that the operator trusts; with `starts_replay` no delta below it is replayed."""

    vertex_id: VertexId
    starts_replay: bool = False


@dataclass(slots=True)
class Report:
    """What was checked. Problems name files by their path in the chain directory."""

    chain_id: ChainId
    heights: int = 0  # of the highest vertex that is certified
    tip: VertexId | None = None  # that vertex
    promised: tuple[int, VertexId] | None = None  # final by the headers, above it, and not here
    replayed_from: int = 0  # height of the state that the replay began with
    pruned_below: int = 0  # height of the snapshot below which states were let go; 0: none were
    vertices: int = 0
    certificates: int = 0
    light: int = 0  # vertices that the end of their epoch proves, and no certificate of theirs
    chunks: int = 0
    bytes_read: int = 0
    unfinished: int = 0  # files of a write under way: whole, and not yet part of the chain
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


def verify_chain(
    directory: Path,
    facts: ChainFacts,
    on_progress: Progress = lambda done, total: None,
    anchor: Anchor | None = None,
) -> Report:
    """Check the chain in `directory`, a node's chain/. Blocking; takes no lock.

    In memory that does not grow with the chain, if all is well and at rest.
    """
    size_bytes = bytes_read = 0

    def tell_total(all_bytes: int) -> None:
        nonlocal size_bytes, bytes_read
        size_bytes, bytes_read = all_bytes, 0

    def count(more_bytes: int) -> None:
        nonlocal bytes_read
        bytes_read += more_bytes
        on_progress(bytes_read, size_bytes)

    if anchor is None or not anchor.starts_replay:
        windows = Windows(ChainFiles(directory, count), facts, tell_total)
        if windows.run(None if anchor is None else anchor.vertex_id):
            return _told(windows, facts, bytes_read)
    listing = ChainFiles(directory).listing()
    tell_total(sum(listing.sizes.values()) + listing.shelf.size_bytes)
    files = ChainFiles(directory, count)
    report = verify_files(files, facts, anchor)
    listing = files.listing()  # what a running daemon packed meanwhile was read as well
    report.unfinished += len(listing.twice) + len(listing.shelf.superseded)
    problems = {*report.problems, *files.pack_problems(listing)}
    report.problems = sorted(problems, key=lambda p: (p.where, p.what))
    report.bytes_read = bytes_read
    return report


def _told(windows: Windows, facts: ChainFacts, bytes_read: int) -> Report:
    newest = windows.newest
    return Report(
        facts.chain_id,
        heights=newest.height,
        tip=newest.vertex_id,
        replayed_from=windows.replayed_from,
        pruned_below=windows.replayed_from,
        vertices=newest.height + 1,
        certificates=windows.certificates,
        light=windows.light,
        chunks=windows.chunks,
        bytes_read=bytes_read,
    )


def verify_files(files: ChainReader, facts: ChainFacts, anchor: Anchor | None = None) -> Report:
    """Check the chain that these files are. Blocking; takes no lock."""
    return verify_certified(certified_chain(files, facts), facts, anchor)


def verify_certified(
    certified: Certified, facts: ChainFacts, anchor: Anchor | None = None
) -> Report:
    """As `verify_files`, once its headers and proofs are judged."""
    report = Report(facts.chain_id)
    chain, problems = certified.chain, certified.problems
    report.problems = problems
    report.vertices, report.heights = len(chain), chain[-1].height
    report.tip = chain[-1].vertex_id
    report.certificates = len(certified.contents.execs) + len(certified.contents.finals)
    proofs = {f"{CERTIFICATES}/{exec_name(vertex.vertex_id)}" for vertex in certified.placed}
    report.light = len(proofs & certified.light.keys())
    if certified.promised:
        report.promised = (certified.final_height, certified.promised[-1].result.vertex_id)
    start_at = None
    if anchor is not None:
        on_it = [vertex for vertex in chain if vertex.vertex_id == anchor.vertex_id]
        if not on_it:
            where = f"{VERTICES}/{anchor.vertex_id.hex()}"
            problems.append(Problem("is trusted, and no certified vertex of this chain", where))
        elif anchor.starts_replay:
            start_at = on_it[0].height
    _Verifier(certified, facts, report).run(start_at)
    report.problems = sorted(set(problems), key=lambda p: (p.where, p.what))
    return report


class _Damaged(Exception):
    """A snapshot of which something was named."""


class _Verifier:
    """The states of one directory, once its headers and proofs are judged."""

    def __init__(self, certified: Certified, facts: ChainFacts, report: Report) -> None:
        self._facts = facts
        self._certified = certified
        self._files = certified.files
        self._listing = certified.listing
        self._chain = certified.chain
        self._placed = certified.placed
        self._used = certified.used
        self._report = report
        self._states = States({}, {})

    def run(self, start_at: int | None) -> None:
        """Check states; `start_at` is the height of an anchor, below which nothing is replayed."""
        self._states = read_states(self._files, self._listing, self._report.problems)
        self._report.chunks += len(self._states.chunk_sizes)
        self._check_snapshots()
        self._replay(start_at)
        self._check_leftovers()

    def _wrong(self, where: str, what: str) -> None:
        self._report.problems.append(Problem(what, where))

    def _need(self, name: str, why: str) -> None:
        """`name` belongs to the chain; a missing file is a problem, a damaged one was named."""
        self._used.add(name)
        if name not in self._listing.sizes:
            self._wrong(name, f"is missing: {why}")

    # Snapshots

    def _check_snapshots(self) -> None:
        half = set()
        for vertex in (self._chain[0], *self._placed):
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
        for root, manifest in self._states.manifests.items():
            if f"{MANIFESTS}/{root.hex()}" in self._used:
                self._check_snapshot_chunks(manifest)

    def _check_snapshot_chunks(self, manifest: Manifest) -> None:
        name = f"{MANIFESTS}/{manifest.root.hex()}"
        if list(manifest.sizes) != self._facts.states.chunk_sizes:
            self._wrong(name, "cuts a state otherwise than at its tensors")
        for size, digest in zip(manifest.sizes, manifest.digests, strict=True):
            chunk_name = f"{CHUNKS}/{digest.hex()}"
            self._need(chunk_name, f"{name} lists it")
            if self._states.chunk_sizes.get(digest.hex(), size) != size:
                self._wrong(name, f"gives chunk {digest.hex()} another size than it has")

    def _snapshot_chunks(self, root: BlobRoot) -> Iterator[bytes]:
        """The state's bytes. Raises _Damaged unless all chunks are there and good."""
        manifest = self._states.manifests.get(root)
        if manifest is None or list(manifest.sizes) != self._facts.states.chunk_sizes:
            raise _Damaged
        for digest, size in zip(manifest.digests, manifest.sizes, strict=True):
            if self._states.chunk_sizes.get(digest.hex()) != size:
                raise _Damaged
            chunk = self._files.read(f"{CHUNKS}/{digest.hex()}", size)
            if digest_of(chunk) != digest:
                raise _Damaged  # changed between two reads
            yield chunk

    # Replay

    def _replay(self, start_at: int | None) -> None:
        """Step from delta to delta; every height must reach its roots.

        Begins with the genesis weights, with the snapshot that a pruned chain starts with, or with
        the newest snapshot that is no higher than `start_at`.
        """
        steps = self._chain[1:]
        start = self._report.pruned_below = self._pruned_height(steps)
        if start_at is not None:
            whole = [v.height for v in steps[start:start_at] if self._certified.has_snapshot(v)]
            start = max(whole, default=start)
        self._report.replayed_from = start
        state = ReplayedState(self._facts.states)
        if start or self._facts.states.first_root is not None:
            vertex = self._chain[start]
            for root in () if start else (vertex.model_root, vertex.outer_state_root):
                self._need(f"{MANIFESTS}/{root.hex()}", "the first weights came from a file")
            roots = (vertex.model_root, vertex.outer_state_root)
            try:
                state.load(*(self._snapshot_chunks(root) for root in roots))
            except _Damaged:
                return  # what is wrong with the snapshot was named
        else:
            state.start()
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
            if reached != state_of(vertex):
                self._wrong(
                    f"{VERTICES}/{vertex.vertex_id.hex()}",
                    f"names roots that the replay does not reach: its delta leads to weights "
                    f"{reached.model_root.hex()} and momentum {reached.outer_root.hex()}",
                )
                good = False
        replayed = set(steps[start:])
        pruned = set(steps[: self._report.pruned_below])
        for vertex in self._placed:  # what was not replayed: the bytes at least can be checked
            if vertex not in replayed and vertex not in pruned:
                self._delta(vertex)

    def _pruned_height(self, steps: list[Vertex]) -> int:
        """The height whose snapshot a pruned chain starts with; 0 for a chain kept whole.

        Pruning keeps the snapshot of some height s and, of the deltas up to s, only those that are
        steps above s as well.
        """
        names = [f"{DELTAS}/{vertex.delta_root.hex()}" for vertex in steps]
        lacking = [v.height for v, n in zip(steps, names, strict=True) if not self._has(n)]
        for vertex in steps[max(lacking, default=len(steps) + 1) - 1 :]:
            if not self._certified.has_snapshot(vertex):
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
        return self._checked_blob(name, self._states.manifests.get(root))

    def _checked_blob(self, name: str, manifest: Manifest | None) -> bytes | None:
        if name not in self._listing.sizes:
            return None
        try:
            payload = self._files.read(name, delta_bytes_max(self._facts.states))
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
                self._checked_blob(name, self._states.manifests.get(BlobRoot(bytes.fromhex(rest))))


_UNUSED = {
    VERTICES: "no final result names this vertex",
    BLOCKS: "no finalization certificate covers this block",
    CERTIFICATES: "what it certifies is not part of this chain",
    DELTAS: "no vertex names this delta",
    MANIFESTS: "no delta and no snapshot has this manifest",
    CHUNKS: "no snapshot has this chunk",
}
