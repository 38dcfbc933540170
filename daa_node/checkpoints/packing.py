"""Months of history in few files: what has become many small ones is moved into packs.

A file of a chain never changes, so any may move, and readers see no difference (see the BlobStore
seam). It is done beside the training, where snapshots are stored. States and deltas that a policy
will let go stay files of their own: taking one out of a pack means to write that pack anew.
"""

from daa_dag.retention import Retention
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import KINDS, PROOFS
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog

LOOSE_FILES_MAX = 256  # deltas apart; fewer at a time make more packs to merge


class Packing:
    """Of one chain."""

    def __init__(self, chain: ChainStore, retention: Retention, log: EventLog) -> None:
        self._chain = chain
        self._kinds = KINDS if retention.vertices_restorable is None else PROOFS
        self._log = log

    async def run(self) -> None:
        """Pack and merge what is due. A disk that fails changes nothing, and is told of."""
        try:
            moved = await self._chain.pack(self._kinds, LOOSE_FILES_MAX)
            merged = await self._chain.store.merge_packs() if moved else 0
        except StorageFailed as failure:
            self._log.emit(events.STORAGE_FAILED, detail=str(failure))
            return
        if moved:
            self._log.emit(events.DATA_PACKED, files=moved, merged=merged)
