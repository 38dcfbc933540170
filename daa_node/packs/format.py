"""Many small records in one file: what a pack looks like, byte by byte. Pure.

    pack    = header record* index footer
    header  = "daa pack", u32 how many packs it replaces, their names (32 bytes each)
    record  = key, u32 payload size, check, payload
    index   = an entry a record: key, u64 where the record begins, u32 payload size, check
    footer  = u64 where the index begins, u32 how many records, "pack end"

Numbers are big-endian. A key is a byte for the shelf and 32 bytes of the record's own name; records
and entries lie in the order of their keys, each key once, without gaps: so an index is searched by
halves, and two packs merge in one pass. A check is the first 16 bytes of blake3 over key and
payload. The name of a pack is the blake3 of header, index and footer: it covers every byte,
payloads through their checks, and tells whether an index that was made anew from the records is
the one that was lost.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from struct import Struct
from typing import IO

from blake3 import blake3

from daa_dag.ids import DIGEST_BYTES, digest_of

PACKS = "packs"  # the folder beside those of the kinds
# A kind, and how its names end after the 64 digits. A key begins with the place in this table: it
# only ever grows at its end.
SHELVES = (
    ("vertices", ""),
    ("blocks", ""),
    ("certificates", ".exec"),
    ("certificates", ".final"),
    ("deltas", ""),
    ("manifests", ""),
    ("chunks", ""),
)

FIRST_OF_STATES = 4  # shelves from here on hold what a policy may let go

RECORD_BYTES_MAX = 4 * 2**20  # a larger blob is one file well spent
RECORDS_MAX = 2**16  # of a pack: its index has 4 MB
BYTES_MAX = 2**30  # of a pack's records: so much room, twice, takes the longest merge
REPLACES_MAX = 64
WINDOW = 64  # entries that are read at once: 4 kB
# Guesses where an entry stands; two do in a full pack. Keys that somebody has chosen are found by
# halves after these.
GUESSES_MAX = 4
PIECE_BYTES = 2**16  # of an index that is read or written as a whole

KEY_BYTES = 1 + DIGEST_BYTES
CHECK_BYTES = 16
_LEAD_BITS = 64  # of a digest, which tell where about it stands among others
_MAGIC, _END = b"daa pack", b"pack end"
VERSION = 1
_LATER = b"daa pk"  # with two digits that is how packs of later versions begin
_HEADER = Struct(">8sI")
_RECORD = Struct(f">{KEY_BYTES}sI{CHECK_BYTES}s")
_ENTRY = Struct(f">{KEY_BYTES}sQI{CHECK_BYTES}s")
_FOOTER = Struct(">QI8s")
PACK_BYTES_MAX = BYTES_MAX + RECORDS_MAX * (_RECORD.size + _ENTRY.size) + 4096

ReadAt = Callable[[int, int], bytes]  # so many bytes from there; fewer where the file ends

OUT_OF_ORDER = "has an index that is out of order, has gaps, or names a record twice"


class DamagedPack(Exception):
    """Bytes that are no pack, or not the one that its name says; in words for the report."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a record lies in its pack."""

    key: bytes
    offset: int  # of the record, in bytes
    size_bytes: int  # of its payload
    check: bytes

    @property
    def payload_offset(self) -> int:
        return self.offset + _RECORD.size

    @property
    def end(self) -> int:
        return self.payload_offset + self.size_bytes

    def fits(self, payload: bytes | memoryview) -> bool:
        """Whether these are the bytes that were packed."""
        return len(payload) == self.size_bytes and check_of(self.key, payload) == self.check


@dataclass(frozen=True, slots=True)
class Head:
    """What is kept in memory of a pack: nothing that grows with its records."""

    name: str  # 64 hex digits
    replaces: tuple[str, ...]
    records_offset: int
    index_offset: int
    count: int
    size_bytes: int
    # Which entry is the first on each shelf or a later one, beyond those that are known, too; and
    # `count`.
    shelves: tuple[int, ...]

    @property
    def has_proofs(self) -> bool:
        """Whether anything in it is no part of a state."""
        return self.shelves[FIRST_OF_STATES] > 0


def key_of(kind: str, name: str) -> bytes | None:
    """None for what no pack holds."""
    digits, dot, rest = name.partition(".")
    shelf = (kind, dot + rest)
    if shelf not in SHELVES or len(digits) != 2 * DIGEST_BYTES:
        return None
    try:
        digest = bytes.fromhex(digits)
    except ValueError:
        return None
    return bytes([SHELVES.index(shelf)]) + digest if digest.hex() == digits else None


def name_of(key: bytes) -> tuple[str, str]:
    """The kind and the name of a record. Raises DamagedPack."""
    if key[0] >= len(SHELVES):
        raise DamagedPack(on_unknown_shelf(key[0]))
    kind, suffix = SHELVES[key[0]]
    return kind, key[1:].hex() + suffix


def on_unknown_shelf(shelf: int) -> str:
    """In words for the report."""
    return f"has a record on shelf {shelf}, which this program does not know"


def check_of(key: bytes, payload: bytes | memoryview) -> bytes:
    return digest_of(key + payload)[:CHECK_BYTES]


def version_of(head: bytes) -> int | None:
    """Of a pack that begins so; None for what is none."""
    if head.startswith(_MAGIC):
        return 1
    digits = head[len(_LATER) : len(_MAGIC)]
    return int(digits) if head.startswith(_LATER) and digits.isdigit() else None


def is_newer(read: ReadAt) -> bool:
    """Whether a program with a later format has written it: nothing in it is damaged."""
    version = version_of(read(0, _HEADER.size))
    return version is not None and version > VERSION


class PackWriter:
    """Writes one pack, record by record, in the order of their keys."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        replaces: Sequence[str] = (),
        index: IO[bytes] | None = None,
    ) -> None:
        """Each piece goes to `write`; the index waits in a file that is empty, else in memory."""
        assert len(replaces) <= REPLACES_MAX
        self._write = write
        names = b"".join(bytes.fromhex(name) for name in replaces)
        self._header = _HEADER.pack(_MAGIC, len(replaces)) + names
        self._index = BytesIO() if index is None else index
        self._count = 0
        self._last = b""
        self._end = len(self._header)
        write(self._header)

    def add(self, key: bytes, payload: bytes, check: bytes | None = None) -> None:
        """`check` is another pack's, where a record moves that may be damaged already."""
        assert self._last < key, "in the order of keys, each once"
        check = check or check_of(key, payload)
        self._index.write(_ENTRY.pack(key, self._end, len(payload), check))
        self._count += 1
        self._write(_RECORD.pack(key, len(payload), check))
        self._write(payload)
        self._last, self._end = key, self._end + _RECORD.size + len(payload)

    def finish(self) -> str:
        """The name of the pack."""
        assert 0 < self._count <= RECORDS_MAX
        # piece by piece: what takes megabytes once leaves holes in a daemon's memory
        digest = blake3(self._header)
        self._index.seek(0)
        while piece := self._index.read(PIECE_BYTES):
            digest.update(piece)
            self._write(piece)
        footer = _FOOTER.pack(self._end, self._count, _END)
        self._write(footer)
        return digest.update(footer).hexdigest()


def open_pack(name: str, size_bytes: int, read: ReadAt) -> Head:
    """Header, index and footer, checked against the name. Raises DamagedPack.

    What the index says is whatever its maker wrote: it is looked at when it is gone by.
    """
    replaces = _replaced(read)
    if size_bytes > PACK_BYTES_MAX:
        raise DamagedPack(f"is longer than {PACK_BYTES_MAX} bytes, the most that a pack may have")
    start = _HEADER.size + DIGEST_BYTES * len(replaces)
    if size_bytes < start + _ENTRY.size + _FOOTER.size:
        raise DamagedPack("ends too soon")
    footer = read(size_bytes - _FOOTER.size, _FOOTER.size)
    index_offset, count, end = _FOOTER.unpack(footer)
    whole = index_offset + count * _ENTRY.size + _FOOTER.size == size_bytes
    if end != _END or not whole or not 0 < count <= RECORDS_MAX or index_offset < start:
        raise DamagedPack("does not end as a pack does: it is cut, longer or damaged")
    digest = blake3(read(0, start))
    for at in range(index_offset, index_offset + count * _ENTRY.size, PIECE_BYTES):
        digest.update(read(at, min(PIECE_BYTES, index_offset + count * _ENTRY.size - at)))
    if digest.update(footer).hexdigest() != name:
        raise DamagedPack("has another index than its name says")
    shelves = [_first(index_offset, count, read, shelf) for shelf in range(len(SHELVES) + 1)]
    return Head(name, replaces, start, index_offset, count, size_bytes, (*shelves, count))


def rescued(name: str, size_bytes: int, read: ReadAt) -> bytes | None:
    """Index and footer made anew from the records, where that gives the name; else None.

    What lies in front of them is `rescued_offset` bytes long.
    """
    try:
        header = read(0, _HEADER.size + DIGEST_BYTES * len(_replaced(read)))
    except DamagedPack:
        return None
    index, at, count = bytearray(), len(header), 0
    while count < RECORDS_MAX and (entry := _record_at(at, size_bytes, read)) is not None:
        index += _ENTRY.pack(entry.key, entry.offset, entry.size_bytes, entry.check)
        at, count = entry.end, count + 1
    tail = bytes(index) + _FOOTER.pack(at, count, _END)
    return tail if digest_of(header + tail).hex() == name else None


def rescued_offset(tail: bytes) -> int:
    """Where an index that was made anew begins."""
    offset: int = _FOOTER.unpack(tail[-_FOOTER.size :])[0]
    return offset


def _record_at(at: int, size_bytes: int, read: ReadAt) -> Entry | None:
    """The record that begins there, by itself."""
    try:
        head = read(at, _RECORD.size)
        if len(head) < _RECORD.size:
            return None
        key, payload_bytes, check = _RECORD.unpack(head)
        entry = Entry(key, at, payload_bytes, check)
        inside = payload_bytes <= RECORD_BYTES_MAX and entry.end <= size_bytes
        good = inside and entry.fits(read(entry.payload_offset, payload_bytes))
    except OSError:  # behind the last record begins the index, which may be what cannot be read
        return None
    return entry if good else None


def _replaced(read: ReadAt) -> tuple[str, ...]:
    header = read(0, _HEADER.size)
    if len(header) < _HEADER.size:
        raise DamagedPack("is too short to be a pack")
    magic, count = _HEADER.unpack(header)
    if is_newer(read):
        raise DamagedPack(
            f"was written by a newer daa-node: it is a pack of format {version_of(header)}, this "
            f"program reads up to {VERSION}; update the program"
        )
    if magic != _MAGIC or count > REPLACES_MAX:
        raise DamagedPack("does not begin as a pack does")
    names = read(_HEADER.size, count * DIGEST_BYTES)
    if len(names) < count * DIGEST_BYTES:
        raise DamagedPack("ends in its header")
    starts = range(0, len(names), DIGEST_BYTES)
    return tuple(names[at : at + DIGEST_BYTES].hex() for at in starts)


def find(head: Head, read: ReadAt, key: bytes) -> Entry | None:
    """Where it must stand, as digests are spread evenly; the pack was opened, so it is in order."""
    shelf = min(key[0], len(SHELVES))
    low, high = head.shelves[shelf : shelf + 2]
    lowest, highest, wanted = 0, 2**_LEAD_BITS, _lead(key)
    guesses = GUESSES_MAX
    while high - low > WINDOW:
        middle = (high - low) // 2
        if guesses and lowest <= wanted < highest:
            middle = (high - low) * (wanted - lowest) // (highest - lowest)
            guesses -= 1
        start = min(max(low, low + middle - WINDOW // 2), high - WINDOW)
        window = _window(head, read, start, start + WINDOW)
        first, last = window[:KEY_BYTES], window[-_ENTRY.size :][:KEY_BYTES]
        if key < first:
            high, highest = start, _lead(first)
        elif key > last:
            low, lowest = start + WINDOW, _lead(last)
        else:
            return _found(window, key)
    return _found(_window(head, read, low, high), key)


def payload_of(entry: Entry, read: ReadAt, offset: int = 0, size_bytes: int | None = None) -> bytes:
    """A record's bytes, or a part of them, as they lie there; none where no record can lie.

    So no number of an index, whoever wrote it, is more than a pack has. See `Entry.fits`.
    """
    if entry.size_bytes > RECORD_BYTES_MAX or entry.end > PACK_BYTES_MAX:
        return b""
    left = max(0, entry.size_bytes - offset)
    wanted = left if size_bytes is None else min(size_bytes, left)
    return read(entry.payload_offset + offset, wanted)


def is_good(entry: Entry, read: ReadAt) -> bool:
    """Whether the record is as it was packed."""
    return entry.fits(payload_of(entry, read))


def _found(window: bytes, key: bytes) -> Entry | None:
    """The entry of this key among some that are in order."""
    size = _ENTRY.size
    at = bisect_left(
        range(len(window) // size), key, key=lambda n: window[n * size : n * size + KEY_BYTES]
    )
    there = window[at * size : at * size + KEY_BYTES] == key
    return Entry(*_ENTRY.unpack_from(window, at * size)) if there else None


def _lead(key: bytes) -> int:
    """The first bits of its digest."""
    return int.from_bytes(key[1 : 1 + _LEAD_BITS // 8])


def entries(head: Head, read: ReadAt) -> Iterator[Entry]:
    """All of them, in the order of keys; few in memory at a time. Raises DamagedPack."""
    return _entries(head, read, 0, head.count)


def entries_of(head: Head, read: ReadAt, kind: str) -> Iterator[Entry]:
    """Those of one kind, without reading what lies in front of them and behind."""
    return _entries(head, read, *_bounds(head, kind))


def unknown_shelf(head: Head, read: ReadAt) -> int | None:
    """The first beyond those that are known; None if no record stands there."""
    at = head.shelves[len(SHELVES)]
    return _window(head, read, at, at + 1)[0] if at < head.count else None


def count_of(head: Head, kind: str) -> int:
    """How many there are of one kind."""
    low, high = _bounds(head, kind)
    return high - low


def _bounds(head: Head, kind: str) -> tuple[int, int]:
    """Where those of one kind begin in the index, and end: its shelves are neighbours."""
    shelves = [shelf for shelf, (known, _) in enumerate(SHELVES) if known == kind]
    if not shelves:
        return 0, 0
    return head.shelves[shelves[0]], head.shelves[shelves[-1] + 1]


def _first(index_offset: int, count: int, read: ReadAt, shelf: int) -> int:
    """The first entry on this shelf or a later one."""

    def shelf_of(at: int) -> bytes:
        return read(index_offset + at * _ENTRY.size, 1)

    return bisect_left(range(count), bytes([shelf]), key=shelf_of)


def _window(head: Head, read: ReadAt, low: int, high: int) -> bytes:
    """Entries as they stand in the index. Raises DamagedPack."""
    size_bytes = (high - low) * _ENTRY.size
    window = read(head.index_offset + low * _ENTRY.size, size_bytes)
    if len(window) < size_bytes:
        raise DamagedPack("ends in its index")
    return window


def _entries(head: Head, read: ReadAt, low: int, high: int) -> Iterator[Entry]:
    last = b""
    for start in range(low, high, WINDOW):
        window = _window(head, read, start, min(high, start + WINDOW))
        for fields in _ENTRY.iter_unpack(window):
            entry = Entry(*fields)
            if entry.key <= last:
                raise DamagedPack(OUT_OF_ORDER)
            last = entry.key
            yield entry


def faults(head: Head, read: ReadAt) -> Iterator[tuple[Entry | None, str]]:
    """All that is wrong with the records, in words; with whose it is, where that is known."""
    at = head.records_offset
    try:
        for entry in entries(head, read):
            if entry.offset != at or entry.size_bytes > RECORD_BYTES_MAX:
                yield None, OUT_OF_ORDER
                return
            expected = _RECORD.pack(entry.key, entry.size_bytes, entry.check)
            if read(at, _RECORD.size) != expected:
                yield entry, "begins otherwise than the index says"
            if not is_good(entry, read):
                yield entry, "is damaged"
            at = entry.end
    except DamagedPack as fault:
        yield None, str(fault)
        return
    if at != head.index_offset:
        yield None, "has bytes between its records and its index"
