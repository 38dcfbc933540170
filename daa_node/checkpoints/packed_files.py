"""The packs of a chain directory, read by who trusts nobody (see files).

A pack that another one replaces, and a loose file that a pack holds as well, are what packing was
about to delete when it was cut off: neither counts, and both must be what they were.
"""

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge
from io import FileIO
from pathlib import Path

from daa_node.checkpoints.pack_places import PackPlaces
from daa_node.checkpoints.plain_files import (
    Gone,
    Problem,
    Unreadable,
    open_plain,
    shown,
    unreadable,
)
from daa_node.packs.format import (
    PACKS,
    RECORDS_MAX,
    DamagedPack,
    Entry,
    Head,
    ReadAt,
    count_of,
    entries,
    entries_of,
    faults,
    find,
    key_of,
    name_of,
    on_unknown_shelf,
    open_pack,
    payload_of,
    unknown_shelf,
)

FILES_OPEN_MAX = 32  # packs; of more, the one that was opened last is closed
# Of more packs those that are not full are searched once, and where each record is is written down:
# a daemon merges them, and has some 25.
SEARCHED_MAX = 128


@dataclass(frozen=True, slots=True)
class Shelf:
    """The packs that were there at one moment."""

    heads: tuple[Head, ...]
    superseded: tuple[Head, ...]
    size_bytes: int  # of all, these included


@dataclass(frozen=True, slots=True)
class _Placed:
    """Of a shelf with very many packs: `heads` as `places` counts them, and those besides."""

    places: PackPlaces
    heads: tuple[Head, ...]
    full: tuple[Head, ...]


class PackedFiles:
    """Reads `directory`, a chain/packs/; each pack that is looked at again and again once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[str, FileIO] = {}
        self._known: dict[tuple[str, int, int, int], Head] = {}
        self._likely: Head | None = None  # had what was looked for last: what comes next is beside
        self._placed: tuple[Shelf, _Placed] | None = None
        self._listed: tuple[tuple[Head, ...], dict[str, Head]] = ((), {})

    def shelf(self, names: list[str], strange: list[Problem]) -> Shelf:
        """Of packs that lie there by these names. What is none is named."""
        heads: list[Head] = []
        for name in names:
            try:
                heads.append(self._head(name))
            except Unreadable as fault:
                strange.append(Problem(str(fault), shown(f"{PACKS}/{name}")))
        replaced = {name for head in heads for name in head.replaces}
        kept = [head for head in heads if head.name not in replaced]
        left = [head for head in heads if head.name in replaced]
        return Shelf(tuple(kept), tuple(left), sum(head.size_bytes for head in heads))

    def sizes(self, shelf: Shelf, strange: list[Problem]) -> dict[str, int]:
        """Bytes by `kind/name` of all that they hold; what two of them hold is named."""
        sizes: dict[str, int] = {}
        heads: dict[str, Head] = {}  # names in no order of packs are read from here on
        self._listed = shelf.heads, heads
        for head in shelf.heads:
            where = f"{PACKS}/{head.name}"
            try:
                for entry in entries(head, self._reader(head.name)):
                    name = "/".join(name_of(entry.key))
                    if name in sizes:
                        strange.append(Problem(f"holds {name}, as another pack does", where))
                    sizes[name] = entry.size_bytes
                    heads[name] = head
            except (DamagedPack, Unreadable) as fault:
                strange.append(Problem(str(fault), where))
        return sizes

    def keep_open(self, shelf: Shelf) -> None:
        """The smallest ones, which a running daemon may merge: they can be read all the same."""
        for head in sorted(shelf.heads, key=lambda head: head.count)[: FILES_OPEN_MAX - 1]:
            self._reader(head.name)

    def is_open(self, head: Head) -> bool:
        return head.name in self._open

    def each(self, heads: Sequence[Head], kind: str) -> Iterator[tuple[str, int, Head]]:
        """`kind/name` and bytes of each of their records of this kind, few in memory at a time.

        Raises Unreadable, also where two packs hold one: it comes out of them in order.
        """
        last = b""
        for entry, head in merge(*(self._run(h, kind) for h in heads), key=lambda r: r[0].key):
            if entry.key <= last:
                raise Unreadable("is out of order, or in two packs")
            last = entry.key
            yield "/".join(name_of(entry.key)), entry.size_bytes, head

    def _run(self, head: Head, kind: str) -> Iterator[tuple[Entry, Head]]:
        try:
            # each time anew: of many packs few stay open
            for entry in entries_of(head, lambda *at: self._reader(head.name)(*at), kind):
                yield entry, head
        except DamagedPack as fault:
            raise Unreadable(str(fault)) from None

    def has(self, shelf: Shelf, name: str) -> bool:
        return self._find(shelf, name) is not None

    def count(self, shelf: Shelf, kind: str, but: Collection[str]) -> int:
        """How many records of the kind there are, but for these `kind/name`.

        One that several packs hold counts as often. Raises Unreadable.
        """
        count, keys = 0, [key_of(*name.split("/", 1)) for name in but]
        for head in shelf.heads:  # one after the other: more may be here than are open at a time
            count += count_of(head, kind)
        for key in keys:
            for head in () if key is None else self._heads_for(shelf, key):
                assert key is not None
                if self._entry(head, key) is not None:
                    count -= 1
        return count

    def read(self, shelf: Shelf, name: str, size_bytes_max: int) -> bytes | None:
        """A record's bytes; None if no pack holds it. Raises Unreadable."""
        found = self._find(shelf, name)
        if found is None:
            return None
        head, entry = found
        if entry.size_bytes > size_bytes_max:
            raise Unreadable(f"is longer than {size_bytes_max} bytes, the most it may have")
        payload = payload_of(entry, self._reader(head.name))
        if not entry.fits(payload):
            raise Unreadable(f"is damaged in {PACKS}/{head.name}")
        return payload

    def agrees(self, shelf: Shelf, name: str, payload: bytes) -> bool:
        """Whether the loose file of this name is what its pack holds."""
        found = self._find(shelf, name)
        return found is not None and found[1].fits(payload)

    def problems(self, head: Head, on_bytes: Callable[[int], None]) -> Iterator[Problem]:
        """All that is wrong with the bytes of this pack, record by record. Raises Gone."""
        where = f"{PACKS}/{head.name}"
        try:
            shelf = unknown_shelf(head, self._reader(head.name))
            if shelf is not None:  # no kind has it, so nobody else comes upon it
                yield Problem(on_unknown_shelf(shelf), where)
            for entry, what in faults(head, self._reader(head.name)):
                about = "" if entry is None else "/".join(name_of(entry.key)) + " in it "
                yield Problem(about + what, where)
        except Gone:
            raise
        except (DamagedPack, Unreadable) as fault:
            yield Problem(str(fault), where)
        on_bytes(head.size_bytes)

    def _find(self, shelf: Shelf, name: str) -> tuple[Head, Entry] | None:
        kind, _, rest = name.partition("/")
        key = key_of(kind, rest)
        for head in self._heads_of(shelf, name, key) if key is not None else ():
            assert key is not None
            entry = self._entry(head, key)
            if entry is not None:
                self._likely = head
                return head, entry
        return None

    def _entry(self, head: Head, key: bytes) -> Entry | None:
        try:
            return find(head, self._reader(head.name), key)
        except DamagedPack as fault:
            raise Unreadable(str(fault)) from None

    def _heads_of(self, shelf: Shelf, name: str, key: bytes) -> Iterator[Head]:
        """As `_heads_for`; of what was listed just there it is known."""
        heads, listed = self._listed
        if heads is not shelf.heads and heads == shelf.heads:  # of two listings that were the same
            self._listed = heads, listed = shelf.heads, listed
        if heads is shelf.heads and name in listed:
            yield listed[name]
        else:
            yield from self._heads_for(shelf, key)

    def _heads_for(self, shelf: Shelf, key: bytes) -> Iterator[Head]:
        """Where the record may be, the likely ones first. Raises Unreadable."""
        heads = shelf.heads
        if len(heads) > SEARCHED_MAX:
            placed = self._placed_in(shelf)
            number = placed.places.get(key)
            if number is not None:
                yield placed.heads[number]
            heads = placed.full
        likely = self._likely
        if any(head is likely for head in heads):
            assert likely is not None
            yield likely
        yield from (head for head in heads if head is not likely)

    def _placed_in(self, shelf: Shelf) -> "_Placed":
        if self._placed is None or self._placed[0] is not shelf:
            full = tuple(head for head in shelf.heads if 2 * head.count > RECORDS_MAX)
            others = tuple(head for head in shelf.heads if 2 * head.count <= RECORDS_MAX)
            try:
                places = PackPlaces(self._keys(head) for head in others)
            except sqlite3.Error as fault:
                raise Unreadable(f"cannot be looked for in {len(others)} packs: {fault}") from None
            self._placed = shelf, _Placed(places, others, full)
        return self._placed[1]

    def _keys(self, head: Head) -> Iterator[bytes]:
        with suppress(DamagedPack):  # which is named when the pack itself is judged
            for entry in entries(head, self._reader(head.name)):
                yield entry.key

    def _head(self, name: str) -> Head:
        with open_plain(self._directory / name) as file:
            found = os.fstat(file.fileno())
            identity = (name, found.st_ino, found.st_size, found.st_mtime_ns)
            if identity not in self._known:
                self._open.pop(name, None)  # of another file by this name
                try:
                    self._known[identity] = open_pack(name, found.st_size, _reader(file))
                except DamagedPack as fault:
                    raise Unreadable(str(fault)) from None
        return self._known[identity]

    def _reader(self, name: str) -> ReadAt:
        """What is opened stays so for a while: thousands of records are looked for in each pack."""
        file = self._open.get(name)
        if file is None:
            file = open_plain(self._directory / name)
            if len(self._open) >= FILES_OPEN_MAX:
                self._open.popitem()  # all are gone through in one order
            self._open[name] = file
        return _reader(file)


def _reader(file: FileIO) -> ReadAt:
    def read(offset: int, size_bytes: int) -> bytes:
        try:
            return os.pread(file.fileno(), size_bytes, offset)
        except OSError as fault:
            raise unreadable(fault) from None

    return read
