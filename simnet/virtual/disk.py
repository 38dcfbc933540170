"""A machine's disk in memory: what is written, what of it a crash leaves, and how it fails.

    written --sync--> durable
       |
       +--- crash: each unsynced file is as before, or new and whole, as the seed will have it

A write is atomic, as the real adapters make it (beside, then renamed); an append that a crash
interrupts leaves half a record, which the next load cuts off, as the real journal does. Whoever
held the disk when its machine went down can do nothing with it any more.

Failures on request: full (nothing can be written), lying (a sync returns and has done nothing), rot
(a bit of some blob turns), and a crash in the middle of the next write but so many.
"""

import random
from collections.abc import Callable, Sequence

import trio

from daa_dag.chunking import Manifest, decode_manifest, manifest_of
from daa_dag.ids import BlobRoot, digest_of
from daa_node.errors import StorageFailed

SYNC_S = 0.002  # of a good SSD; words that wait for it together share it
MANIFESTS = "manifests"
BLOBS = ("deltas", "chunks", "updates")  # what rots: the rest is small
GUARD = "agreement/guard"


class Disk:
    """Files by path. A mounted one is used through `Mount`s, which end with the machine's power."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.files: dict[str, bytes] = {}
        self._durable: dict[str, bytes] = {}
        self.log: list[bytes] = []  # the journal's records
        self._durable_log: list[bytes] = []
        self.mounts = 0  # how often the machine was started
        self.full = False
        self.lying = False
        self.writes_until_crash: int | None = None
        self.on_crash_due: Callable[[], None] = _nobody

    def crash(self) -> None:
        """The power goes: what was not synced is lost, or happens to be there."""
        self.mounts += 1
        self.writes_until_crash = None
        for path in sorted(self.files.keys() | self._durable.keys()):
            before = self._durable.get(path)
            if self.files.get(path) != before and self._chance.random() < 0.5:
                continue  # the kernel had written it already
            if before is None:
                self.files.pop(path, None)
            else:
                self.files[path] = before
        self._durable = dict(self.files)
        kept = len(self._durable_log)
        if self.log[:kept] == self._durable_log:
            kept += self._chance.randrange(len(self.log) - kept + 1)
            self._durable_log = self.log[:kept]
        self.log = list(self._durable_log)

    def wipe(self) -> None:
        """Another disk is put in, an empty one."""
        self.mounts += 1
        for held in (self.files, self._durable):
            held.clear()
        self.log, self._durable_log = [], []

    def rot(self, folder: str = "") -> str | None:
        """Turn one bit of one stored blob; which file it was, None if there is none."""
        blobs = [
            path
            for path in sorted(self.files)
            if path.startswith(folder) and path.split("/")[1] in BLOBS and self.files[path]
        ]
        if not blobs:
            return None
        path = self._chance.choice(blobs)
        damaged = bytearray(self.files[path])
        damaged[self._chance.randrange(len(damaged))] ^= 1 << self._chance.randrange(8)
        self.files[path] = self._durable[path] = bytes(damaged)
        return path

    # What a mounted disk does

    def put(self, path: str, payload: bytes, sync: bool) -> None:
        """Raises StorageFailed."""
        self._write()
        self.files[path] = payload
        if sync:
            self.sync(path)

    def sync(self, path: str) -> None:
        if not self.lying:
            self._durable[path] = self.files[path]

    def remove(self, path: str) -> None:
        self.files.pop(path, None)
        if not self.lying:
            self._durable.pop(path, None)

    def append(self, record: bytes) -> None:
        self._write()
        self.log.append(record)
        self._sync_log()

    def rewrite(self, records: list[bytes]) -> None:
        self._write()
        self.log = list(records)
        self._sync_log()

    def _sync_log(self) -> None:
        if not self.lying:
            self._durable_log = list(self.log)

    def _write(self) -> None:
        if self.writes_until_crash is not None:
            self.writes_until_crash -= 1
            if self.writes_until_crash < 0:
                self.on_crash_due()
                raise StorageFailed("the power went in the middle of a write")
        if self.full:
            raise StorageFailed("no space left on device")


def _nobody() -> None:
    """Nobody has asked to be told."""


class Mount:
    """One start of the machine: its store or journal works until the next crash."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._number = disk.mounts

    async def disk(self, syncs: bool = False) -> Disk:
        """The disk, after the time that the access takes. Raises StorageFailed when power is off.

        Power may have gone meanwhile: what is written is written after the wait.
        """
        if syncs:
            await trio.sleep(SYNC_S)
        else:
            await trio.lowlevel.checkpoint()
        return self.disk_now()

    def disk_now(self) -> Disk:
        if self._disk.mounts != self._number:
            raise StorageFailed("the machine is down")
        return self._disk


class MemoryStore:
    """A BlobStore in one folder of a disk."""

    def __init__(self, mount: Mount, folder: str) -> None:
        self._mount = mount
        self._folder = folder
        self._manifests: dict[BlobRoot, Manifest] = {}

    def _path(self, kind: str, name: str) -> str:
        return f"{self._folder}/{kind}/{name}"

    async def put_record(self, kind: str, name: str, payload: bytes, durable: bool = True) -> None:
        disk = await self._mount.disk(durable)
        disk.put(self._path(kind, name), bytes(payload), durable)

    async def get_record(self, kind: str, name: str) -> bytes | None:
        return (await self._mount.disk()).files.get(self._path(kind, name))

    async def record_names(self, kind: str) -> list[str]:
        start = self._path(kind, "")
        files = (await self._mount.disk()).files
        return sorted(path[len(start) :] for path in files if path.startswith(start))

    async def delete_record(self, kind: str, name: str) -> None:
        (await self._mount.disk()).remove(self._path(kind, name))

    async def begin_blob(self, kind: str, manifest: Manifest) -> "MemoryWriter":
        held = await self.blob_manifest(kind, manifest.root) is not None
        return MemoryWriter(self, kind, manifest, held)

    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        disk = await self._mount.disk()
        if self._path(kind, root.hex()) not in disk.files:
            return None
        if root not in self._manifests:
            encoded = disk.files.get(self._path(MANIFESTS, root.hex()))
            if encoded is None:
                return None
            self._manifests[root] = decode_manifest(encoded)
        return self._manifests[root]

    async def read_chunk(self, kind: str, root: BlobRoot, index: int) -> bytes:
        manifest = await self._manifest_of(kind, root)
        if not 0 <= index < len(manifest.sizes):
            raise StorageFailed(f"no chunk {index} of {kind}/{root.hex()}")
        start = manifest.offsets[index]
        return bytes(self._blob(kind, root)[start : start + manifest.sizes[index]])

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
        await self._manifest_of(kind, root)
        return self._blob(kind, root)

    async def make_durable(self, kind: str, root: BlobRoot) -> None:
        manifest = await self._manifest_of(kind, root)
        disk = await self._mount.disk(syncs=True)
        if not _is_whole(self._blob(kind, root), manifest):
            await self.delete_blob(kind, root)
            raise StorageFailed(f"{kind}/{root.hex()} was damaged, and is deleted")
        disk.sync(self._path(MANIFESTS, root.hex()))
        disk.sync(self._path(kind, root.hex()))

    async def blob_roots(self, kind: str) -> list[BlobRoot]:
        names = await self.record_names(kind)
        manifests = set(await self.record_names(MANIFESTS))
        return [BlobRoot(bytes.fromhex(name)) for name in names if name in manifests]

    async def delete_blob(self, kind: str, root: BlobRoot) -> None:
        disk = await self._mount.disk()
        disk.remove(self._path(kind, root.hex()))
        if not any(path.endswith(f"/{root.hex()}") for path in self._others(disk)):
            disk.remove(self._path(MANIFESTS, root.hex()))
            self._manifests.pop(root, None)

    async def put_blob(self, kind: str, payload: bytes, sizes: Sequence[int]) -> Manifest:
        """Take in a finished blob of those chunk sizes, not synced: the trainer's way."""
        await self._mount.disk()
        return self._adopt(kind, payload, manifest_of(payload, list(sizes)), durable=False)

    async def adopt(self, kind: str, payload: bytes, manifest: Manifest) -> None:
        await self._mount.disk(syncs=True)
        self._adopt(kind, payload, manifest, durable=True)

    def _adopt(self, kind: str, payload: bytes, manifest: Manifest, durable: bool) -> Manifest:
        disk = self._mount.disk_now()
        disk.put(self._path(MANIFESTS, manifest.root.hex()), manifest.encode(), durable)
        disk.put(self._path(kind, manifest.root.hex()), payload, durable)
        return manifest

    async def _manifest_of(self, kind: str, root: BlobRoot) -> Manifest:
        manifest = await self.blob_manifest(kind, root)
        if manifest is None:
            raise StorageFailed(f"there is no blob {kind}/{root.hex()}")
        return manifest

    def _blob(self, kind: str, root: BlobRoot) -> memoryview:
        blob = self._mount.disk_now().files.get(self._path(kind, root.hex()))
        if blob is None:
            raise StorageFailed(f"{kind}/{root.hex()} went away while it was read")
        return memoryview(blob)

    def _others(self, disk: Disk) -> list[str]:
        start, manifests = f"{self._folder}/", self._path(MANIFESTS, "")
        return [p for p in disk.files if p.startswith(start) and not p.startswith(manifests)]


class MemoryWriter:
    """A blob on its way in; a crash loses what has come of it."""

    def __init__(self, store: MemoryStore, kind: str, manifest: Manifest, held: bool) -> None:
        self._store = store
        self._kind = kind
        self._manifest = manifest
        self._held = held
        self._chunks: dict[int, bytes] = {}

    def missing(self) -> list[int]:
        if self._held:
            return []
        return [i for i in range(len(self._manifest.sizes)) if i not in self._chunks]

    async def write_chunk(self, index: int, payload: bytes) -> None:
        await self.write_chunks([(index, payload)])

    async def write_chunks(self, chunks: Sequence[tuple[int, bytes | memoryview]]) -> None:
        await trio.lowlevel.checkpoint()
        for index, payload in chunks:
            assert len(payload) == self._manifest.sizes[index]
            self._chunks[index] = bytes(payload)

    async def commit(self) -> None:
        assert not self.missing()
        if not self._held:
            joined = b"".join(self._chunks[i] for i in range(len(self._manifest.sizes)))
            await self._store.adopt(self._kind, joined, self._manifest)


class MemoryJournal:
    """The signer's log and guard on the same disk."""

    def __init__(self, mount: Mount) -> None:
        self._mount = mount

    async def load(self) -> list[bytes]:
        return list((await self._mount.disk()).log)

    async def append(self, record: bytes) -> None:
        (await self._mount.disk(syncs=True)).append(record)

    async def rewrite(self, records: list[bytes]) -> None:
        (await self._mount.disk(syncs=True)).rewrite(records)

    async def read_guard(self) -> bytes | None:
        return (await self._mount.disk()).files.get(GUARD)

    async def write_guard(self, payload: bytes) -> None:
        (await self._mount.disk(syncs=True)).put(GUARD, payload, sync=True)


def _is_whole(blob: memoryview, manifest: Manifest) -> bool:
    if len(blob) != manifest.size_bytes:
        return False
    spans = zip(manifest.offsets, manifest.sizes, manifest.digests, strict=True)
    return all(digest_of(bytes(blob[at : at + size])) == digest for at, size, digest in spans)
