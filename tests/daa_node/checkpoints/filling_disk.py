"""A disk that is full, or a process that is dead, after so many changes."""

from collections.abc import Collection, Sequence

from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot
from daa_node.checkpoints.chain import ChainStore
from daa_node.errors import StorageFailed
from daa_node.seams import BlobStore, BlobWriter
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker


class FillingDisk:
    """A blob store whose disk is full, or whose process is dead, after so many changes."""

    def __init__(self, store: BlobStore, room: list[int]) -> None:
        self._store = store
        self.tally = store.tally
        self._room = room  # shared by the stores of one disk

    def _change(self) -> None:
        if self._room[0] <= 0:
            raise StorageFailed("no space left on device")
        self._room[0] -= 1

    async def put_record(
        self, kind: str, name: str, payload: bytes, durable: bool = True, anew: bool = False
    ) -> None:
        self._change()
        await self._store.put_record(kind, name, payload, durable, anew)

    async def get_record(self, kind: str, name: str) -> bytes | None:
        return await self._store.get_record(kind, name)

    async def has_record(self, kind: str, name: str) -> bool:
        return await self._store.has_record(kind, name)

    async def pack(self, kinds: Sequence[str], files_min: int, but: Collection[str] = ()) -> int:
        self._change()
        return await self._store.pack(kinds, files_min, but)

    async def merge_packs(self) -> int:
        self._change()
        return await self._store.merge_packs()

    async def record_names(self, kind: str, packed: bool = True) -> list[str]:
        return await self._store.record_names(kind, packed)

    async def packed_count(self, kind: str, but: Collection[str]) -> int:
        return await self._store.packed_count(kind, but)

    async def delete_record(self, kind: str, name: str) -> None:
        self._change()
        await self._store.delete_record(kind, name)

    async def settle(self, kinds: Sequence[str]) -> None:
        await self._store.settle(kinds)

    async def begin_blob(self, kind: str, manifest: Manifest, anew: bool = False) -> BlobWriter:
        self._change()
        return await self._store.begin_blob(kind, manifest, anew)

    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        return await self._store.blob_manifest(kind, root)

    async def read_chunk(self, kind: str, root: BlobRoot, index: int) -> bytes:
        return await self._store.read_chunk(kind, root, index)

    async def read_into(
        self, kind: str, root: BlobRoot, indices: Sequence[int], target: memoryview
    ) -> None:
        await self._store.read_into(kind, root, indices, target)

    async def view_blob(self, kind: str, root: BlobRoot) -> memoryview:
        return await self._store.view_blob(kind, root)

    async def make_durable(self, kind: str, root: BlobRoot) -> None:
        await self._store.make_durable(kind, root)

    async def blob_roots(self, kind: str) -> list[BlobRoot]:
        return await self._store.blob_roots(kind)

    async def delete_blob(self, kind: str, root: BlobRoot) -> None:
        self._change()
        await self._store.delete_blob(kind, root)


def filling(maker: ChainMaker, room: int) -> ChainStore:
    left = [room]
    return ChainStore(FillingDisk(maker.store, left), FillingDisk(maker.work, left), FACTS.limits)
