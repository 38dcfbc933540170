"""Packs of a store on a simulated disk: the steps of daa_node.adapters.pack_directory, in time."""

from collections.abc import Collection, Mapping, Sequence, Set
from functools import lru_cache

from daa_dag.ids import BlobRoot
from daa_node.errors import StorageFailed
from daa_node.packs.format import (
    PACKS,
    RECORD_BYTES_MAX,
    DamagedPack,
    Entry,
    Head,
    PackWriter,
    ReadAt,
    entries,
    find,
    key_of,
    name_of,
    open_pack,
    payload_of,
)
from daa_node.packs.merging import copy_records, merge_due
from simnet.nodes.virtual.disk import Disk
from simnet.nodes.virtual.disk_mount import Mount


class MemoryPacks:
    """Those in one folder of a disk, from one start of the machine to its end."""

    def __init__(self, mount: Mount, folder: str) -> None:
        self._mount = mount
        self._store = folder
        self._folder = f"{folder}/{PACKS}"
        self._opened: dict[str, tuple[bytes, Head]] = {}
        self._going: frozenset[bytes] = frozenset()
        self._is_tidy = False

    def get(self, kind: str, name: str) -> bytes | None:
        """Raises StorageFailed."""
        key = key_of(kind, name)
        if key is None or key in self._going:
            return None
        for head, read in self._sources():
            entry = find(head, read, key)
            if entry is not None:
                payload = payload_of(entry, read)
                if not entry.fits(payload):
                    raise StorageFailed(f"{kind}/{name} is damaged in its pack")
                return payload
        return None

    def blob(self, kind: str, root: BlobRoot) -> memoryview:
        """One that is packed, or a file. Raises StorageFailed."""
        loose = self._mount.now().files.get(f"{self._store}/{kind}/{root.hex()}")
        blob = self.get(kind, root.hex()) if loose is None else loose
        if blob is None:
            raise StorageFailed(f"{kind}/{root.hex()} went away while it was read")
        return memoryview(blob)

    def names(self, kind: str) -> set[str]:
        found = (
            (name_of(entry.key), entry.key)
            for head, read in self._sources()
            for entry in entries(head, read)
        )
        return {name for (held, name), key in found if held == kind and key not in self._going}

    def delete(self, kind: str, name: str) -> None:
        key = key_of(kind, name)
        if key is not None and self._held(key) is not None:
            self._going |= {key}

    async def purge(self) -> None:
        """Raises StorageFailed."""
        for head, read in self._sources() if self._going else ():
            if any(find(head, read, key) for key in self._going):
                await self._replace([head], self._going)
        self._going = frozenset()

    async def pack(self, kinds: Sequence[str], files_min: int, but: Collection[str] = ()) -> int:
        """Raises StorageFailed."""
        stay = {f"{self._store}/{name}" for name in but}
        loose = sorted(self._loose(self._mount.now(), kinds))
        loose = [(key, path) for key, path in loose if path not in stay]
        if len(loose) < files_min:
            return 0
        self._going |= {key for key, _ in loose if self._is_damaged(key)}
        await self.purge()
        files = self._mount.now().files
        moving = [(key, path) for key, path in loose if self._held(key) is None]
        if moving:
            content = bytearray()
            writer = PackWriter(content.extend)
            for key, path in moving:
                writer.add(key, files[path])
            await self._put(writer.finish(), content)
        disk = self._mount.now()
        for key, path in loose:
            if self._held(key) == disk.files.get(path):
                disk.remove(path)
        return len(moving)

    async def merge(self) -> int:
        """Raises StorageFailed."""
        due = merge_due(head for head, _ in self._sources())
        if due:
            await self._replace(due, self._going)
        return len(due)

    async def _replace(self, heads: Sequence[Head], gone: Set[bytes]) -> None:
        names = [head.name for head in heads]
        sources = [(head, read) for head, read in self._sources() if head.name in names]
        content = bytearray()
        writer = PackWriter(content.extend, names)
        if copy_records(sources, gone, writer):
            await self._put(writer.finish(), content)
        disk = self._mount.now()
        for name in names:
            disk.remove(f"{self._folder}/{name}")
        disk.sync_names(self._folder)

    async def _put(self, name: str, content: bytearray) -> None:
        await self._mount.put(f"{self._folder}/{name}", bytes(content), durable=True)

    def _held(self, key: bytes) -> bytes | None:
        place = self._place_of(key)
        if place is None:
            return None
        return payload_of(*place)

    def _is_damaged(self, key: bytes) -> bool:
        place = self._place_of(key)
        return place is not None and not place[0].fits(self._held(key) or b"")

    def _place_of(self, key: bytes) -> tuple[Entry, ReadAt] | None:
        for head, read in self._sources():
            entry = find(head, read, key)
            if entry is not None:
                return entry, read
        return None

    def _loose(self, disk: Disk, kinds: Sequence[str]) -> list[tuple[bytes, str]]:
        found = []
        for path, content in disk.files.items():
            folder, _, name = path.rpartition("/")
            kind = folder.rpartition("/")[2]
            key = key_of(kind, name)
            fits = key is not None and len(content) <= RECORD_BYTES_MAX
            if fits and folder == f"{self._store}/{kind}" and kind in kinds:
                assert key is not None
                found.append((key, path))
        return found

    def _sources(self) -> list[tuple[Head, ReadAt]]:
        """The packs; at the first look, those go that others replace. Raises StorageFailed."""
        disk = self._mount.now()
        if self._folder not in disk.folders:
            return []
        start = f"{self._folder}/"
        files = {name: disk.files[start + name] for name in disk.names[self._folder]}
        heads = {name: self._open(name, content) for name, content in files.items()}
        replaced = {name for head in heads.values() for name in head.replaces}
        if not self._is_tidy:
            self._is_tidy = True
            disk.sync_names(self._folder)
            for name in sorted(replaced & heads.keys()):
                disk.remove(start + name)
        kept = [heads[name] for name in sorted(heads) if name not in replaced]
        return [(head, _reader(files[head.name])) for head in kept]

    def _open(self, name: str, content: bytes) -> Head:
        known, head = self._opened.get(name, (b"", None))
        if head is None or known is not content:
            try:
                head = open_pack(name, len(content), _reader(content))
            except DamagedPack as fault:
                raise StorageFailed(f"{self._folder}/{name} {fault}") from fault
            self._opened[name] = (content, head)
        return head


def unpacked(files: Mapping[str, bytes], folder: str) -> Mapping[str, bytes]:
    """The files of a store by path, those in packs too. What is damaged there is left out."""
    start = f"{folder}/{PACKS}/"
    packs = {
        path[len(start) :]: content for path, content in files.items() if path.startswith(start)
    }
    if not packs:
        return files
    found: dict[str, bytes] = {}
    for name, content in packs.items():
        found |= _records_of(name, content, folder)
    return found | {path: content for path, content in files.items() if not path.startswith(start)}


@lru_cache(maxsize=64)  # a run's end asks for every chain several times
def _records_of(name: str, content: bytes, folder: str) -> dict[str, bytes]:
    read = _reader(content)
    try:
        head = open_pack(name, len(content), read)
    except DamagedPack:
        return {}
    return {
        "/".join((folder, *name_of(entry.key))): payload_of(entry, read)
        for entry in entries(head, read)
    }


def _reader(content: bytes) -> ReadAt:
    return lambda offset, size_bytes: content[offset : offset + size_bytes]
