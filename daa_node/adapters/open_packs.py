"""The packs of one directory as they are on the disk: opened, mended, found in, and removed.

What a crash has left of packs that another one replaces goes when they are first looked at.
"""

import errno
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import FileIO
from pathlib import Path

from daa_node.adapters.disk_records import RecordDirectory
from daa_node.adapters.durable_files import open_file, storage, sync
from daa_node.errors import StorageFailed
from daa_node.packs import format as packed
from daa_node.packs.format import PACKS, DamagedPack, Entry, Head, ReadAt
from daa_node.packs.merging import Source

# Packs: those that are not full, and some that are. Of more, the one that was opened last is
# closed: but for the likely one, a record is looked for in all of them in one order, so the one
# that was used longest ago is the next one needed.
FILES_OPEN_MAX = 32

REMEDY = "put a good copy in its place"


class OpenPacks:
    """Whoever changes them holds `changing`; readers do not. Raises OSError and StorageFailed."""

    def __init__(self, records: RecordDirectory) -> None:
        self._records = records
        self.folder = records.root / PACKS
        self.changing = threading.Lock()
        self._heads: tuple[Head, ...] | None = None  # small ones first: they hold what is new
        self._likely: Head | None = None  # had what was looked for last: what comes next is beside
        # Replaced, and maybe on the disk still: each new pack names them until they are gone.
        self.leaving: frozenset[str] = frozenset()
        self._files: dict[str, FileIO] = {}
        self._opening = threading.Lock()

    def known(self) -> tuple[Head, ...]:
        """For readers. Raises StorageFailed for one that is damaged, and cannot be mended."""
        heads = self._heads
        if heads is None:
            with self.changing:
                heads = self.loaded()
        return heads

    def place_of(self, key: bytes) -> tuple[Entry, ReadAt] | None:
        """Where the record is. FileNotFoundError: its pack became part of another meanwhile."""
        return next(self._places_of(key), None)

    def copies_of(self, key: bytes) -> int:
        """In how many packs the record is."""
        return sum(1 for _ in self._places_of(key))

    def best_place_of(self, key: bytes) -> tuple[Entry, ReadAt] | None:
        """The same; of several one whose bytes are good."""
        place = None
        for place in self._places_of(key):
            if packed.is_good(*place):
                break
        return place

    def is_damaged(self, key: bytes) -> bool:
        """Whether no pack that holds the record has it as it was packed."""
        place = self.best_place_of(key)
        return place is not None and not packed.is_good(*place)

    def _places_of(self, key: bytes) -> Iterator[tuple[Entry, ReadAt]]:
        for head in self._likely_first(self._heads or self.known()):
            read = self.reader(head.name)
            with _named(self.folder / head.name):
                entry = packed.find(head, read, key)
            if entry is not None:
                self._likely = head
                yield entry, read

    def _likely_first(self, heads: Sequence[Head]) -> Iterator[Head]:
        likely = self._likely
        if any(head is likely for head in heads):  # else it is part of another by now
            assert likely is not None
            yield likely
        yield from (head for head in heads if head is not likely)

    def sources(self, names: Sequence[str]) -> list[Source]:
        """Those of these names, to be read from."""
        return [(head, self.reader(head.name)) for head in self.loaded() if head.name in names]

    def exchange(self, old: Sequence[str], new: Sequence[Head]) -> None:
        """These count no more, and those do, which are durable."""
        names = {head.name for head in new}  # a damaged one may have been made again
        kept = [head for head in self.loaded() if head.name not in names.union(old)]
        for name in names:
            self._let_go(name)
        self._heads = _ordered([*new, *kept])

    def loaded(self) -> tuple[Head, ...]:
        """The packs; when they are first looked at, what a crash has left of others goes."""
        if self._heads is None:
            with storage(f"open the packs in {self.folder}"):
                names = self._records.record_names(PACKS)
                heads = [self._open(name) for name in names]
                if names:
                    # Whoever put them there may have been killed before it was durable, and what
                    # they stand for is deleted because they are there.
                    sync(self.folder)
                replaced = self._replaced(heads)
                self.remove(sorted(replaced))
            self._heads = _ordered(head for head in heads if head.name not in replaced)
        return self._heads

    def _replaced(self, heads: Sequence[Head]) -> set[str]:
        """Those that a sound one stands for; beside a damaged one they may hold what it lacks."""
        there, found = {head.name for head in heads}, set[str]()
        for head in heads:
            old = there.intersection(head.replaces)
            if old and not any(packed.faults(head, self.reader(head.name))):
                found |= old
        return found

    def look_again(self, names: Sequence[str]) -> None:
        """Judge these packs anew, and mend them if their index was damaged since they were opened.

        Raises StorageFailed for one that cannot be mended.
        """
        for name in names:
            self._open(name)

    def _open(self, name: str) -> Head:
        path = self.folder / name
        with storage(f"open {path}"):
            read, size_bytes = self.reader(name), path.stat().st_size
        try:
            return packed.open_pack(name, size_bytes, read)
        except (DamagedPack, OSError) as fault:
            # A disk that cannot read a part of the index may have the records all the same.
            if isinstance(fault, OSError) and fault.errno != errno.EIO:
                raise
            tail = packed.rescued(name, size_bytes, read)
            if tail is None and packed.is_newer(read):
                raise StorageFailed(f"{path} {fault}") from fault
            if tail is None:
                raise _beyond_mending(path, fault) from fault
        self._mend(path, read, tail)
        try:
            return packed.open_pack(name, path.stat().st_size, self.reader(name))
        except DamagedPack as fault:  # it has rotted, or was cut, while it was mended
            raise _beyond_mending(path, fault) from fault

    def _mend(self, path: Path, read: ReadAt, tail: bytes) -> None:
        """Give a pack the index that its records tell."""
        temporary = self._records.scratch_file(PACKS)
        end = packed.rescued_offset(tail)
        try:
            with open(temporary, "wb") as file:
                for at in range(0, end, packed.RECORD_BYTES_MAX):
                    file.write(read(at, min(packed.RECORD_BYTES_MAX, end - at)))
                file.write(tail)
            self._records.move_in(temporary, path, durable=True)
        finally:
            temporary.unlink(missing_ok=True)
            self._let_go(path.name)

    def remove(self, names: Sequence[str]) -> None:
        """For good once this returns; what could not be removed goes with the next ones."""
        self.leaving |= {*names}
        for name in sorted(self.leaving):
            path = self.folder / name
            with self._records.tally.changes(path):
                path.unlink(missing_ok=True)
            self._let_go(name)
        if self.leaving:
            sync(self.folder)
        self.leaving = frozenset()

    def entries(self, head: Head) -> Iterator[Entry]:
        """Of one pack, in the order of keys."""
        with _named(self.folder / head.name):
            yield from packed.entries(head, self.reader(head.name))

    def entries_of(self, head: Head, kind: str) -> Iterator[Entry]:
        """Of these, those of one kind."""
        with _named(self.folder / head.name):
            yield from packed.entries_of(head, self.reader(head.name), kind)

    def _let_go(self, name: str) -> None:
        """Whoever reads it from now on opens what has that name."""
        with self._opening:
            self._files.pop(name, None)

    def reader(self, name: str) -> ReadAt:
        """Reads a pack, which may lose its name meanwhile. Raises FileNotFoundError if it has."""
        with self._opening:
            file = self._files.get(name)
            if file is None:
                file = open_file(self.folder / name)
                if len(self._files) >= FILES_OPEN_MAX:
                    self._files.popitem()  # closed when its last reader lets it go
                self._files[name] = file
        return partial(pread, file)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Whoever reads of a damaged pack is told which one it is."""
    try:
        yield
    except DamagedPack as fault:
        raise DamagedPack(f"{path} {fault}: {REMEDY}") from fault


def _beyond_mending(path: Path, fault: Exception) -> StorageFailed:
    what = fault if isinstance(fault, DamagedPack) else "has an index that is unreadable"
    return StorageFailed(f"{path} {what}, and its records do not tell all that it held: {REMEDY}")


def _ordered(heads: Iterable[Head]) -> tuple[Head, ...]:
    return tuple(sorted(heads, key=lambda head: (head.count, head.name)))


def pread(file: FileIO, offset: int, size_bytes: int) -> bytes:
    """So many bytes from there; fewer where the file ends."""
    return os.pread(file.fileno(), size_bytes, offset)
