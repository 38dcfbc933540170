"""Each file of a chain judged by itself: canonical bytes, its own name, every signature.

What holds goes into Contents; what does not is a problem with the file's path. How the things fit
together is verify.py's to judge.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from daa_consensus.bft.messages import Block, Limits, decode_block, decode_certificate
from daa_consensus.committee import Committee, Domain
from daa_consensus.errors import ConsensusError
from daa_consensus.votes import Certificate, Kind
from daa_dag.checkpoint import VERTEX_BYTES_MAX, Vertex, decode_vertex
from daa_dag.chunking import CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX, Manifest, decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, BlockId, ChainId, NodeId, VertexId, digest_of
from daa_node.checkpoints.files import ChainFiles, Listing, Problem, Unreadable
from daa_node.checkpoints.layout import BLOCKS, CERTIFICATES, CHUNKS, MANIFESTS, VERTICES
from daa_node.checkpoints.replay import StateRules
from daa_node.errors import PeerFault
from daa_node.identity.envelope import verify_certificate

T = TypeVar("T")


@dataclass(frozen=True)
class ChainFacts:
    """What a genesis says, as far as a verifier needs it."""

    chain_id: ChainId
    committee: Committee
    public_keys: Mapping[NodeId, bytes]  # ML-DSA-65, of the committee
    contributors: frozenset[NodeId]
    epoch_rounds: int
    rule: str
    f_agg: int
    states: StateRules

    @cached_property
    def limits(self) -> Limits:
        return Limits(len(self.committee.validators), len(self.contributors))

    def domain(self, epoch: int) -> Domain:
        return Domain(self.chain_id, epoch, self.committee.root)


@dataclass(slots=True)
class Contents:
    """What holds by itself, by its id."""

    vertices: dict[VertexId, Vertex] = field(default_factory=dict)
    blocks: dict[BlockId, Block] = field(default_factory=dict)
    finals: dict[BlockId, Certificate] = field(default_factory=dict)
    execs: dict[VertexId, Certificate] = field(default_factory=dict)
    manifests: dict[BlobRoot, Manifest] = field(default_factory=dict)
    chunk_sizes: dict[str, int] = field(default_factory=dict)  # of good ones, by hex digest


def read_contents(
    files: ChainFiles, listing: Listing, facts: ChainFacts, problems: list[Problem]
) -> Contents:
    """Read and judge every listed file but the deltas, which the replay reads."""
    reader = _Reader(files, listing, problems)
    contents, limits = Contents(), facts.limits
    for vertex in reader.each(VERTICES, VERTEX_BYTES_MAX, decode_vertex, _vertex_name):
        contents.vertices[vertex.vertex_id] = vertex
    for block in reader.each(
        BLOCKS,
        limits.block_bytes_max,
        lambda payload: _block_of(payload, facts),
        lambda block: block.id.hex(),
    ):
        contents.blocks[block.id] = block
    for certificate in reader.each(
        CERTIFICATES,
        limits.certificate_bytes_max,
        lambda payload: _certificate_of(payload, facts),
        _certificate_name,
    ):
        thing = _certified_thing(certificate)
        if certificate.statement.kind is Kind.EXEC:
            contents.execs[VertexId(thing)] = certificate
        else:
            contents.finals[BlockId(thing)] = certificate
    for manifest in reader.each(
        MANIFESTS, MANIFEST_BYTES_MAX, decode_manifest, lambda manifest: manifest.root.hex()
    ):
        contents.manifests[manifest.root] = manifest
    for chunk in reader.each(CHUNKS, CHUNK_BYTES_MAX, bytes, lambda chunk: digest_of(chunk).hex()):
        contents.chunk_sizes[digest_of(chunk).hex()] = len(chunk)
    return contents


class _Reader:
    """Reads the files of one kind after another."""

    def __init__(self, files: ChainFiles, listing: Listing, problems: list[Problem]) -> None:
        self._files = files
        self._listing = listing
        self._problems = problems

    def each(
        self,
        kind: str,
        size_bytes_max: int,
        decode: Callable[[bytes], T],
        name_of: Callable[[T], str],
    ) -> Iterator[T]:
        """The things of this kind whose bytes are good and whose file has their name."""
        for name in self._listing.names(kind):
            try:
                thing = decode(self._files.read(name, size_bytes_max))
            except Unreadable as fault:
                self._problems.append(Problem(str(fault), name))
            except (DagError, ConsensusError, PeerFault) as fault:
                self._problems.append(Problem(f"is damaged or forged: {fault}", name))
            else:
                own_name = f"{kind}/{name_of(thing)}"
                if own_name == name:
                    yield thing
                else:
                    self._problems.append(Problem(f"holds what belongs in {own_name}", name))


def _vertex_name(vertex: Vertex) -> str:
    return vertex.vertex_id.hex()


def _block_of(payload: bytes, facts: ChainFacts) -> Block:
    block = decode_block(payload, facts.limits)
    if block.chain_id != facts.chain_id:
        raise PeerFault("foreign-chain", f"a block of chain {block.chain_id.hex()}")
    return block


def _certificate_of(payload: bytes, facts: ChainFacts) -> Certificate:
    certificate = decode_certificate(payload, facts.limits)
    statement = certificate.statement
    if statement.kind not in (Kind.EXEC, Kind.FINALIZE):
        raise PeerFault("wrong-kind", f"a certificate of {statement.kind} is not stored")
    domain = facts.domain(statement.domain.epoch)
    verify_certificate(certificate, facts.committee, facts.public_keys, domain)
    return certificate


def _certified_thing(certificate: Certificate) -> bytes:
    value = certificate.statement.value
    thing = value[0] if isinstance(value, list) else value
    assert isinstance(thing, bytes), "the decoder lets nothing else through"
    return thing


def _certificate_name(certificate: Certificate) -> str:
    suffix = ".exec" if certificate.statement.kind is Kind.EXEC else ".final"
    return _certified_thing(certificate).hex() + suffix
