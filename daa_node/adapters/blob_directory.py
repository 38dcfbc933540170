"""Blobs as plain files beside the records of one directory: whole or absent after any crash.

    root/<kind>/<root hex>        a blob: its chunks joined
    root/manifests/<root hex>     the manifest of that blob
    root.tmp/<kind>.<root hex>.partial    a blob that is still arriving
    root.tmp/<size>.<number>.spare        a deleted blob's file, kept to be written over
    root/packs/<name>             small records and blobs, many in a file (see pack_directory)

What a sync has failed on is removed: the kernel may call it clean from then on, and the next sync
succeed for nothing. A blob is visible when both its files are, and its manifest comes first. A
partial blob needs no list of what it holds: on resume every chunk is hashed, and what matches the
manifest is held, so a torn or corrupted partial costs a new download of the bad chunks and nothing
else.

Files of the kinds that are called recycled become spares when they are deleted (see spare_files);
a reader of such a kind makes sure afterwards that the name still means the file that it read.
"""

import mmap
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

from daa_dag.chunking import MANIFEST_BYTES_MAX, Manifest, decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import DIGEST_BYTES, BlobRoot, digest_of
from daa_node.adapters.descriptors import is_lack
from daa_node.adapters.disk_records import RecordDirectory
from daa_node.adapters.durable_files import open_file, storage, sync
from daa_node.adapters.pack_directory import PackDirectory
from daa_node.adapters.spare_files import SpareFiles
from daa_node.errors import PeerFault, StorageFailed

T = TypeVar("T")

MANIFESTS = "manifests"
PARTIAL_SUFFIX = ".partial"
# Updates are wanted for a round, checkpoints until they are fetched: a week outlasts both.
PARTIAL_AGE_S_MAX = 7 * 24 * 3600.0
# Decoded manifests kept: a round touches a few blobs a peer, and each is read a chunk at a time.
MANIFESTS_CACHED_MAX = 64

_ROOT_NAME = re.compile(r"[0-9a-f]{64}")


class BlobDirectory:
    """Blobs by kind and root. Every method raises StorageFailed when the disk fails.

    Whatever fails for want of a descriptor may be called again: it has changed nothing that counts.
    """

    def __init__(self, root: Path, recycled: Collection[str] = ()) -> None:
        """Files of deleted blobs of the `recycled` kinds are written over by later ones."""
        self.records = RecordDirectory(root)
        self._manifests: dict[BlobRoot, Manifest] = {}
        self._recycled = frozenset(recycled)
        self.spares = SpareFiles(self.records.scratch)
        self.packs = PackDirectory(self.records)

    # Whatever lies loose comes before what a pack holds: it is deleted once the pack counts.

    def get_record(self, kind: str, name: str) -> bytes | None:
        loose = self.records.get_record(kind, name)
        return self.packs.get(kind, name) if loose is None else loose

    def has_record(self, kind: str, name: str) -> bool:
        return self.records.record_path(kind, name).is_file() or self.packs.has(kind, name)

    def record_names(self, kind: str, packed: bool = True) -> list[str]:
        """Sorted; empty for a kind that was never written."""
        loose = self.records.record_names(kind)
        found = self.packs.names(kind) if packed else set[str]()
        return sorted(found.union(loose)) if found else loose

    def delete_record(self, kind: str, name: str) -> None:
        self.records.delete_record(kind, name)
        self.packs.delete(kind, name)

    def settle(self, kinds: Sequence[str]) -> None:
        """What was deleted of these kinds stays so over a power cut."""
        self.records.settle(kinds)
        self.packs.purge()

    def path_of(self, kind: str, root: BlobRoot) -> Path:
        """The file that holds, or would hold, the whole blob."""
        return self.records.record_path(kind, _hex(root))

    def sweep(self) -> None:
        """Remove what a crash left unfinished, and partial blobs that nobody finished for a week.

        Call before writers start.
        """
        self.records.tally.total()  # which walks through all files once
        if not self.records.scratch.is_dir():
            return
        oldest_s = time.time() - PARTIAL_AGE_S_MAX
        for path in self.records.scratch.iterdir():
            with storage(f"remove {path}"):
                if path.suffix != PARTIAL_SUFFIX or path.stat().st_mtime < oldest_s:
                    path.unlink(missing_ok=True)

    def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        if not self.has_record(kind, _hex(root)):
            return None
        if root not in self._manifests:
            manifest = self._manifest_of(root)
            if manifest is None:
                return None
            if len(self._manifests) >= MANIFESTS_CACHED_MAX:
                self._manifests.pop(next(iter(self._manifests)))  # the oldest
            self._manifests[root] = manifest
        return self._manifests[root]

    def read_chunk(self, kind: str, root: BlobRoot, index: int) -> bytes:
        manifest = self.blob_manifest(kind, root)
        if manifest is None or not 0 <= index < len(manifest.sizes):
            raise StorageFailed(f"no chunk {index} of {kind}/{root.hex()}")
        path, size, at = self.path_of(kind, root), manifest.sizes[index], manifest.offsets[index]

        def loose() -> bytes:
            with _reading(path, kind in self._recycled) as file:
                return os.pread(file, size, at)

        payload = self._loose_or_packed(path, loose, at, size)
        if len(payload) != size:
            raise StorageFailed(f"{path} ends inside chunk {index}")
        return payload

    def read_into(
        self, kind: str, root: BlobRoot, indices: Sequence[int], target: memoryview
    ) -> None:
        """Those chunks one after another; together they fill `target`."""
        manifest, path = self.blob_manifest(kind, root), self.path_of(kind, root)
        if manifest is None or not all(0 <= index < len(manifest.sizes) for index in indices):
            raise StorageFailed(f"no chunks {indices} of {kind}/{root.hex()}")
        assert sum(manifest.sizes[index] for index in indices) == len(target)
        places = [(manifest.offsets[index], manifest.sizes[index]) for index in indices]
        try:
            with _reading(path, kind in self._recycled) as file:
                _fill(target, places, lambda part, at: os.preadv(file, [part], at), path)
        except StorageFailed as fault:
            if not isinstance(fault.__cause__, FileNotFoundError):
                raise
            _fill(target, places, lambda part, at: self._read_packed(path, part, at), path)

    def _read_packed(self, path: Path, part: memoryview, at: int) -> int:
        found = self.packs.read_range(path.parent.name, path.name, at, len(part))
        if found is None:
            raise StorageFailed(f"{path} is missing")
        part[: len(found)] = found
        return len(found)

    def view_blob(self, kind: str, root: BlobRoot) -> memoryview:
        """The whole blob, mapped read-only; it stays readable after the blob is deleted.

        Of a recycled kind, it holds the blob only until then, and something else later.
        """
        manifest, path = self.blob_manifest(kind, root), self.path_of(kind, root)
        if manifest is None:
            raise StorageFailed(f"there is no blob {kind}/{root.hex()}")

        def loose() -> mmap.mmap | bytes:
            with storage(f"map {path}"), open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size != manifest.size_bytes:
                    raise StorageFailed(f"{path} is damaged: its manifest gives another size")
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

        return memoryview(self._loose_or_packed(path, loose, 0, manifest.size_bytes))

    def _loose_or_packed(self, path: Path, loose: Callable[[], T], at: int, size: int) -> T | bytes:
        """What `loose` gives; where the file is not there, or goes meanwhile, that of a pack."""
        if path.is_file():
            try:
                return loose()
            except StorageFailed as fault:
                if not isinstance(fault.__cause__, FileNotFoundError):
                    raise
        found = self.packs.read_range(path.parent.name, path.name, at, size)
        if found is None:
            raise StorageFailed(f"{path} is missing")
        return found

    def _manifest_of(self, root: BlobRoot) -> Manifest | None:
        manifest = _manifest_at(self.records.record_path(MANIFESTS, root.hex()), root)
        if manifest is not None:
            return manifest
        try:
            payload = self.packs.get(MANIFESTS, root.hex())
        except StorageFailed as fault:
            if isinstance(fault.__cause__, OSError):
                raise
            payload = None  # damaged, as a file of its own may be
        return None if payload is None else _decoded(payload, root)

    def blob_roots(self, kind: str) -> list[BlobRoot]:
        return [BlobRoot(bytes.fromhex(n)) for n in self.record_names(kind) if _is_root_name(n)]

    def adopt_file(
        self,
        kind: str,
        path: Path,
        manifest: Manifest,
        durable: bool = False,
        anew: bool = False,
    ) -> None:
        """Move a finished file (see disk_records) in as the blob that `manifest` describes.

        The caller has made the manifest from the file's own bytes. `anew`: what is there, loose or
        in a pack, is damaged, and the file takes its place. Raises StorageFailed.
        """
        target = self.path_of(kind, manifest.root)
        with storage(f"adopt {path}"):
            size_bytes = path.stat().st_size
            if size_bytes != manifest.size_bytes:
                raise StorageFailed(
                    f"{path} has {size_bytes} bytes, its manifest says {manifest.size_bytes}"
                )
            # What is there may be synced, and promised to others: the same bytes of two makers.
            is_there = not anew and self.blob_manifest(kind, manifest.root) == manifest
            if is_there and not target.is_file():  # packed, and so durable
                path.unlink()
                return
            if is_there and not durable and _is_whole(target, manifest):
                path.unlink()
                return
            # The manifest first: a blob without one could not even be named as incomplete.
            self.records.put_record(MANIFESTS, manifest.root.hex(), manifest.encode(), durable)
            self.records.move_in(path, target, durable)
            for damaged in (kind, MANIFESTS) if anew else ():
                self.packs.delete(damaged, manifest.root.hex())

    def make_durable(self, kind: str, root: BlobRoot) -> None:
        """Sync a blob that was adopted without; one that a crash left damaged is deleted."""
        manifest, path = self.blob_manifest(kind, root), self.path_of(kind, root)
        if manifest is None:
            raise StorageFailed(f"there is no blob {kind}/{root.hex()}")
        with storage(f"sync {path}"):
            if not path.is_file():
                return  # packed, and so durable
            if not _is_whole(path, manifest):
                self.delete_blob(kind, root)
                raise StorageFailed(f"{path} was damaged, and is deleted")
            beside = self.records.record_path(MANIFESTS, root.hex())
            try:
                for written in (beside, path):
                    sync(written)
            except OSError as fault:
                if not is_lack(fault):
                    self.delete_blob(kind, root)
                raise
            # Names stay dirty until they are synced, and may be other blobs': no reason to delete.
            for directory in (beside.parent, path.parent, self.records.root):
                sync(directory)

    def begin_blob(self, kind: str, manifest: Manifest, anew: bool = False) -> "PartialBlob":
        """Start, or resume, receiving a blob; `anew`: one that is there is damaged."""
        partial = self.records.scratch / f"{kind}.{_hex(manifest.root)}{PARTIAL_SUFFIX}"
        self.path_of(kind, manifest.root)  # refuses a bad kind before anything is created
        committed = not anew and self.blob_manifest(kind, manifest.root) is not None
        held = set(range(len(manifest.sizes))) if committed else set()
        with storage(f"open {partial}"):
            self.records.scratch.mkdir(parents=True, exist_ok=True)
            if not committed and partial.exists():
                held = _chunks_that_match(partial, manifest)
            elif not committed:
                self.spares.take(manifest.size_bytes, partial)
        return PartialBlob(self, kind, manifest, partial, held, anew)

    def delete_blob(self, kind: str, root: BlobRoot) -> None:
        path = self.path_of(kind, root)
        with storage(f"remove {path}"):
            with self.records.tally.changes(path):
                if kind in self._recycled:
                    self.spares.retire(path)
                path.unlink(missing_ok=True)
            self.packs.delete(kind, root.hex())
            (self.records.scratch / f"{kind}.{root.hex()}{PARTIAL_SUFFIX}").unlink(missing_ok=True)
            shared = any(
                (other / root.hex()).exists()
                for other in (self.records.root.iterdir() if self.records.root.is_dir() else ())
                if other.name != MANIFESTS
            )
            if not shared:  # one manifest serves every kind that holds the same bytes
                self.delete_record(MANIFESTS, root.hex())
                self._manifests.pop(root, None)


class PartialBlob:
    """A blob on its way in: chunks in any order, and resumed after a crash."""

    def __init__(
        self,
        directory: BlobDirectory,
        kind: str,
        manifest: Manifest,
        path: Path,
        held: set[int],
        anew: bool = False,
    ) -> None:
        self._directory = directory
        self._kind = kind
        self._manifest = manifest
        self._path = path
        self._held = held
        self._anew = anew
        self._is_committed = False

    def missing(self) -> list[int]:
        """Indices of the chunks still wanted, ascending."""
        return [index for index in range(len(self._manifest.sizes)) if index not in self._held]

    def write_chunk(self, index: int, payload: bytes) -> None:
        """The caller has verified the chunk. Raises StorageFailed."""
        self.write_chunks([(index, payload)])

    def write_chunks(self, chunks: Sequence[tuple[int, bytes | memoryview]]) -> None:
        """The caller has verified the chunks. Raises StorageFailed."""
        wanted = [(index, payload) for index, payload in chunks if index not in self._held]
        if not wanted:
            return  # a committed blob must not get a partial file beside it
        with storage(f"write {self._path}"):
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                for index, payload in wanted:
                    assert len(payload) == self._manifest.sizes[index]
                    view, offset = memoryview(payload), self._manifest.offsets[index]
                    while view:
                        written = os.pwrite(handle, view, offset)
                        view, offset = view[written:], offset + written
                    self._held.add(index)
            finally:
                os.close(handle)

    def read_into(self, indices: Sequence[int], target: memoryview) -> None:
        """Of what was written, those chunks one after another. Raises StorageFailed."""
        manifest = self._manifest
        if self._is_committed:
            self._directory.read_into(self._kind, manifest.root, indices, target)
            return
        places = [(manifest.offsets[index], manifest.sizes[index]) for index in indices]
        with _reading(self._path, recycled=False) as file:
            _fill(target, places, lambda part, at: os.preadv(file, [part], at), self._path)

    def commit(self, durable: bool = True) -> None:
        """Visible once this returns; all chunks must be there. Raises StorageFailed."""
        assert not self.missing()
        directory, root = self._directory, self._manifest.root
        if not self._anew and directory.blob_manifest(self._kind, root) is not None:
            self._is_committed = True
            return
        with storage(f"commit {self._path}"):
            # A longer file can remain from a partial that was damaged from outside.
            os.truncate(self._path, self._manifest.size_bytes)
        directory.adopt_file(self._kind, self._path, self._manifest, durable, self._anew)
        self._is_committed = True


def _fill(
    target: memoryview,
    places: Sequence[tuple[int, int]],
    read: Callable[[memoryview, int], int],
    path: Path,
) -> None:
    """With what lies at these offsets, so many bytes of each."""
    for at, size in places:
        if read(target[:size], at) != size:
            raise StorageFailed(f"{path} ends inside its chunks")
        target = target[size:]


@contextmanager
def _reading(path: Path, recycled: bool) -> Iterator[int]:
    """The file opened; StorageFailed at the end if it may have been written over meanwhile."""
    with storage(f"read {path}"), open(path, "rb", buffering=0) as file:
        opened = _identity(file.fileno())
        yield file.fileno()
        if recycled and _identity(path) != opened:
            raise StorageFailed(f"{path} went away while it was read")


def _manifest_at(path: Path, root: BlobRoot) -> Manifest | None:
    # One that was not synced may be anything after a power cut: then its blob is not held.
    with storage(f"read {path}"):
        try:
            with open_file(path) as file:
                return _decoded(BufferedReader(file).read(MANIFEST_BYTES_MAX + 1), root)
        except FileNotFoundError:
            return None


def _decoded(payload: bytes, root: BlobRoot) -> Manifest | None:
    try:
        manifest = decode_manifest(payload)
    except DagError:
        return None
    return manifest if manifest.root == root else None


def _hex(root: bytes) -> str:
    if len(root) != DIGEST_BYTES:
        raise PeerFault("bad_name", f"a root of {len(root)} bytes")
    return root.hex()


def _is_root_name(name: str) -> bool:
    return _ROOT_NAME.fullmatch(name) is not None


def _identity(file: int | Path) -> tuple[int, int] | None:
    """Which file it is, and when it last changed, its name included; None if it is not there."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns


def _is_whole(path: Path, manifest: Manifest) -> bool:
    if path.stat().st_size != manifest.size_bytes:
        return False
    return len(_chunks_that_match(path, manifest)) == len(manifest.sizes)


def _chunks_that_match(path: Path, manifest: Manifest) -> set[int]:
    held: set[int] = set()
    with open(path, "rb") as file:
        for index, size in enumerate(manifest.sizes):
            if digest_of(file.read(size)) == manifest.digests[index]:
                held.add(index)
    return held
