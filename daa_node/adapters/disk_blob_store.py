"""The BlobStore seam over files: every call of a BlobDirectory or its records runs in a thread."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot
from daa_node.adapters.blob_directory import BlobDirectory, PartialBlob
from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.offload import ThreadOffload
from daa_node.seams import Offload, Tally

T = TypeVar("T")

# Enough for the disk to overlap a few syncs; more threads only queue behind the same disk.
THREADS_MAX = 4


class DiskBlobStore:
    """Its records and its blobs; `directory` is for who needs their paths."""

    def __init__(
        self,
        root: Path,
        recycled: Collection[str] = (),
        shortage: Shortage | None = None,
        offload: Offload | None = None,
    ) -> None:
        self.directory = BlobDirectory(root, recycled)
        self.tally: Tally = self.directory.records.tally
        self._disk = _Patient(offload or ThreadOffload(THREADS_MAX), shortage or Shortage())

    async def put_record(
        self, kind: str, name: str, payload: bytes, durable: bool = True, anew: bool = False
    ) -> None:
        def put() -> None:
            self.directory.records.put_record(kind, name, payload, durable)
            if anew:  # from now on the loose one is found first
                self.directory.packs.delete(kind, name)

        await self._run(put)

    async def get_record(self, kind: str, name: str) -> bytes | None:
        return await self._run(lambda: self.directory.get_record(kind, name))

    async def has_record(self, kind: str, name: str) -> bool:
        return await self._run(lambda: self.directory.has_record(kind, name))

    async def record_names(self, kind: str, packed: bool = True) -> list[str]:
        return await self._run(lambda: self.directory.record_names(kind, packed))

    async def packed_count(self, kind: str, but: Collection[str]) -> int:
        return await self._run(lambda: self.directory.packs.count(kind, but))

    async def delete_record(self, kind: str, name: str) -> None:
        await self._run(lambda: self.directory.delete_record(kind, name))

    async def settle(self, kinds: Sequence[str]) -> None:
        await self._run(lambda: self.directory.settle(kinds))

    async def pack(self, kinds: Sequence[str], files_min: int, but: Collection[str] = ()) -> int:
        return await self._run(lambda: self.directory.packs.pack(kinds, files_min, but))

    async def merge_packs(self) -> int:
        return await self._run(self.directory.packs.merge)

    async def begin_blob(
        self, kind: str, manifest: Manifest, anew: bool = False
    ) -> "DiskBlobWriter":
        partial = await self._run(lambda: self.directory.begin_blob(kind, manifest, anew))
        return DiskBlobWriter(partial, self._disk)

    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        return await self._run(lambda: self.directory.blob_manifest(kind, root))

    async def read_chunk(self, kind: str, root: BlobRoot, index: int) -> bytes:
        return await self._run(lambda: self.directory.read_chunk(kind, root, index))

    async def read_into(
        self, kind: str, root: BlobRoot, indices: Sequence[int], target: memoryview
    ) -> None:
        await self._run(lambda: self.directory.read_into(kind, root, indices, target))

    async def view_blob(self, kind: str, root: BlobRoot) -> memoryview:
        return await self._run(lambda: self.directory.view_blob(kind, root))

    async def make_durable(self, kind: str, root: BlobRoot) -> None:
        await self._run(lambda: self.directory.make_durable(kind, root))

    async def blob_roots(self, kind: str) -> list[BlobRoot]:
        return await self._run(lambda: self.directory.blob_roots(kind))

    async def delete_blob(self, kind: str, root: BlobRoot) -> None:
        await self._run(lambda: self.directory.delete_blob(kind, root))

    async def adopt_file(
        self, kind: str, path: Path, manifest: Manifest, durable: bool = False
    ) -> None:
        """See BlobDirectory.adopt_file."""
        await self._run(lambda: self.directory.adopt_file(kind, path, manifest, durable))

    async def _run(self, work: Callable[[], T]) -> T:
        return await self._disk.run(work)


class DiskBlobWriter:
    """The BlobWriter seam over a PartialBlob."""

    def __init__(self, partial: PartialBlob, disk: "_Patient") -> None:
        self._partial = partial
        self._disk = disk

    def missing(self) -> list[int]:
        return self._partial.missing()

    async def write_chunk(self, index: int, payload: bytes) -> None:
        await self._disk.run(lambda: self._partial.write_chunk(index, payload))

    async def write_chunks(self, chunks: Sequence[tuple[int, bytes | memoryview]]) -> None:
        await self._disk.run(lambda: self._partial.write_chunks(chunks))

    async def read_into(self, indices: Sequence[int], target: memoryview) -> None:
        await self._disk.run(lambda: self._partial.read_into(indices, target))

    async def commit(self, durable: bool = True) -> None:
        await self._disk.run(lambda: self._partial.commit(durable))


class _Patient:
    """Work off the event loop, and patience with what finds no descriptor there."""

    def __init__(self, offload: Offload, shortage: Shortage) -> None:
        self._offload = offload
        self._shortage = shortage

    async def run(self, work: Callable[[], T]) -> T:
        return await self._shortage.outlast(lambda: self._offload.run(work))
