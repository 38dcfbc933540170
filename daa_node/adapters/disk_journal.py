"""The signer's memory on disk: an append-only log beside one guard file, under one lock.

    agreement/lock    flock; its text is the process id of the signer that holds it
    agreement/wal     "daa-wal\\n", version, then records: marker, length, blake3 of both, payload
    agreement/guard   "daa-grd\\n", version, blake3 of the payload, payload

A kill or a power cut can only leave the *last* record incomplete, for each one is synced before the
next begins: that one is cut. A damaged record with a whole one after it is damage of another kind,
and is reported, never cut. Log header and guard appear by rename, so they are never half there.
"""

import fcntl
import os
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from blake3 import blake3

from daa_node.adapters.descriptors import Shortage
from daa_node.errors import StorageFailed, UserError
from daa_node.seams import Offload

T = TypeVar("T")

JOURNAL_VERSION = 1
RECORD_BYTES_MAX = 4 * 2**20
# The signer rewrites its log at 4 MiB; a file far beyond that is not one that it wrote.
LOG_BYTES_MAX = 64 * 2**20
GUARD_BYTES_MAX = 65_536

_LOG_MAGIC, _GUARD_MAGIC = b"daa-wal\n", b"daa-grd\n"
_HEADER = struct.Struct(">8sI")
_MARKER = b"\xd4\xaa\x1e\xc0"  # makes the search for a record behind damage fast
_LENGTH = struct.Struct(">I")
_DIGEST_BYTES = 32
_PREFIX_BYTES = len(_MARKER) + _LENGTH.size + _DIGEST_BYTES


class DiskJournal:
    """The Journal seam in one directory. Made by open_journal, which holds the lock.

    For want of a descriptor every call waits: it has changed nothing then.
    """

    def __init__(self, directory: Path, offload: Offload, shortage: Shortage) -> None:
        self._wal = directory / "wal"
        self._guard = directory / "guard"
        self._offload = offload
        self._shortage = shortage
        self._descriptor = -1
        self._end = 0  # where the next record goes
        self._broken: str | None = None  # once set, nothing more is promised until a restart

    async def load(self) -> list[bytes]:
        return await self._run(self._load)

    async def append(self, record: bytes) -> None:
        await self._run(lambda: self._append(record))

    async def rewrite(self, records: list[bytes]) -> None:
        await self._run(lambda: self._rewrite(records))

    async def read_guard(self) -> bytes | None:
        return await self._run(self._read_guard)

    async def write_guard(self, payload: bytes) -> None:
        await self._run(lambda: self._write_guard(payload))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def _run(self, work: Callable[[], T]) -> T:
        return await self._shortage.outlast(lambda: self._offload.run(work))

    def _load(self) -> list[bytes]:
        self.close()
        try:
            if not self._wal.exists():
                os.close(_replace(self._wal, [_HEADER.pack(_LOG_MAGIC, JOURNAL_VERSION)]))
            self._descriptor = os.open(self._wal, os.O_RDWR | os.O_CLOEXEC)
            size_bytes = os.fstat(self._descriptor).st_size
            if size_bytes > LOG_BYTES_MAX:
                raise StorageFailed(f"{self._wal} has {size_bytes} bytes, at most {LOG_BYTES_MAX}")
            with open(self._wal, "rb") as file:
                log = file.read()
            _check_header(self._wal, log, _LOG_MAGIC)
            records, self._end = _records_of(self._wal, log)
            if self._end < size_bytes:
                os.ftruncate(self._descriptor, self._end)
                os.fsync(self._descriptor)
        except OSError as fault:
            raise StorageFailed(f"cannot read {self._wal}: {fault}") from fault
        return records

    def _append(self, record: bytes) -> None:
        assert self._descriptor >= 0, "load comes first"
        self._check_whole()
        try:
            _write_at(self._descriptor, _framed(record), self._end)
        except OSError as fault:
            # A full disk: take the half record back, so that there may be another try later.
            try:
                os.ftruncate(self._descriptor, self._end)
            except OSError as second:
                self._broken = f"cannot take back half a record: {second}"
            raise StorageFailed(f"cannot write {self._wal}: {fault}") from fault
        try:
            os.fdatasync(self._descriptor)
        except OSError as fault:
            # The kernel may now think that the lost pages are clean: syncing again proves nothing.
            self._broken = f"syncing failed: {fault}"
            raise StorageFailed(f"cannot sync {self._wal}: {fault}") from fault
        self._end += _PREFIX_BYTES + len(record)

    def _rewrite(self, records: list[bytes]) -> None:
        self._check_whole()
        parts = [_HEADER.pack(_LOG_MAGIC, JOURNAL_VERSION), *(_framed(r) for r in records)]
        try:
            fresh = _replace(self._wal, parts)
        except OSError as fault:
            raise StorageFailed(f"cannot replace {self._wal}: {fault}") from fault
        self.close()
        self._descriptor = fresh
        self._end = sum(len(part) for part in parts)

    def _read_guard(self) -> bytes | None:
        try:
            with open(self._guard, "rb") as file:
                stored = file.read(GUARD_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise StorageFailed(f"cannot read {self._guard}: {fault}") from fault
        if stored[: len(_GUARD_MAGIC)] != _GUARD_MAGIC or len(stored) < _HEADER.size:
            return b""
        _check_header(self._guard, stored, _GUARD_MAGIC)
        digest = stored[_HEADER.size : _HEADER.size + _DIGEST_BYTES]
        payload = stored[_HEADER.size + _DIGEST_BYTES :]
        return payload if digest == blake3(payload).digest() else b""

    def _write_guard(self, payload: bytes) -> None:
        assert len(payload) <= GUARD_BYTES_MAX - _HEADER.size - _DIGEST_BYTES
        self._check_whole()
        header = _HEADER.pack(_GUARD_MAGIC, JOURNAL_VERSION)
        try:
            os.close(_replace(self._guard, [header, blake3(payload).digest(), payload]))
        except OSError as fault:
            raise StorageFailed(f"cannot write {self._guard}: {fault}") from fault

    def _check_whole(self) -> None:
        if self._broken is not None:
            raise StorageFailed(f"{self._wal}: {self._broken}; mend the disk and restart")


@asynccontextmanager
async def open_journal(
    directory: Path, offload: Offload, shortage: Shortage | None = None
) -> AsyncIterator[DiskJournal]:
    """The journal in `directory`, made if absent, for this process alone until the block ends.

    Raises UserError when another process holds it, StorageFailed when the disk refuses.
    """
    lock = await offload.run(lambda: _lock(directory))
    journal = DiskJournal(directory, offload, shortage or Shortage())
    try:
        yield journal
    finally:
        journal.close()
        os.close(lock)


def _lock(directory: Path) -> int:
    path = directory / "lock"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise StorageFailed(f"cannot open {path}: {fault}") from fault
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode("ascii", errors="replace") or "unknown"
        os.close(lock)
        raise UserError(
            f"{directory} is in use by process {holder}: one signer a directory; stop that first"
        ) from None
    except OSError as fault:
        os.close(lock)
        raise StorageFailed(f"cannot lock {path}: {fault}") from fault
    return lock


def _framed(record: bytes) -> bytes:
    assert len(record) <= RECORD_BYTES_MAX
    length = _LENGTH.pack(len(record))
    return _MARKER + length + blake3(length + record).digest() + record


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


def _records_of(path: Path, log: bytes) -> tuple[list[bytes], int]:
    """Every record, and where the last one ends; raises StorageFailed for damage in the middle."""
    records, offset = [], _HEADER.size
    while (record := _record_at(log, offset)) is not None:
        records.append(record)
        offset += _PREFIX_BYTES + len(record)
    behind = log.find(_MARKER, offset + 1)
    while behind >= 0:
        if _record_at(log, behind) is not None:
            raise StorageFailed(
                f"{path}: record {len(records)} at byte {offset} is damaged, and a whole one "
                f"follows at byte {behind}; restore the file, or move it away: the node then "
                f"observes until the others let it rejoin"
            )
        behind = log.find(_MARKER, behind + 1)
    return records, offset


def _check_header(path: Path, stored: bytes, magic: bytes) -> None:
    if len(stored) < _HEADER.size or stored[: len(magic)] != magic:
        raise StorageFailed(f"{path} does not begin like a file of this program")
    version = _HEADER.unpack_from(stored)[1]
    if version != JOURNAL_VERSION:
        raise UserError(
            f"{path} has format version {version}, this program reads version {JOURNAL_VERSION}: "
            f"run the program that wrote it, or a newer one"
        )


def _write_at(descriptor: int, payload: bytes, offset: int) -> None:
    view = memoryview(payload)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _replace(path: Path, parts: Iterable[bytes]) -> int:
    """Write beside, sync, rename, sync the directory: all of it or nothing. Raises OSError.

    The new file, open for reading and writing: whoever asks for all descriptors that it takes
    before it changes anything does not lack one in the middle.
    """
    staged = path.with_name(path.name + ".new")
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        descriptor = os.open(staged, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_at(descriptor, b"".join(parts), 0)
            os.fdatasync(descriptor)
            os.rename(staged, path)
            os.fsync(parent)
        except BaseException:
            os.close(descriptor)
            raise
    finally:
        os.close(parent)
    return descriptor
