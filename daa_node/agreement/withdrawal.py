"""Whether this node trains no more by its operator's own word, kept over restarts.

    here --retired--> withdrawn --enroll, or join--> here

`enroll: true` in config.yaml says what a node does by itself, and `join` has written it there for
good: without a record the next start would undo what its operator asked for. That the record is
there says all; it is durable before anybody else hears of it.
"""

from daa_dag import canonical
from daa_node.seams import BlobStore

KIND, NAME, VERSION = "withdrawal", "retired", 1  # of its record in the work store


class Withdrawal:
    """Of one node. Its methods raise StorageFailed."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self.is_kept = False

    async def load(self) -> None:
        """As it was when the process before this one ended."""
        self.is_kept = await self._store.has_record(KIND, NAME)

    async def keep(self) -> None:
        await self._store.put_record(KIND, NAME, canonical.encode([VERSION]))
        self.is_kept = True

    async def forget(self) -> None:
        """Durable once this returns."""
        await self._store.delete_record(KIND, NAME)
        await self._store.settle((KIND,))
        self.is_kept = False
