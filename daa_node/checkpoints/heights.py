"""Which vertex a chain has at each height: ids alone, since a chain is as long as it was lived.

A height whose vertex is not here yet, or is damaged, is open.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from daa_dag.checkpoint import ZERO_ID, Vertex
from daa_dag.ids import DIGEST_BYTES, VertexId, digest_of
from daa_node.checkpoints.rows import Rows
from daa_node.errors import StorageFailed
from daa_node.seams import BlobStore

HEIGHTS = "heights"  # of the rows


# Heights in a row that a disk may have lost: half a year at a round a minute, 50 MB till they come
LACKING_MAX = 2**18


class Heights:
    """From 0 up. All but the newest are read from the disk: that raises StorageFailed."""

    def __init__(
        self, work: BlobStore, height_of: Callable[[VertexId], Awaitable[int | None]]
    ) -> None:
        """`height_of` reads what a vertex that is stored says of itself; None if none is."""
        self.rows = Rows(work, HEIGHTS, DIGEST_BYTES)
        self._height_of = height_of
        self._open: dict[bytes, int] = {}  # the height of what stands for a vertex that is not here

    def __len__(self) -> int:
        """How many vertices are here."""
        return len(self.rows) - len(self._open)

    @property
    def is_whole(self) -> bool:
        """Whether no height below the newest is open."""
        return not self._open

    @property
    def newest(self) -> VertexId:
        """The highest; there is one."""
        return VertexId(self.rows.recent(len(self.rows) - 1))

    async def has(self, vertex_id: VertexId) -> bool:
        """Whether this vertex is one of these."""
        if vertex_id in self._open:
            return False
        at = self.rows.rest.find(vertex_id)
        while at % DIGEST_BYTES and at >= 0:  # across two ids
            at = self.rows.rest.find(vertex_id, at + 1)
        if at >= 0:
            return True
        height = await self._height_of(vertex_id) if self.rows.closed else None
        return height is not None and await self.at(height) == vertex_id

    async def at(self, height: int) -> VertexId | None:
        if not 0 <= height < len(self.rows):
            return None
        vertex_id = await self.rows.row(height)
        return None if vertex_id in self._open else VertexId(vertex_id)

    async def ids(self, lowest: int = 0) -> AsyncIterator[VertexId]:
        """Of what is here from this height up."""
        for height in range(lowest, len(self.rows)):
            vertex_id = await self.at(height)
            if vertex_id is not None:
                yield vertex_id

    async def take(self, at_height: Iterable[tuple[int, VertexId]]) -> None:
        """All that lie on a disk, in any order."""
        for height, vertex_id in sorted(at_height):
            await self._place(height, vertex_id)

    async def add(self, vertex: Vertex) -> None:
        """Again changes nothing. Raises StorageFailed for a second vertex of one height."""
        await self._place(vertex.height, vertex.vertex_id)

    async def close(self) -> None:
        """Keep on the disk what is long past."""
        if self.is_whole:
            await self.rows.close(len(self.rows))

    async def _place(self, height: int, vertex_id: VertexId) -> None:
        known = await self.at(height)
        if known == vertex_id:
            return
        if known is not None:
            raise StorageFailed(
                f"vertices/{known.hex()} and vertices/{vertex_id.hex()} are both of height "
                f"{height}: one chain has one"
            )
        if height - len(self.rows) > LACKING_MAX:
            raise StorageFailed(
                f"vertices/{vertex_id.hex()} says that it is of height {height}, and nothing lies "
                f"between {len(self.rows)} and that: it does not belong there"
            )
        while len(self.rows) < height:
            self._leave_open(len(self.rows))
        if len(self.rows) == height:
            self.rows.append(vertex_id)
        else:
            del self._open[self.rows.recent(height)]
            self.rows.replace(height, vertex_id)

    def _leave_open(self, height: int) -> None:
        name = digest_of(ZERO_ID + height.to_bytes(8))  # no vertex has this id
        self._open[name] = height
        self.rows.append(name)
