"""The bytes of a signer's log and of its guard file, and what of them is whole.

    log      "daa-wal\\n", version, then records: marker, length, blake3 of both, payload
    guard    "daa-grd\\n", version, blake3 of the payload, payload

A kill or a power cut can only leave the *last* record incomplete, for each one is synced before the
next begins: that one does not count. A damaged record with a whole one after it is damage of
another kind, and is reported, never cut.
"""

import struct
from collections.abc import Iterable

from blake3 import blake3

from daa_node.errors import StorageFailed, UserError

JOURNAL_VERSION = 1
RECORD_BYTES_MAX = 4 * 2**20
GUARD_BYTES_MAX = 65_536

LOG_MAGIC, GUARD_MAGIC = b"daa-wal\n", b"daa-grd\n"
_HEADER = struct.Struct(">8sI")
_MARKER = b"\xd4\xaa\x1e\xc0"  # makes the search for a record behind damage fast
_LENGTH = struct.Struct(">I")
_DIGEST_BYTES = 32
_PREFIX_BYTES = len(_MARKER) + _LENGTH.size + _DIGEST_BYTES


def log_of(records: Iterable[bytes]) -> bytes:
    """A whole log."""
    return _HEADER.pack(LOG_MAGIC, JOURNAL_VERSION) + b"".join(map(framed, records))


def framed(record: bytes) -> bytes:
    """One record, as it stands in a log."""
    assert len(record) <= RECORD_BYTES_MAX
    length = _LENGTH.pack(len(record))
    return _MARKER + length + blake3(length + record).digest() + record


def records_of(name: str, log: bytes) -> list[bytes]:
    """Every whole record of the log called `name`.

    Raises StorageFailed for damage in the middle, UserError for another program's version.
    """
    _check_header(name, log, LOG_MAGIC)
    records, offset = list[bytes](), _HEADER.size
    while (record := _record_at(log, offset)) is not None:
        records.append(record)
        offset += _PREFIX_BYTES + len(record)
    behind = log.find(_MARKER, offset + 1)
    while behind >= 0:
        if _record_at(log, behind) is not None:
            raise StorageFailed(
                f"{name}: record {len(records)} at byte {offset} is damaged, and a whole one "
                f"follows at byte {behind}; move it away, and put no older copy there: the node "
                f"then observes until the others let it rejoin"
            )
        behind = log.find(_MARKER, behind + 1)
    return records


def guard_of(payload: bytes) -> bytes:
    """A whole guard file."""
    assert len(payload) <= GUARD_BYTES_MAX - _HEADER.size - _DIGEST_BYTES
    return _HEADER.pack(GUARD_MAGIC, JOURNAL_VERSION) + blake3(payload).digest() + payload


def guarded(name: str, stored: bytes) -> bytes:
    """The payload of the guard file called `name`; b"" if it is damaged. Raises UserError."""
    if stored[: len(GUARD_MAGIC)] != GUARD_MAGIC or len(stored) < _HEADER.size:
        return b""
    _check_header(name, stored, GUARD_MAGIC)
    digest = stored[_HEADER.size : _HEADER.size + _DIGEST_BYTES]
    payload = stored[_HEADER.size + _DIGEST_BYTES :]
    return payload if digest == blake3(payload).digest() else b""


def _record_at(log: bytes, offset: int) -> bytes | None:
    """The record that begins at `offset`, or None if no whole and undamaged one does."""
    start = offset + _PREFIX_BYTES
    if log[offset : offset + len(_MARKER)] != _MARKER or start > len(log):
        return None
    (length,) = _LENGTH.unpack_from(log, offset + len(_MARKER))
    if length > RECORD_BYTES_MAX or start + length > len(log):
        return None
    record = log[start : start + length]
    digest = blake3(_LENGTH.pack(length) + record).digest()
    return record if log[start - _DIGEST_BYTES : start] == digest else None


def _check_header(name: str, stored: bytes, magic: bytes) -> None:
    if len(stored) < _HEADER.size or stored[: len(magic)] != magic:
        raise StorageFailed(f"{name} does not begin like a file of this program")
    version = _HEADER.unpack_from(stored)[1]
    if version != JOURNAL_VERSION:
        raise UserError(
            f"{name} has format version {version}, this program reads version {JOURNAL_VERSION}: "
            f"run the program that wrote it, or a newer one"
        )
