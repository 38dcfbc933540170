"""What another directory has above the newest vertex here, proved from here on.

A node trusts what it has certified itself, as its other commands do (see own_chain): so of a past
that is its own no more is proved than how the rest stands on it. The other directory is trusted for
nothing. It has lists as a daemon leaves them, which tell where to begin, and what they tell is
judged as `verify` judges it.

Where anything is otherwise than it should be, `plan_intake` judges all of both, and says what.
"""

from collections.abc import Iterator
from contextlib import suppress

from daa_consensus.errors import ConsensusError
from daa_dag.checkpoint import Vertex
from daa_dag.chunking import CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX, Manifest, decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, digest_of
from daa_node.checkpoints.certified import Judge
from daa_node.checkpoints.contents import ChainFacts, Start, read_contents
from daa_node.checkpoints.export import replayed_state
from daa_node.checkpoints.files import ChainFiles, ChainReader
from daa_node.checkpoints.kept_ids import KeptIds, kept_ids
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    CHUNKS,
    DELTAS,
    FINAL_SUFFIX,
    MANIFESTS,
)
from daa_node.checkpoints.own_chain import Otherwise, OwnChain, above, begun_at, opened
from daa_node.checkpoints.plain_files import Problem, Unreadable
from daa_node.checkpoints.publish import state_of
from daa_node.checkpoints.replay import StateRules, delta_bytes_max
from daa_node.errors import PeerFault, UserError
from daa_node.identity.other_protocol import OtherProtocol


class Above:
    """Vertices above ours, lowest first, and names of all files that they need and we lack."""

    def __init__(self, vertices: list[Vertex], names: set[str], before: Vertex) -> None:
        self.vertices = vertices
        self.names = names
        self.before = before  # our newest


def proved_above(
    source: ChainFiles, proved: ChainReader, own: ChainFiles, facts: ChainFacts
) -> Above | None:
    """None where that cannot be told so. `proved` reads `source`. Blocking, and writes nothing."""
    kept, there = kept_ids(own), kept_ids(source)
    if kept is None or there is None:
        return None
    with suppress(
        *(Otherwise, Unreadable, DagError, ConsensusError, PeerFault, OtherProtocol, UserError),
        ValueError,
    ):
        _expect(not (kept.beside.arriving or kept.beside.leaving or there.beside.leaving))
        _expect(not _lacks_blocks(own, kept))
        past = opened(own, facts, kept)
        vertices, headers = _headers_above(source, proved, own, past, facts, kept, there)
        names = {name for name in headers if not own.has(name)}
        names |= _states_above(source, proved, past, vertices, facts.states)
        _expect(not names & there.beside.arriving)
        return Above(vertices, names, past.at(past.height))
    return None


def _lacks_blocks(own: ChainFiles, kept: KeptIds) -> bool:
    """Whether some have been lost, which would come along with the rest."""
    loose = kept.beside.names(BLOCKS)
    told = {f"{BLOCKS}/{block_id.hex()}" for block_id in kept.summary.loose_blocks}
    return own.packed_count(BLOCKS, loose) < kept.summary.blocks - len(told.intersection(loose))


def _headers_above(
    source: ChainFiles,
    proved: ChainReader,
    own: ChainFiles,
    past: OwnChain,
    facts: ChainFacts,
    kept: KeptIds,
    there: KeptIds,
) -> tuple[list[Vertex], set[str]]:
    below, first, validators = begun_at(own, facts, kept)
    problems: list[Problem] = []
    finals = _finals(source, there) - _finals(own, kept)
    listing = above(source, facts, below, there.beside, sorted(finals))
    contents = read_contents(proved, listing, facts, problems, Start(below, validators))
    judge = Judge(facts, listing, contents, problems)
    chain = judge.check_results(first, judge.check_headers(below))
    _expect(not problems)
    for vertex in chain:
        if vertex.height <= past.height:
            _expect(past.at(vertex.height).vertex_id == vertex.vertex_id)
    vertices = [vertex for vertex in chain if vertex.height > past.height]
    _expect(bool(vertices) and vertices[0].height == past.height + 1)
    return vertices, {*listing.sizes} & judge.used


def _finals(files: ChainFiles, kept: KeptIds) -> set[str]:
    """Names of all finalizations: of two directories the most that is read of what both have."""
    names = (*kept.beside.names(CERTIFICATES), *files.packed_names(CERTIFICATES))
    return {name for name in names if name.endswith(FINAL_SUFFIX)}


def _states_above(
    source: ChainFiles,
    proved: ChainReader,
    past: OwnChain,
    vertices: list[Vertex],
    rules: StateRules,
) -> set[str]:
    """Names of deltas and whole states, each replayed to its roots from our newest state."""
    names, checked = set[str](), set[str]()
    state = replayed_state(past, past.at(past.height), rules)
    for vertex in vertices:
        root = vertex.delta_root
        names |= {f"{DELTAS}/{root.hex()}", f"{MANIFESTS}/{root.hex()}"}
        state.apply(_delta(proved, root, rules))
        _expect(state.ref() == state_of(vertex))
        roots = (vertex.model_root, vertex.outer_state_root)
        if not all(source.has(f"{MANIFESTS}/{one.hex()}") for one in roots):
            continue
        for one in roots:
            manifest = _manifest(proved, one)
            _expect(list(manifest.sizes) == rules.chunk_sizes)
            names.add(f"{MANIFESTS}/{one.hex()}")
            checked |= {*_chunks(proved, manifest, checked)}
    return names | checked


def _delta(proved: ChainReader, root: BlobRoot, rules: StateRules) -> bytes:
    manifest = _manifest(proved, root)
    payload = proved.read(f"{DELTAS}/{root.hex()}", delta_bytes_max(rules))
    _expect(len(payload) == manifest.size_bytes)
    for at, size, digest in zip(manifest.offsets, manifest.sizes, manifest.digests, strict=False):
        _expect(digest_of(payload[at : at + size]) == digest)
    return payload


def _manifest(proved: ChainReader, root: BlobRoot) -> Manifest:
    manifest = decode_manifest(proved.read(f"{MANIFESTS}/{root.hex()}", MANIFEST_BYTES_MAX))
    _expect(manifest.root == root)
    return manifest


def _chunks(proved: ChainReader, manifest: Manifest, checked: set[str]) -> Iterator[str]:
    for size, digest in zip(manifest.sizes, manifest.digests, strict=True):
        name = f"{CHUNKS}/{digest.hex()}"
        if name not in checked:
            chunk = proved.read(name, CHUNK_BYTES_MAX)
            _expect(digest_of(chunk) == digest and len(chunk) == size)
        yield name


def _expect(holds: bool) -> None:
    if not holds:
        raise Otherwise
