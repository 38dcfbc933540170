"""What a chain directory holds, for people: one row a vertex, and all of one vertex.

Reads files as they are and proves nothing: `verify` does that.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import decode_certificate
from daa_consensus.errors import BadMessage
from daa_dag.checkpoint import VERTEX_BYTES_MAX, Vertex, decode_vertex
from daa_dag.errors import DagError
from daa_dag.graph import CheckpointGraph, graph_of
from daa_dag.ids import NodeId, VertexId
from daa_node.checkpoints.certified import find_place, read_vertex
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.kept_ids import KeptIds, kept_ids
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


class View(Protocol):
    """Vertices of a chain directory; rows that are read late raise UserError if damaged."""

    @property
    def ids(self) -> Sequence[VertexId]:
        """Of all, parents before children."""

    @property
    def heights(self) -> Sequence[int]:
        """Of the same."""

    def find(self, text: str) -> VertexRow:
        """The vertex of this height, id, or start of an id (8 digits or more); `tip` is the newest.

        Raises UserError when there is none, or more than one.
        """

    def newest_of(self, newest: VertexRow, count: int) -> list[VertexRow]:
        """It and what it stands on, newest first, at most so many."""

    def last(self, count: int) -> Sequence[VertexRow]:
        """The newest of all, at most so many, parents before children."""

    def with_children(self, rows: Sequence[VertexRow]) -> Sequence[VertexRow]:
        """These, and those that stand on them."""


@dataclass(frozen=True, slots=True)
class ChainView:
    """Every vertex of a chain directory, and the shape they make."""

    rows: tuple[VertexRow, ...]
    graph: CheckpointGraph

    @property
    def ids(self) -> Sequence[VertexId]:
        return [row.vertex_id for row in self.rows]

    @property
    def heights(self) -> Sequence[int]:
        return [row.vertex.height for row in self.rows]

    def find(self, text: str) -> VertexRow:
        """See View."""
        return self.rows[_place(text, self)]

    def newest_of(self, newest: VertexRow, count: int) -> list[VertexRow]:
        below = self.graph.ancestors(newest.vertex_id) | {newest.vertex_id}
        return [row for row in reversed(self.rows) if row.vertex_id in below][:count]

    def last(self, count: int) -> Sequence[VertexRow]:
        return self.rows[-count:]

    def with_children(self, rows: Sequence[VertexRow]) -> Sequence[VertexRow]:
        return self.rows


@dataclass(frozen=True, slots=True)
class LineView:
    """A chain without branches whose ids are known; a row is read when somebody asks for it."""

    files: ChainFiles
    leaving: Collection[str]
    ids: list[VertexId]
    certified: int  # up to this height: it has a certificate, or was packed as all that is final

    @property
    def heights(self) -> Sequence[int]:
        return range(len(self.ids))

    def find(self, text: str) -> VertexRow:
        """See View."""
        return self._row(_place(text, self))

    def newest_of(self, newest: VertexRow, count: int) -> list[VertexRow]:
        highest = newest.vertex.height
        return [self._row(height) for height in range(highest, max(-1, highest - count), -1)]

    def last(self, count: int) -> Sequence[VertexRow]:
        return [self._row(at) for at in range(max(0, len(self.ids) - count), len(self.ids))]

    def with_children(self, rows: Sequence[VertexRow]) -> Sequence[VertexRow]:
        above = max(row.vertex.height for row in rows) + 1
        return [*rows, self._row(above)] if above < len(self.ids) else rows

    def _row(self, height: int) -> VertexRow:
        name = f"{VERTICES}/{self.ids[height].hex()}"
        try:
            vertex = read_vertex(self.files, self.ids[height])
        except (DagError, Unreadable) as fault:
            raise _damaged(f"{name}: {fault}") from None
        return _row(self.files, self._has, vertex, height <= self.certified)

    def _has(self, name: str) -> bool:
        return name not in self.leaving and _is_there(self.files, name)


def own_view(directory: Path) -> View:
    """Of a node's chain/, as it has left it: as much is read as is asked for (see kept_ids).

    Raises UserError as `view_chain` does, which is asked where that cannot be.
    """
    files = ChainFiles(directory)
    kept = kept_ids(files)
    ids = None if kept is None else _in_line(files, kept)
    if kept is None or ids is None:
        return view_chain(directory)
    newer = range(len(kept.ids), len(ids))
    signed = [at for at in newer if _is_there(files, f"{CERTIFICATES}/{exec_name(ids[at])}")]
    return LineView(files, kept.beside.leaving, ids, max(signed, default=newer.start - 1))


def _in_line(files: ChainFiles, kept: KeptIds) -> list[VertexId] | None:
    """By height, with those that came later; None if some do not stand on the others."""
    ids, newer = list(kept.ids), list[Vertex]()
    for name in kept.beside.names(VERTICES):
        try:
            vertex_id = VertexId(bytes.fromhex(name.partition("/")[2]))
            vertex = read_vertex(files, vertex_id)
        except (DagError, Unreadable):
            return None
        if vertex.height >= len(ids):
            newer.append(vertex)
        elif ids[vertex.height] != vertex_id:
            return None
    for vertex in sorted(newer, key=lambda vertex: vertex.height):
        if vertex.height != len(ids) or vertex.parents != (ids[-1],):
            return None
        ids.append(vertex.vertex_id)
    return ids


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
    has = listing.sizes.__contains__
    rows: list[VertexRow] = []
    below = set[VertexId]()  # what is certified
    for vertex_id in reversed(graph.canonical_order()):
        row = _row(files, has, by_id[vertex_id], vertex_id in below)
        if row.is_certified:
            below.update(row.vertex.parents)
        rows.append(row)
    return ChainView(tuple(reversed(rows)), graph)


def _place(text: str, view: View) -> int:
    heights = view.heights
    place = find_place(text, view.ids, heights)
    if place is None:
        raise UserError(
            f"there is no vertex {text} here; heights {heights[0]} to {heights[-1]} are"
        )
    return place


def _vertex(files: ChainFiles, name: str) -> Vertex:
    try:
        return decode_vertex(files.read(name, VERTEX_BYTES_MAX))
    except (DagError, Unreadable) as fault:
        raise _damaged(f"{name}: {fault}") from None


def _row(
    files: ChainFiles, has: Callable[[str], bool], vertex: Vertex, is_known: bool
) -> VertexRow:
    """`is_known` to be certified, by what stands on it."""
    states = (vertex.model_root, vertex.outer_state_root)
    signers = _signers(files, has, vertex.vertex_id)
    return VertexRow(
        vertex.vertex_id,
        vertex,
        signers,
        has(f"{DELTAS}/{vertex.delta_root.hex()}"),
        all(has(f"{MANIFESTS}/{root.hex()}") for root in states),
        is_known or bool(signers),
    )


def _signers(
    files: ChainFiles, has: Callable[[str], bool], vertex_id: VertexId
) -> tuple[NodeId, ...]:
    name = f"{CERTIFICATES}/{exec_name(vertex_id)}"
    if not has(name):
        return ()
    try:
        payload = files.read(name, LIMITS.certificate_bytes_max)
        certificate = decode_certificate(payload, LIMITS)
    except (BadMessage, Unreadable) as fault:
        raise _damaged(f"{name}: {fault}") from None
    return tuple(signer for signer, _ in certificate.signatures)


def _is_there(files: ChainFiles, name: str) -> bool:
    """Raises UserError where packs that may hold it cannot be read."""
    try:
        return files.has(name)
    except Unreadable as fault:
        raise _damaged(f"{name}: {fault}") from None


def _damaged(detail: str) -> UserError:
    return UserError(f"{detail}; `daa-node checkpoint verify` says what else is wrong", exit_code=1)
