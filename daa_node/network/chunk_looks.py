"""Which chunks of a snapshot lie here: one look at the directory for all who ask."""

from collections.abc import Set

import trio

from daa_dag.chunking import Manifest
from daa_dag.spread import mask_of
from daa_node.prompt_lock import PromptLock
from daa_node.seams import BlobStore

CHUNKS = "chunks"  # a kind of records in the store of snapshots
# How old our own answer to "which chunks do you have" may be: a look reads a directory.
LOOK_HOLDS_S = 5.0
LOOK_SHARE = 20  # looks take one in so many seconds at most, whoever asks for whatever is not whole


class ChunkLooks:
    """The names of all chunks that were here when we looked last, for LOOK_HOLDS_S at least."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._names: Set[str] = frozenset()
        self._lock = PromptLock()
        self.looked_s = self._again_s = float("-inf")  # when we did, and when we may again

    def forget_stale(self) -> None:
        """They may be a million."""
        if self._is_stale():
            self._names = frozenset()

    async def mask(self, manifest: Manifest, since_s: float) -> int:
        """Of the chunks that are here. Raises StorageFailed.

        A look shows that of each state that is whole, so who asks for one after the other costs one
        look in LOOK_HOLDS_S. What may have come before `since_s` is seen by another look, where the
        last one is so long ago that looks keep to their share of the time.
        """
        async with self._lock:
            here = 0 if self._is_stale() else self._among(manifest)
            is_whole = here.bit_count() == len(manifest.digests)
            began_s = trio.current_time()
            is_due = self.looked_s < since_s and began_s >= self._again_s
            if not is_whole and (is_due or self._is_stale()):
                self._names = frozenset(await self._store.record_names(CHUNKS))
                self.looked_s = trio.current_time()
                self._again_s = self.looked_s + LOOK_SHARE * (self.looked_s - began_s)
                here = self._among(manifest)
        return here

    def _is_stale(self) -> bool:
        return trio.current_time() > max(self.looked_s + LOOK_HOLDS_S, self._again_s)

    def _among(self, manifest: Manifest) -> int:
        return mask_of(i for i, name in enumerate(manifest.digests) if name.hex() in self._names)
