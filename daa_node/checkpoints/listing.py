"""What a chain directory holds, for people: one row a vertex, and all of one vertex.

Reads files as they are and proves nothing: `verify` does that.
"""

from dataclasses import dataclass
from pathlib import Path

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import decode_certificate
from daa_consensus.errors import BadMessage
from daa_dag.checkpoint import VERTEX_BYTES_MAX, Vertex, decode_vertex
from daa_dag.errors import DagError
from daa_dag.graph import CheckpointGraph, graph_of
from daa_dag.ids import NodeId, VertexId
from daa_node.checkpoints.certified import find_vertex
from daa_node.checkpoints.files import ChainFiles, Listing
from daa_node.checkpoints.layout import CERTIFICATES, DELTAS, MANIFESTS, VERTICES, exec_name
from daa_node.checkpoints.plain_files import Unreadable
from daa_node.errors import UserError

LIMITS = Limits(4096, 4096)  # far more than any network has: listing knows no genesis


@dataclass(frozen=True, slots=True)
class VertexRow:
    """One vertex as `checkpoint list` and `show` print it."""

    vertex_id: VertexId
    vertex: Vertex
    certified_by: tuple[NodeId, ...]  # as the certificate says; empty at height 0
    has_delta: bool
    has_snapshot: bool
    # By a certificate of its own, or of one that stands on it and so names it by hash: of old
    # epochs a node lets go the others, or never had them (see thinning).
    is_certified: bool


@dataclass(frozen=True, slots=True)
class ChainView:
    """Every vertex of a chain directory, parents before children, and the shape they make."""

    rows: tuple[VertexRow, ...]
    graph: CheckpointGraph

    def find(self, text: str) -> VertexRow:
        """The vertex of this height, id, or start of an id (8 digits or more); `tip` is the newest.

        Raises UserError when there is none, or more than one.
        """
        found = find_vertex([row.vertex for row in self.rows], text)
        if found is None:
            raise UserError(
                f"there is no vertex {text} here; heights {self.rows[0].vertex.height} to "
                f"{self.rows[-1].vertex.height} are"
            )
        return next(row for row in self.rows if row.vertex is found)


def view_chain(directory: Path) -> ChainView:
    """Read the vertices under `directory`, a node's chain/.

    Raises UserError when there are none, or one is damaged.
    """
    files = ChainFiles(directory)
    listing = files.listing()
    vertices = [_vertex(files, name) for name in listing.names(VERTICES)]
    if not vertices:
        raise UserError(f"{directory} holds no chain: no node has run here", exit_code=1)
    try:
        graph = graph_of(vertices)
    except DagError as fault:
        raise _damaged(str(fault)) from None
    by_id = {vertex.vertex_id: vertex for vertex in vertices}
    rows: list[VertexRow] = []
    below = set[VertexId]()  # what is certified
    for vertex_id in reversed(graph.canonical_order()):
        row = _row(files, listing, by_id[vertex_id], vertex_id in below)
        if row.is_certified:
            below.update(row.vertex.parents)
        rows.append(row)
    return ChainView(tuple(reversed(rows)), graph)


def _vertex(files: ChainFiles, name: str) -> Vertex:
    try:
        return decode_vertex(files.read(name, VERTEX_BYTES_MAX))
    except (DagError, Unreadable) as fault:
        raise _damaged(f"{name}: {fault}") from None


def _row(files: ChainFiles, listing: Listing, vertex: Vertex, is_below: bool) -> VertexRow:
    """`is_below`: a vertex that is certified stands on it."""
    states = (vertex.model_root, vertex.outer_state_root)
    signers = _signers(files, listing, vertex.vertex_id)
    return VertexRow(
        vertex.vertex_id,
        vertex,
        signers,
        f"{DELTAS}/{vertex.delta_root.hex()}" in listing.sizes,
        all(f"{MANIFESTS}/{root.hex()}" in listing.sizes for root in states),
        is_below or bool(signers),
    )


def _signers(files: ChainFiles, listing: Listing, vertex_id: VertexId) -> tuple[NodeId, ...]:
    name = f"{CERTIFICATES}/{exec_name(vertex_id)}"
    if name not in listing.sizes:
        return ()
    try:
        payload = files.read(name, LIMITS.certificate_bytes_max)
        certificate = decode_certificate(payload, LIMITS)
    except (BadMessage, Unreadable) as fault:
        raise _damaged(f"{name}: {fault}") from None
    return tuple(signer for signer, _ in certificate.signatures)


def _damaged(detail: str) -> UserError:
    return UserError(f"{detail}; `daa-node checkpoint verify` says what else is wrong", exit_code=1)
