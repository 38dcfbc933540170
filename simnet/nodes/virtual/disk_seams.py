"""A node's BlobStore and Journal on a simulated disk: the steps of the real adapters, in time.

A durable write is made beside, synced, renamed, and its folder synced; between these steps time
passes, in which the power may go, or others overtake. What a sync has failed on is removed, and a
log is written anew, as daa_node.adapters.durable_files and disk_journal have it.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import chain

import trio

from daa_dag.chunking import Manifest, decode_manifest, manifest_of
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, digest_of
from daa_node.adapters.journal_format import framed, guard_of, guarded, log_of, records_of
from daa_node.errors import StorageFailed
from daa_node.seams import Tally
from simnet.nodes.virtual.disk import GUARD, LOG, File, folder_of
from simnet.nodes.virtual.disk_mount import Mount
from simnet.nodes.virtual.disk_packs import MemoryPacks
from simnet.nodes.virtual.scheduling import elapse

MANIFESTS = "manifests"


Arrival = Callable[[BlobRoot], Awaitable[None]]


class FolderTally:
    """Of one folder of a disk."""

    def __init__(self, mount: Mount, folder: str) -> None:
        self._mount = mount
        self._start = f"{folder}/"

    def total(self) -> int:
        files = self._mount.now().files
        return sum(len(files[path]) for path in files if path.startswith(self._start))


class MemoryStore:
    """A BlobStore in one folder of a disk; `arrival` ends when what a blob stands for has come."""

    def __init__(self, mount: Mount, folder: str, arrival: Arrival | None = None) -> None:
        self._mount = mount
        self._folder = folder
        self.arrival = arrival
        self._manifests: dict[BlobRoot, Manifest] = {}
        self._packs = MemoryPacks(mount, folder)
        self.tally: Tally = FolderTally(mount, folder)

    async def put_record(
        self, kind: str, name: str, payload: bytes, durable: bool = True, anew: bool = False
    ) -> None:
        await self._mount.put(_path(self._folder, kind, name), bytes(payload), durable)
        if anew:
            self._packs.delete(kind, name)

    async def get_record(self, kind: str, name: str) -> bytes | None:
        disk = await self._mount.read()
        loose = disk.files.get(_path(self._folder, kind, name))
        return self._packs.get(kind, name) if loose is None else loose

    async def has_record(self, kind: str, name: str) -> bool:
        return await self.get_record(kind, name) is not None

    async def pack(self, kinds: Sequence[str], files_min: int, but: Collection[str] = ()) -> int:
        return await self._packs.pack(kinds, files_min, but)

    async def merge_packs(self) -> int:
        return await self._packs.merge()

    async def record_names(self, kind: str, packed: bool = True) -> list[str]:
        loose = (await self._mount.read()).names[f"{self._folder}/{kind}"].keys()
        return sorted(loose | self._packs.names(kind) if packed else loose)

    async def packed_count(self, kind: str, but: Collection[str]) -> int:
        return len(self._packs.names(kind).difference(but))

    async def delete_record(self, kind: str, name: str) -> None:
        (await self._mount.read()).remove(_path(self._folder, kind, name))
        self._packs.delete(kind, name)

    async def settle(self, kinds: Sequence[str]) -> None:
        disk = await self._mount.written(0, syncs=True)
        for kind in kinds:
            disk.sync_names(f"{self._folder}/{kind}")
        await self._packs.purge()

    async def begin_blob(self, kind: str, manifest: Manifest, anew: bool = False) -> "MemoryWriter":
        held = not anew and await self.blob_manifest(kind, manifest.root) is not None
        partial = _partial(self._folder, kind, manifest.root)
        return MemoryWriter(self, self._mount, kind, manifest, partial, held, anew)

    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        if not await self.has_record(kind, root.hex()):
            return None
        if root not in self._manifests:
            encoded = await self.get_record(MANIFESTS, root.hex())
            if encoded is None:
                return None
            try:
                manifest = decode_manifest(encoded)
            except DagError:
                return None
            if manifest.root != root:
                return None
            self._manifests[root] = manifest
        return self._manifests[root]

    async def read_chunk(self, kind: str, root: BlobRoot, index: int) -> bytes:
        manifest = await _manifest_of(self, kind, root)
        if not 0 <= index < len(manifest.sizes):
            raise StorageFailed(f"no chunk {index} of {kind}/{root.hex()}")
        start = manifest.offsets[index]
        chunk = bytes(self._packs.blob(kind, root)[start : start + manifest.sizes[index]])
        if len(chunk) != manifest.sizes[index]:
            raise StorageFailed(f"{kind}/{root.hex()} ends inside chunk {index}")
        return chunk

    async def read_into(
        self, kind: str, root: BlobRoot, indices: Sequence[int], target: memoryview
    ) -> None:
        at = 0
        for index in indices:
            chunk = await self.read_chunk(kind, root, index)
            target[at : at + len(chunk)] = chunk
            at += len(chunk)
        assert at == len(target)

    async def view_blob(self, kind: str, root: BlobRoot) -> memoryview:
        manifest = await _manifest_of(self, kind, root)
        blob = self._packs.blob(kind, root)
        if len(blob) != manifest.size_bytes:
            raise StorageFailed(f"{kind}/{root.hex()} is damaged: its manifest gives another size")
        return blob

    async def make_durable(self, kind: str, root: BlobRoot) -> None:
        manifest = await _manifest_of(self, kind, root)
        disk = await self._mount.written(0, syncs=True)
        if not _is_whole(self._packs.blob(kind, root), manifest):
            await self.delete_blob(kind, root)
            raise StorageFailed(f"{kind}/{root.hex()} was damaged, and is deleted")
        paths = (_path(self._folder, MANIFESTS, root.hex()), _path(self._folder, kind, root.hex()))
        try:
            for path in paths:
                if (file := disk.inodes.get(path)) is not None:
                    disk.sync(file)
        except StorageFailed:
            await self.delete_blob(kind, root)
            raise
        for path in paths:
            disk.sync_names(folder_of(path))  # what is packed is durable

    async def blob_roots(self, kind: str) -> list[BlobRoot]:
        return [BlobRoot(bytes.fromhex(name)) for name in await self.record_names(kind)]

    async def delete_blob(self, kind: str, root: BlobRoot) -> None:
        disk = await self._mount.read()
        disk.remove(_path(self._folder, kind, root.hex()))
        self._packs.delete(kind, root.hex())
        disk.remove(_partial(self._folder, kind, root))
        start, manifests = f"{self._folder}/", f"{self._folder}/{MANIFESTS}"
        shelves = [f for f in disk.folders if f.startswith(start) and f != manifests]
        if not any(f"{folder}/{root.hex()}" in disk.files for folder in shelves):
            disk.remove(_path(self._folder, MANIFESTS, root.hex()))
            self._packs.delete(MANIFESTS, root.hex())
            self._manifests.pop(root, None)

    async def put_blob(self, kind: str, payload: bytes, sizes: Sequence[int]) -> Manifest:
        """Take in a finished blob of those chunk sizes, not synced: the trainer's way."""
        manifest = manifest_of(payload, list(sizes))
        disk = await self._mount.written(len(payload), syncs=False)
        await self.adopt(kind, disk.create(payload), manifest, durable=False)
        return manifest

    async def adopt(
        self, kind: str, file: File, manifest: Manifest, durable: bool, anew: bool = False
    ) -> None:
        """Give a finished file its name. Raises StorageFailed.

        Who is not to sync it leaves alone what is there, as the real store does.
        """
        name = manifest.root.hex()
        is_there = not anew and await self.blob_manifest(kind, manifest.root) == manifest
        if is_there and not durable and _is_whole(self._packs.blob(kind, manifest.root), manifest):
            return
        steps = (
            self._mount.putting(_path(self._folder, MANIFESTS, name), manifest.encode(), durable),
            self._mount.moving(file, _path(self._folder, kind, name), durable),
        )
        await elapse(chain(*steps))
        for damaged in (kind, MANIFESTS) if anew else ():
            self._packs.delete(damaged, name)


async def _manifest_of(store: MemoryStore, kind: str, root: BlobRoot) -> Manifest:
    manifest = await store.blob_manifest(kind, root)
    if manifest is None:
        raise StorageFailed(f"there is no blob {kind}/{root.hex()}")
    return manifest


class MemoryWriter:
    """A blob on its way in; after a crash, what has come of it is looked through."""

    def __init__(
        self,
        store: MemoryStore,
        mount: Mount,
        kind: str,
        manifest: Manifest,
        partial: str,
        committed: bool,
        anew: bool = False,
    ) -> None:
        self._store = store
        self._mount = mount
        self._kind = kind
        self._manifest = manifest
        self._partial = partial
        self._held = set(range(len(manifest.sizes))) if committed else self._resumed()
        self._committed = committed
        self._anew = anew

    def _resumed(self) -> set[int]:
        before = self._mount.now().files.get(self._partial, b"")
        return _whole_chunks(memoryview(before), self._manifest)

    def missing(self) -> list[int]:
        return [i for i in range(len(self._manifest.sizes)) if i not in self._held]

    async def write_chunk(self, index: int, payload: bytes) -> None:
        await self.write_chunks([(index, payload)])

    async def write_chunks(self, chunks: Sequence[tuple[int, bytes | memoryview]]) -> None:
        wanted = [(index, payload) for index, payload in chunks if index not in self._held]
        if not wanted:
            await trio.lowlevel.checkpoint()
            return
        disk = await self._mount.written(sum(len(chunk) for _, chunk in wanted), syncs=False)
        file = disk.inodes.get(self._partial)
        if file is None:
            file = disk.create(b"")
            disk.rename(file, self._partial)
        content = bytearray(file.content)
        for index, payload in wanted:
            assert len(payload) == self._manifest.sizes[index]
            start = self._manifest.offsets[index]
            content.extend(bytes(max(0, start + len(payload) - len(content))))
            content[start : start + len(payload)] = payload
            self._held.add(index)
        disk.overwrite(file, bytes(content))

    async def read_into(self, indices: Sequence[int], target: memoryview) -> None:
        await trio.lowlevel.checkpoint()
        before, at = self._mount.now().files.get(self._partial, b""), 0
        for index in indices:
            start, size = self._manifest.offsets[index], self._manifest.sizes[index]
            if len(before) < start + size:
                raise StorageFailed(f"{self._partial} has no chunk {index}")
            target[at : at + size] = before[start : start + size]
            at += size

    async def commit(self, durable: bool = True) -> None:
        assert not self.missing()
        if not self._committed and self._store.arrival is not None:
            await self._arrive(self._store.arrival)
        found = await self._store.blob_manifest(self._kind, self._manifest.root)
        if self._committed or (found is not None and not self._anew):
            return
        disk = self._mount.now()
        file = disk.inodes.get(self._partial)
        if file is None:
            raise StorageFailed(f"{self._partial} is gone")
        if len(file.content) > self._manifest.size_bytes:  # damaged from outside
            disk.overwrite(file, file.content[: self._manifest.size_bytes])
        await self._store.adopt(self._kind, file, self._manifest, durable, self._anew)

    async def _arrive(self, arrival: Arrival) -> None:
        is_here = False
        try:
            await arrival(self._manifest.root)
            is_here = True
        finally:
            if not is_here:  # its bytes are there, what they stand for is not
                self._mount.discard(self._partial)


class MemoryJournal:
    """The signer's log and guard on the same disk."""

    def __init__(self, mount: Mount) -> None:
        self._mount = mount
        self._log: File | None = None  # what is appended to, whatever has its name
        self._broken: str | None = None

    async def load(self) -> list[bytes]:
        disk = await self._mount.written(len(self._mount.now().files.get(LOG, b"")), syncs=True)
        file = disk.inodes.get(LOG)
        if file is None:
            return await self._replaced([])
        records = records_of(LOG, file.content)
        disk.overwrite(file, log_of(records))
        disk.sync(file)
        disk.sync_names(folder_of(LOG))
        self._log = file
        return records

    async def append(self, record: bytes) -> None:
        self._check_whole()
        disk = self._mount.now()
        assert self._log is not None, "load comes first"
        end = len(self._log.content)
        try:
            disk.append(self._log, framed(record))
        except StorageFailed:
            if self._mount.has_power:
                disk.truncate(self._log, end)
            raise
        disk = await self._mount.written(len(record), syncs=True)
        try:
            disk.sync(self._log)
        except StorageFailed as fault:
            self._broken = f"syncing failed: {fault}"
            raise

    async def rewrite(self, records: list[bytes]) -> None:
        try:
            await self._replaced(records)
        except StorageFailed as fault:
            self._broken = f"replacing failed: {fault}"
            raise
        self._broken = None

    async def _replaced(self, records: list[bytes]) -> list[bytes]:
        log = log_of(records)
        fresh = self._mount.now().create(log)
        await elapse(self._mount.moving(fresh, LOG, durable=True, dirty_bytes=len(log)))
        self._log = fresh
        return records

    async def read_guard(self) -> bytes | None:
        stored = (await self._mount.read()).files.get(GUARD)
        return None if stored is None else guarded(GUARD, stored)

    async def write_guard(self, payload: bytes) -> None:
        self._check_whole()
        await self._mount.put(GUARD, guard_of(payload), durable=True)

    def _check_whole(self) -> None:
        if self._broken is not None:
            raise StorageFailed(f"{LOG}: {self._broken}; it must be written anew")


def _path(folder: str, kind: str, name: str) -> str:
    return f"{folder}/{kind}/{name}"


def _partial(folder: str, kind: str, root: BlobRoot) -> str:
    return f"{folder}.tmp/{kind}.{root.hex()}.partial"


def _is_whole(blob: memoryview, manifest: Manifest) -> bool:
    return len(blob) == manifest.size_bytes and len(_whole_chunks(blob, manifest)) == len(
        manifest.sizes
    )


def _whole_chunks(blob: memoryview, manifest: Manifest) -> set[int]:
    spans = zip(manifest.offsets, manifest.sizes, manifest.digests, strict=True)
    return {
        index
        for index, (at, size, digest) in enumerate(spans)
        if digest_of(bytes(blob[at : at + size])) == digest
    }
