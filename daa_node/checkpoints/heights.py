"""Which vertex a chain has at each height: ids alone, since a chain is as long as it was lived.

A height whose vertex is not here yet, or is damaged, is open.
"""

from collections.abc import Iterable, Iterator

from daa_dag.checkpoint import ZERO_ID, Vertex
from daa_dag.ids import VertexId, digest_of
from daa_node.checkpoints.digests import Digests
from daa_node.errors import StorageFailed


class Heights:
    """From 0 up."""

    def __init__(self) -> None:
        self._ids = Digests()  # by height
        self._open: dict[bytes, int] = {}  # the height of what stands for a vertex that is not here

    def __len__(self) -> int:
        """How many vertices are here."""
        return len(self._ids) - len(self._open)

    def __contains__(self, vertex_id: VertexId) -> bool:
        return vertex_id in self._ids and vertex_id not in self._open

    @property
    def newest(self) -> VertexId:
        """The highest; there is one."""
        return VertexId(self._ids[len(self._ids) - 1])

    def at(self, height: int) -> VertexId | None:
        if not 0 <= height < len(self._ids):
            return None
        vertex_id = self._ids[height]
        return None if vertex_id in self._open else VertexId(vertex_id)

    def ids(self, lowest: int = 0) -> Iterator[VertexId]:
        """Of what is here from this height up."""
        for height in range(lowest, len(self._ids)):
            vertex_id = self.at(height)
            if vertex_id is not None:
                yield vertex_id

    @property
    def joined(self) -> bytes | None:
        """All ids one behind the other, in the order of heights; None if one is not here."""
        return None if self._open else self._ids.joined

    def take(self, at_height: Iterable[tuple[int, VertexId]]) -> None:
        """All that lie on a disk, in any order. Raises StorageFailed."""
        for height, vertex_id in sorted(at_height):
            self._place(height, vertex_id)

    def add(self, vertex: Vertex) -> None:
        """Again changes nothing. Raises StorageFailed for a second vertex of one height."""
        self._place(vertex.height, vertex.vertex_id)

    def _place(self, height: int, vertex_id: VertexId) -> None:
        if vertex_id in self:
            return
        known = self.at(height)
        if known is not None:
            raise StorageFailed(
                f"vertices/{known.hex()} and vertices/{vertex_id.hex()} are both of height "
                f"{height}: one chain has one"
            )
        while len(self._ids) < height:
            self._leave_open(len(self._ids))
        above = [self._ids[at] for at in range(height + 1, len(self._ids))]
        self._ids.cut(height)
        self._open = {name: at for name, at in self._open.items() if at != height}
        for name in (vertex_id, *above):
            self._ids.add(name)

    def _leave_open(self, height: int) -> None:
        name = digest_of(ZERO_ID + height.to_bytes(8))  # no vertex has this id
        self._open[name] = height
        self._ids.add(name)
