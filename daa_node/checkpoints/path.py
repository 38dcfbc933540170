"""Where each final block stands on the chain, so that nobody's question makes us search for one."""

from collections.abc import Container, Sequence

from daa_dag.ids import BlockId


class FinalPath:
    """Ids of final blocks, oldest first; 0.2 kB of memory a block."""

    def __init__(self) -> None:
        self._ids: list[BlockId] = []
        self._places: dict[BlockId, int] = {}

    def __contains__(self, block_id: BlockId) -> bool:
        return block_id in self._places

    @property
    def newest(self) -> BlockId | None:
        return self._ids[-1] if self._ids else None

    def lead_on(self, below: BlockId, above: Sequence[BlockId]) -> None:
        """`above`, newest first, stand on `below`; what stood there only carried an epoch's proof.

        Where `below` is not on the path yet, `above` is the whole of it.
        """
        length = self._places.get(below, -1) + 1
        for block_id in self._ids[length:]:
            del self._places[block_id]
        del self._ids[length:]
        for block_id in reversed(above):
            self._places[block_id] = len(self._ids)
            self._ids.append(block_id)

    def above(self, block_id: BlockId, count_max: int) -> list[BlockId] | None:
        """At most so many right above this one, oldest first; None if it is not on the path."""
        place = self._places.get(block_id)
        return None if place is None else self._ids[place + 1 : place + 1 + count_max]

    def lowest_above(self, block_id: BlockId, among: Container[BlockId]) -> BlockId | None:
        """The lowest block above this one, which is on the path, that is one of those."""
        for place in range(self._places[block_id] + 1, len(self._ids)):
            if self._ids[place] in among:
                return self._ids[place]
        return None
