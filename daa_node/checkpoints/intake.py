"""Take certified vertices of the same chain over from another directory, all of them or nothing.

    above     what stands on a past that is our own, from there on (see intake_above); or else:

    proved    the other directory, whole, as `verify` does it
    fits      it goes on from our newest vertex, or holds it
    together  what lies here and what would come, proved as one chain before anything is written
    written   as one group (see writes), each file the very bytes that were proved

So a copy from anybody will do: who gave it is asked for nothing. Where the other directory begins
above our newest vertex, because it is pruned, our older states go in exchange: headers and
certificates stay.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from daa_consensus.bft.limits import Limits
from daa_consensus.committee import VALIDATORS_MAX
from daa_dag.checkpoint import VERTEX_BYTES_MAX, Vertex
from daa_dag.chunking import CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX, decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import Digest, digest_of
from daa_node.checkpoints.certified import Certified, certified_chain
from daa_node.checkpoints.contents import ChainFacts
from daa_node.checkpoints.files import ChainFiles, ChainReader, Listing
from daa_node.checkpoints.intake_above import proved_above
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    CHUNKS,
    DELTAS,
    MANIFESTS,
    VERTICES,
)
from daa_node.checkpoints.plain_files import Unreadable
from daa_node.checkpoints.replay import delta_bytes_max
from daa_node.checkpoints.verify import verify_certified, verify_files
from daa_node.checkpoints.verify_report import Report
from daa_node.checkpoints.writes import GroupWriter, Write
from daa_node.errors import StorageFailed, UserError
from daa_node.seams import BlobStore

HEADERS = (VERTICES, BLOCKS, CERTIFICATES)
STATES = (DELTAS, MANIFESTS, CHUNKS)
LIMITS = Limits(VALIDATORS_MAX, VALIDATORS_MAX)


class Proved:
    """A reader that remembers what it has read, so that nothing else is written later."""

    def __init__(self, inner: ChainReader) -> None:
        self._inner = inner
        self._digests: dict[str, Digest] = {}

    def listing(self) -> Listing:
        return self._inner.listing()

    def read(self, name: str, size_bytes_max: int, again: bool = False) -> bytes:
        payload = self._inner.read(name, size_bytes_max, again)
        if self._digests.setdefault(name, digest_of(payload)) != digest_of(payload):
            raise Unreadable("has changed meanwhile")
        return payload

    def as_proved(self, name: str, size_bytes_max: int) -> bytes:
        """The bytes that were read before. Raises UserError if they are others now."""
        try:
            payload = self._inner.read(name, size_bytes_max)
        except Unreadable as fault:
            raise UserError(f"{name} of the other directory {fault}: try again", 1) from None
        if digest_of(payload) != self._digests.get(name):
            raise UserError(f"{name} of the other directory has changed meanwhile: try again", 1)
        return payload


class Together:
    """What lies here without what goes, and what comes, as one chain."""

    def __init__(
        self, own: ChainReader, other: ChainReader, coming: set[str], going: set[str]
    ) -> None:
        self._own, self._other, self._coming, self._going = own, other, coming, going

    def listing(self) -> Listing:
        own, other = self._own.listing(), self._other.listing()
        unsettled = own.arriving | own.leaving  # finished by the write that comes, before it begins
        sizes = {
            name: size
            for name, size in own.sizes.items()
            if name not in unsettled and name not in self._going
        }
        sizes |= {name: other.sizes[name] for name in self._coming if name in other.sizes}
        return Listing(sizes, own.strange, frozenset(), frozenset())

    def read(self, name: str, size_bytes_max: int, again: bool = False) -> bytes:
        reader = self._other if name in self._coming else self._own
        return reader.read(name, size_bytes_max, again)


@dataclass(frozen=True, slots=True)
class Intake:
    """What is to be written, and what it makes of the chain here."""

    source: Proved
    facts: ChainFacts
    coming: tuple[str, ...]  # what is referred to before what refers
    going: tuple[str, ...]
    height_before: int
    newest: Vertex  # afterwards


def plan_intake(source: ChainReader, own: ChainReader | None, facts: ChainFacts) -> Intake:
    """Prove both; `own` None: there is no chain here yet. Blocking, and writes nothing.

    Raises UserError for whatever is in the way.
    """
    proved = Proved(source)
    above = None
    if isinstance(source, ChainFiles) and isinstance(own, ChainFiles):
        above = proved_above(source, proved, own, facts)
    if above is not None:
        before, newest = above.before, above.vertices[-1]
        order = _in_order(above.names, above.vertices)
        return Intake(proved, facts, order, (), before.height, newest)
    proved = Proved(source)
    try:
        other = certified_chain(proved, facts)
        report = verify_certified(other, facts)
        _check(report, "the other directory is not what it should be")
        own = own or _Nothing()
        here = certified_chain(own, facts)
        newest, before = other.chain[-1], here.chain[-1]
        _check_one_past(here.chain, other.chain)
        if newest.height <= before.height:
            return Intake(proved, facts, (), (), before.height, before)
        coming, going = _changes(here, other, proved, report.pruned_below)
        together = report  # where nothing is here, that is all there is
        if here.listing.sizes or here.listing.strange:
            together = verify_files(Together(own, proved, coming, going), facts)
    except (Unreadable, DagError) as fault:
        raise UserError(f"the other directory has changed meanwhile: {fault}", 1) from None
    _check(together, "what lies here and what would come make no chain")
    order = _in_order(coming, other.chain)
    return Intake(proved, facts, order, tuple(sorted(going)), before.height, newest)


async def carry_out(intake: Intake, store: BlobStore, work: BlobStore) -> None:
    """Write it, all or nothing. Raises UserError if the other directory changes, StorageFailed."""
    groups = GroupWriter(store, work)
    writes = [_write(intake, name, groups, store) for name in intake.coming]
    try:
        await groups.add([writes], intake.going)
    except (StorageFailed, UserError):
        with suppress(StorageFailed):  # then the next start does it
            await groups.drop(())  # takes back what has come
        raise


class _Nothing:
    """The chain of a node that has not run yet."""

    def listing(self) -> Listing:
        return Listing({}, (), frozenset(), frozenset())

    def read(self, name: str, size_bytes_max: int, again: bool = False) -> bytes:
        raise Unreadable("is missing")


def _check(report: Report, what: str) -> None:
    if report.ok:
        return
    first, count = report.problems[0], len(report.problems)
    raise UserError(
        f"nothing was taken, as {what}. `daa-node checkpoint verify` tells what is wrong with a "
        f"directory. Problems: {count}, the first {first.where}: {first.what}",
        exit_code=1,
    )


def _check_one_past(own: Sequence[Vertex], other: Sequence[Vertex]) -> None:
    for mine, theirs in zip(own, other, strict=False):
        if mine.vertex_id != theirs.vertex_id:
            raise UserError(
                f"nothing was taken: at height {mine.height} a quorum has certified "
                f"{mine.vertex_id.hex()[:16]} here and {theirs.vertex_id.hex()[:16]} there. More "
                "than the tolerated part of a committee has signed two pasts: compare an id with "
                "somebody you trust, and `daa-node checkpoint verify --trust` it in both",
                exit_code=1,
            )


def _changes(
    here: Certified, other: Certified, files: ChainReader, pruned_below: int
) -> tuple[set[str], set[str]]:
    """Names that come, and those that go."""
    before = here.chain[-1].height
    held = {name for name in here.listing.sizes if name not in here.listing.arriving}
    offered = {name for name in other.listing.sizes if name not in other.listing.arriving}
    headers = {name for name in offered if _kind(name) in HEADERS}
    if pruned_below <= before:
        states = _states_of(other, other.chain[before + 1 :], files)
        return (headers | states) - held, set()
    states = {name for name in offered if _kind(name) in STATES}
    going = {name for name in held if _kind(name) in STATES} - states
    return (headers | states) - held, going


def _states_of(other: Certified, steps: Sequence[Vertex], files: ChainReader) -> set[str]:
    names: set[str] = set()
    for vertex in steps:
        root = vertex.delta_root.hex()
        names |= {f"{DELTAS}/{root}", f"{MANIFESTS}/{root}"}
        if other.has_snapshot(vertex):
            for state in (vertex.model_root, vertex.outer_state_root):
                name = f"{MANIFESTS}/{state.hex()}"
                manifest = decode_manifest(files.read(name, MANIFEST_BYTES_MAX))
                names |= {name, *(f"{CHUNKS}/{digest.hex()}" for digest in manifest.digests)}
    return names


def _in_order(coming: set[str], vertices: Sequence[Vertex]) -> tuple[str, ...]:
    """States, blocks, certificates, vertices: the highest vertex is the last of all."""
    heights = {f"{VERTICES}/{v.vertex_id.hex()}": v.height for v in vertices}
    kinds = (CHUNKS, MANIFESTS, DELTAS, BLOCKS, CERTIFICATES, VERTICES)
    return tuple(
        sorted(coming, key=lambda name: (kinds.index(_kind(name)), heights.get(name, 0), name))
    )


def _write(intake: Intake, name: str, groups: GroupWriter, store: BlobStore) -> Write:
    kind, _, rest = name.partition("/")
    size_bytes_max = {
        VERTICES: VERTEX_BYTES_MAX,
        BLOCKS: LIMITS.block_bytes_max,
        CERTIFICATES: LIMITS.certificate_bytes_max,
        MANIFESTS: MANIFEST_BYTES_MAX,
        CHUNKS: CHUNK_BYTES_MAX,
        DELTAS: delta_bytes_max(intake.facts.states),
    }[kind]

    async def put() -> None:
        payload = intake.source.as_proved(name, size_bytes_max)
        if kind != DELTAS:
            await store.put_record(kind, rest, payload)
            return
        table = intake.source.as_proved(f"{MANIFESTS}/{rest}", MANIFEST_BYTES_MAX)
        manifest = decode_manifest(table)
        writer = await store.begin_blob(DELTAS, manifest)
        for index in writer.missing():
            at = manifest.offsets[index]
            await writer.write_chunk(index, payload[at : at + manifest.sizes[index]])
        await writer.commit()

    return Write(name, put)


def _kind(name: str) -> str:
    return name.partition("/")[0]
