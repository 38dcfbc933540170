"""What a chain directory holds, however much: names in a file and in the packs' own indexes.

Taken at one moment, as `Listing` is. While it is used a running daemon may merge packs: a record is
looked for in those that there are then.
"""

from collections.abc import Callable, Iterator, Sequence

from daa_node.checkpoints.chain_index import ChainIndex
from daa_node.checkpoints.layout import KINDS, Group, unsettled
from daa_node.checkpoints.packed_files import PackedFiles, Shelf
from daa_node.checkpoints.plain_files import GONE, Gone, Problem

MERGES_MAX = 50  # while one record is looked for


class LongListing:
    """Of the files that `index` knows and of the packs of a shelf."""

    def __init__(
        self,
        packs: PackedFiles,
        pack_names: Callable[[], list[str]],
        shelf: Shelf,
        index: ChainIndex,
        strange: tuple[Problem, ...],
    ) -> None:
        self._packs = packs
        self._pack_names = pack_names
        self._index = index
        self._now = self.shelf = shelf
        self.strange = strange
        self.arriving: frozenset[str] = frozenset()
        self.leaving: frozenset[str] = frozenset()
        self.twice: frozenset[str] = frozenset()

    def settle(self, groups: Sequence[Group]) -> None:
        """See which groups of a publishing note are under way. Raises Unreadable."""
        self._packs.keep_open(self.shelf)
        if self.shelf.heads:
            loose = self._index.names.loose()
            self.twice = frozenset(name for name, _ in loose if self._is_packed(name))
        arriving, leaving = unsettled(list(groups), self)
        self.arriving, self.leaving = frozenset(arriving), frozenset(leaving)

    def __contains__(self, name: object) -> bool:
        """Raises Unreadable."""
        if not isinstance(name, str) or name in self.leaving:
            return False
        return self._index.names.is_loose(name) or self._is_packed(name)

    def each(self, kinds: Sequence[str] = KINDS) -> Iterator[str]:
        """Every name, once. Raises Unreadable; Gone where it cannot be told any more."""
        for name, _ in self.each_size(kinds):
            yield name

    def each_size(self, kinds: Sequence[str] = KINDS) -> Iterator[tuple[str, int]]:
        """With its bytes."""
        for name, size_bytes in self._index.names.loose():
            if name.partition("/")[0] in kinds and name not in self.leaving:
                yield name, size_bytes
        now, heads, then = self._shelf_now(), [*self.shelf.heads], {*self.shelf.heads}
        still = {*now.heads}  # sets: somebody may have made tens of thousands
        if not all(head in still or self._packs.is_open(head) for head in heads):
            # those besides were made of files, which have come since or are told of above
            heads = [head for head in now.heads if head in then or head.replaces]
        for kind in kinds:
            for name, size_bytes, head in self._packs.each(heads, kind):
                if name in self.leaving or self._index.names.is_loose(name):
                    continue
                if head in then:
                    yield name, size_bytes
                elif not self._index.names.uses(name):
                    raise Gone(GONE)  # has come since, or was in a pack that is no more

    def _is_packed(self, name: str) -> bool:
        for _ in range(MERGES_MAX):
            try:
                return self._packs.has(self._now, name)
            except Gone:
                self._now = self._shelf_now()
        raise Gone(GONE)

    def _shelf_now(self) -> Shelf:
        return self._packs.shelf(self._pack_names(), [])
