"""Packs beside the loose records of one directory; see daa_node.packs.format for what one is.

    root/packs/<name>     a pack: whole, and never changed

A record moves in four steps, each after the one before is durable: the pack is written in
`root.tmp` and read again; synced and renamed; its folder synced; only then what it holds elsewhere
is deleted. A pack that replaces others names them, so whatever a crash leaves of them is known and
goes at the next start. Nothing is ever written into a pack that has its name.

Readers take no lock: they look at loose files first and at the packs after that, of which the new
one counts before anything is deleted. Who meets a pack that has gone looks again at what is there.
"""

import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import TypeVar

from daa_node.adapters.disk_records import RecordDirectory
from daa_node.adapters.durable_files import storage
from daa_node.adapters.open_packs import OpenPacks, pread
from daa_node.errors import StorageFailed
from daa_node.packs import format as packed
from daa_node.packs.format import PACKS, DamagedPack, Entry, Head, PackWriter, ReadAt
from daa_node.packs.merging import Source, copy_records, merge_due

T = TypeVar("T")

LOOKS_MAX = 16  # at packs that go while one looks: each time all of them have become fewer
# Of one packing: half a second of a slow disk, for which a publishing may have to wait.
BATCH_BYTES_MAX = 64 * 2**20
BATCH_RECORDS_MAX = 1024  # some disks take milliseconds to delete each file


class PackDirectory:
    """Any thread may call. Raises StorageFailed when the disk fails or a pack is damaged."""

    def __init__(self, records: RecordDirectory) -> None:
        self._records = records
        self._open = OpenPacks(records)
        self._going = set[
            bytes
        ]()  # deleted, and still in a pack until `purge`; it may be a million

    # Reading

    def has(self, kind: str, name: str) -> bool:
        return self.size_of(kind, name) is not None

    def size_of(self, kind: str, name: str) -> int | None:
        """Of the record, in bytes; None if no pack holds it."""
        return self._look(kind, name, lambda entry, _: entry.size_bytes)

    def get(self, kind: str, name: str) -> bytes | None:
        return self._look(kind, name, partial(_whole, f"{kind}/{name}"), self._open.best_place_of)

    def read_range(self, kind: str, name: str, offset: int, size_bytes: int) -> bytes | None:
        """A part of a record, which its reader checks; shorter where the record ends."""

        def part(entry: Entry, read: ReadAt) -> bytes:
            return packed.payload_of(entry, read, offset, size_bytes)

        return self._look(kind, name, part)

    def names(self, kind: str) -> set[str]:
        """Of all records of the kind."""

        def listed() -> set[str]:
            heads = self._open.known()
            keys = (e.key for head in heads for e in self._open.entries_of(head, kind))
            return {packed.name_of(key)[1] for key in keys if key not in self._going}

        return self._list(kind, listed)

    def count(self, kind: str, but: Collection[str]) -> int:
        """How many records of the kind the packs hold together, but for these names.

        One that several hold counts as often; of one that is deleted this is no matter.
        """

        def counted() -> int:
            held = sum(packed.count_of(head, kind) for head in self._open.known())
            keys = [packed.key_of(kind, name) for name in but]
            return held - sum(self._open.copies_of(key) for key in keys if key is not None)

        return self._list(kind, counted)

    def _list(self, kind: str, look: Callable[[], T]) -> T:
        for _ in range(LOOKS_MAX):
            try:
                return look()
            except FileNotFoundError:
                continue
            except (OSError, DamagedPack) as fault:
                raise StorageFailed(f"cannot list {kind} in packs: {fault}") from fault
        raise StorageFailed(f"the packs in {self._open.folder} do not stay")

    def _look(
        self,
        kind: str,
        name: str,
        use: Callable[[Entry, ReadAt], T],
        find: Callable[[bytes], tuple[Entry, ReadAt] | None] | None = None,
    ) -> T | None:
        key = packed.key_of(kind, name)
        if key is None or key in self._going:
            return None
        for _ in range(LOOKS_MAX):
            try:
                place = (find or self._open.place_of)(key)
                return None if place is None else use(*place)
            except FileNotFoundError:
                continue  # it has become part of another
            except (OSError, DamagedPack) as fault:
                raise StorageFailed(f"cannot read {kind}/{name} from a pack: {fault}") from fault
        raise StorageFailed(f"the packs in {self._open.folder} do not stay")

    # Changing

    def delete(self, kind: str, name: str) -> None:
        """Nobody finds it any more; what it takes goes with the next `purge`."""
        if self.has(kind, name):
            key = packed.key_of(kind, name)
            assert key is not None, "a pack holds it"
            with self._open.changing:
                self._going.add(key)

    def purge(self) -> None:
        """Write the packs with deleted records anew, without them; durable once this returns."""
        with self._open.changing, self._change("delete from packs"):
            self._purge()

    def pack(self, kinds: Sequence[str], files_min: int, but: Collection[str] = ()) -> int:
        """Move loose records of these kinds into a pack if there are so many; how many it moved.

        Those of `but` (`kind/name`) stay where they are.
        """
        with self._open.changing, self._change("pack"):
            loose = self._loose(kinds, but)
            if len(loose) < files_min:
                return 0
            self._open.loaded()
            held = {key for key, _ in loose if self._open.place_of(key) is not None} - self._going
            # What is damaged in its pack has come anew: the good one takes its place.
            damaged = {key for key in held if self._open.is_damaged(key)}
            self._going |= damaged
            self._purge()  # or what was deleted, and came again, would count as packed
            moving = [(key, path) for key, path in loose if key not in held - damaged]
            if moving:
                with self._writing(()) as writer:
                    for key, path in moving:
                        writer.add(key, path.read_bytes())
            for key, path in loose:
                # One that is there twice, with other bytes in the pack, is damaged in one of both.
                if self._holds(key, path):
                    with self._records.tally.changes(path):
                        path.unlink(missing_ok=True)
            return len(moving)

    def merge(self) -> int:
        """Make one pack of some that are alike; how many those were, 0 if there are few."""
        with self._open.changing, self._change("merge packs"):
            due = merge_due(self._open.loaded())
            if due:
                self._replace(due, self._going)
            return len(due)

    def _purge(self) -> None:
        for head in self._open.loaded() if self._going else ():
            read = self._open.reader(head.name)
            if any(packed.find(head, read, key) for key in self._going):
                self._replace([head], self._going)
        self._going = set()

    def _replace(self, heads: Sequence[Head], gone: Collection[bytes]) -> None:
        old = [head.name for head in heads]
        self._open.look_again(old)  # a damaged index would leave records behind
        keys = (entry.key for head in heads for entry in self._open.entries(head))
        if all(key in gone for key in keys):
            self._open.exchange(old, [])
        else:
            sources: list[Source] = [(head, self._open.reader(head.name)) for head in heads]
            with self._writing(old) as writer:
                copy_records(sources, gone, writer)
        self._open.remove(old)

    @contextmanager
    def _writing(self, replaces: Sequence[str]) -> Iterator[PackWriter]:
        """A new pack counts, and is durable, once the block has ended."""
        replaces = [*replaces, *self._open.leaving]
        if len(replaces) > packed.REPLACES_MAX:
            raise StorageFailed(
                f"{len(self._open.leaving)} packs in {self._open.folder} are part of others, and "
                "cannot be removed: look at its disk (`dmesg`)"
            )
        temporary = self._records.scratch_file(PACKS)
        try:
            with open(temporary, "wb") as file, TemporaryFile(dir=temporary.parent) as index:
                writer = PackWriter(file.write, replaces, index)
                yield writer
                name = writer.finish()
            head = self._read_again(name, temporary, self._open.sources(replaces))
            self._records.move_in(temporary, self._open.folder / name, durable=True)
        finally:
            temporary.unlink(missing_ok=True)
        self._open.exchange(replaces, [head])

    def _read_again(self, name: str, path: Path, sources: Sequence[Source]) -> Head:
        """What was written, before anything counts on it. Raises StorageFailed."""
        with FileIO(path) as file:
            read = partial(pread, file)
            head = packed.open_pack(name, path.stat().st_size, read)
            for entry, what in packed.faults(head, read):
                if entry is None or not _was_damaged(entry.key, sources):
                    raise StorageFailed(f"a new pack {what}: it is not kept")
        return head

    def _holds(self, key: bytes, path: Path) -> bool:
        """Whether a pack has the very bytes of this file."""
        place = self._open.place_of(key)
        if place is None:
            return False
        return packed.payload_of(*place) == path.read_bytes()

    def _loose(self, kinds: Sequence[str], but: Collection[str]) -> list[tuple[bytes, Path]]:
        """Files that a pack may hold, in the order of their keys: as many as go at once."""
        found: list[tuple[bytes, Path]] = []
        size_bytes = 0
        for kind in kinds:
            for name in self._records.record_names(kind):
                key, path = packed.key_of(kind, name), self._records.record_path(kind, name)
                found_there = path.stat()
                size = found_there.st_size
                if key is None or size > packed.RECORD_BYTES_MAX or f"{kind}/{name}" in but:
                    continue
                if not stat.S_ISREG(found_there.st_mode):
                    continue  # at a pipe one would wait
                if len(found) == BATCH_RECORDS_MAX or size_bytes + size > BATCH_BYTES_MAX:
                    break
                found.append((key, path))
                size_bytes += size
        return sorted(found)

    @contextmanager
    def _change(self, what: str) -> Iterator[None]:
        with storage(f"{what} in {self._open.folder}"):
            try:
                yield
            except DamagedPack as fault:
                raise StorageFailed(f"cannot {what} in {self._open.folder}: {fault}") from fault


def _whole(name: str, entry: Entry, read: ReadAt) -> bytes:
    payload = packed.payload_of(entry, read)
    if not entry.fits(payload):
        raise StorageFailed(f"{name} is damaged in its pack")
    return payload


def _was_damaged(key: bytes, sources: Sequence[Source]) -> bool:
    found = ((packed.find(head, read, key), read) for head, read in sources)
    return any(entry and not packed.is_good(entry, read) for entry, read in found)
