"""The shape of the checkpoint DAG: tips, ancestors, merge points, and one order for everybody.

Only ids, parents and heights: vertices themselves stay on disk. A vertex may be known before its
parents (a pruned or partial store); the missing ones are named by `missing`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from daa_dag.checkpoint import Vertex
from daa_dag.errors import Malformed
from daa_dag.ids import VertexId


@dataclass(frozen=True, slots=True)
class Link:
    """What the graph keeps of a vertex."""

    vertex_id: VertexId
    parents: tuple[VertexId, ...]
    height: int


class CheckpointGraph:
    """Grows by `add`; every answer is the same whatever the order of the additions."""

    def __init__(self) -> None:
        self._links: dict[VertexId, Link] = {}
        self._named: set[VertexId] = set()  # as a parent, known or not

    def __len__(self) -> int:
        return len(self._links)

    def __contains__(self, vertex_id: VertexId) -> bool:
        return vertex_id in self._links

    def add(self, vertex: Vertex) -> None:
        """Adding a vertex again changes nothing.

        Raises Malformed unless it is one higher than its highest known parent. An id covers the
        parents' ids, so no order of additions makes a cycle.
        """
        link = Link(vertex.vertex_id, vertex.parents, vertex.height)
        known = [self._links[parent].height for parent in link.parents if parent in self._links]
        if known and len(known) == len(link.parents) and link.height != max(known) + 1:
            raise Malformed(f"height {link.height} above parents of height {max(known)}")
        self._links[link.vertex_id] = link
        self._named.update(link.parents)

    def link(self, vertex_id: VertexId) -> Link | None:
        return self._links.get(vertex_id)

    def at_height(self, height: int) -> list[VertexId]:
        """Vertices of this height, sorted by id."""
        return sorted(link.vertex_id for link in self._links.values() if link.height == height)

    def tips(self) -> list[VertexId]:
        """Vertices that no vertex builds on, highest first, then by id."""
        ends = [v for v in self._links if v not in self._named]
        return sorted(ends, key=lambda v: (-self._links[v].height, v))

    def missing(self) -> list[VertexId]:
        """Parents that some vertex names and that are not here, sorted."""
        return sorted(self._named - self._links.keys())

    def ancestors(self, vertex_id: VertexId) -> set[VertexId]:
        """Every vertex below, as far as it is known; without the vertex itself."""
        found: set[VertexId] = set()
        below = [vertex_id]
        while below:
            for parent in self._links[below.pop()].parents:
                if parent in self._links and parent not in found:
                    found.add(parent)
                    below.append(parent)
        return found

    def merge_points(self) -> list[VertexId]:
        """Vertices with more than one parent, in canonical order."""
        return [v for v in self.canonical_order() if len(self._links[v].parents) > 1]

    def canonical_order(self) -> list[VertexId]:
        """Parents before children, lower before higher, ties by id."""
        return sorted(self._links, key=lambda v: (self._links[v].height, v))


def graph_of(vertices: Iterable[Vertex]) -> CheckpointGraph:
    """The graph of these vertices. Raises Malformed as `add` does."""
    graph = CheckpointGraph()
    for vertex in vertices:
        graph.add(vertex)
    return graph
