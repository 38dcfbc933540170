"""Months of history in few files: what has become many small ones is moved into packs.

A file of a chain never changes, so any may move, and readers see no difference (see the BlobStore
seam). It is done by a task of its own, woken each round: a merge of a gigabyte takes seconds, and
what is read and written goes on meanwhile. States and deltas that a policy will let go are put into
packs of their own, which are small: taking one out of a pack means to write that pack anew. Those
of a large model stay files.
"""

from collections.abc import Sequence

import trio

from daa_dag.retention import Retention
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import KINDS, PROOFS, STATES
from daa_node.checkpoints.recollection import keep_pack_names
from daa_node.checkpoints.thinning import thin
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog

LOOSE_FILES_MAX = 256  # deltas apart; fewer at a time make more packs to merge
PAUSE_ROUNDS_MAX = 64  # a full disk is written to, and told of, seldom
# Weights of a model whose states are packed though they go again: each is written some three times
# more. Of a larger one few files are as good.
PACKED_WEIGHTS_BYTES_MAX = 4 * 2**20


class Packing:
    """Of one chain."""

    def __init__(self, chain: ChainStore, retention: Retention, log: EventLog) -> None:
        self._chain = chain
        self.retention = retention
        self._light_below: int | None = None  # epochs below are light, or will never be
        self._log = log
        self._wanted = trio.Event()
        self._pause = 0  # rounds to let go by once it has failed; 0: it has not
        self._left = 0  # of these

    def wake(self) -> None:
        """Look soon at what lies there."""
        self._wanted.set()

    async def keep(self) -> None:
        """At once, and whenever that is wanted; until cancelled. No round waits for it."""
        self.wake()  # a job that has ended wakes nobody, and may have left files
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await self.run()

    async def run(self) -> None:
        """Pack and merge what is due. A disk that fails changes nothing, and is told of once."""
        if self._left:
            self._left -= 1
            return
        try:
            has_thinned = await self.thin()
            moved = await self._chain.pack(
                await self._kinds(), LOOSE_FILES_MAX, self.retention.lets_go
            )
            merged = await self._chain.store.merge_packs() if moved else 0
            if merged:
                await keep_pack_names(self._chain)
        except StorageFailed as failure:
            if not self._pause:
                self._log.emit(events.STORAGE_FAILED, detail=str(failure))
            self._left = self._pause = min(2 * self._pause or 1, PAUSE_ROUNDS_MAX)
            return
        if moved or has_thinned:
            self.wake()  # each takes a batch, and more may lie there
        if moved:
            self._pause = 0
            self._log.emit(events.DATA_PACKED, files=moved, merged=merged)

    async def thin(self, at_once: int | None = None) -> bool:
        """Old epochs lose all certificates but one; whether some have, `at_once` at the least.

        Raises StorageFailed.
        """
        lowest = self._light_below
        if lowest is None:
            lowest = self._chain.path.light_below
        above = await thin(self._chain, self.retention, lowest, at_once)
        self._light_below = lowest if above is None else above
        if above is not None:
            self._log.emit(events.HISTORY_THINNED, epochs_light=above)
        return above is not None

    async def _kinds(self) -> Sequence[str]:
        if not self.retention.lets_go:
            return KINDS
        newest = await self._chain.newest()
        weights = await self._chain.work.blob_manifest(STATES, newest.model_root)
        is_small = weights is not None and weights.size_bytes <= PACKED_WEIGHTS_BYTES_MAX
        return KINDS if is_small else PROOFS
