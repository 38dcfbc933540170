"""The signer's memory on disk: an append-only log beside one guard file, under one lock.

    agreement/lock    flock; its text is the process id of the signer that holds it
    agreement/wal     the log, and
    agreement/guard   the guard, as journal_format has them

Log header and guard appear by rename, so they are never half there.

After a failed sync the kernel may call the lost pages clean, so that syncing again proves nothing,
and show them to whoever reads the file until the power goes (Rebello et al., "Can Applications
Recover from fsync Failures?", USENIX ATC 2020). So nothing is promised from then on until the whole
log is written anew, into a file of its own. A start writes every record again where it stands: what
an earlier process has left may lie in the kernel's memory alone.
"""

import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from daa_node.adapters.descriptors import Shortage, is_lack
from daa_node.adapters.durable_files import sync
from daa_node.adapters.journal_format import (
    GUARD_BYTES_MAX,
    framed,
    guard_of,
    guarded,
    log_of,
    records_of,
)
from daa_node.errors import StorageFailed, UserError
from daa_node.seams import Offload
from daa_node.system_calls import sync_data

T = TypeVar("T")

# The signer rewrites its log at 4 MiB; a file far beyond that is not one that it wrote.
LOG_BYTES_MAX = 64 * 2**20


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
        self._broken: str | None = None  # while set, nothing but a new log is taken

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
                os.close(_replace(self._wal, log_of([])))
            self._descriptor = os.open(self._wal, os.O_RDWR | os.O_CLOEXEC)
            size_bytes = os.fstat(self._descriptor).st_size
            if size_bytes > LOG_BYTES_MAX:
                raise StorageFailed(f"{self._wal} has {size_bytes} bytes, at most {LOG_BYTES_MAX}")
            with open(self._wal, "rb") as file:
                records = records_of(str(self._wal), file.read())
            whole = log_of(records)
            _write_at(self._descriptor, whole, 0)
            os.ftruncate(self._descriptor, len(whole))
            sync_data(self._descriptor)
            sync(self._wal.parent)
        except OSError as fault:
            raise StorageFailed(f"cannot read {self._wal}: {fault}") from fault
        self._end = len(whole)
        return records

    def _append(self, record: bytes) -> None:
        self._check_whole()
        assert self._descriptor >= 0, "load comes first"
        added = framed(record)
        try:
            _write_at(self._descriptor, added, self._end)
        except OSError as fault:
            # A full disk: take the half record back, so that there may be another try later.
            try:
                os.ftruncate(self._descriptor, self._end)
            except OSError as second:
                self._broken = f"cannot take back half a record: {second}"
            raise StorageFailed(f"cannot write {self._wal}: {fault}") from fault
        try:
            sync_data(self._descriptor)
        except OSError as fault:
            self._broken = f"syncing failed: {fault}"
            raise StorageFailed(f"cannot sync {self._wal}: {fault}") from fault
        self._end += len(added)

    def _rewrite(self, records: list[bytes]) -> None:
        log = log_of(records)
        try:
            fresh = _replace(self._wal, log)
        except OSError as fault:
            # Which of both files has the name now, and will have it after a power cut?
            if not is_lack(fault):
                self._broken = f"replacing failed: {fault}"
            raise StorageFailed(f"cannot replace {self._wal}: {fault}") from fault
        self.close()
        self._descriptor, self._end, self._broken = fresh, len(log), None

    def _read_guard(self) -> bytes | None:
        try:
            with open(self._guard, "rb") as file:
                stored = file.read(GUARD_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise StorageFailed(f"cannot read {self._guard}: {fault}") from fault
        return guarded(str(self._guard), stored)

    def _write_guard(self, payload: bytes) -> None:
        self._check_whole()
        try:
            os.close(_replace(self._guard, guard_of(payload)))
        except OSError as fault:
            raise StorageFailed(f"cannot write {self._guard}: {fault}") from fault

    def _check_whole(self) -> None:
        if self._broken is not None:
            raise StorageFailed(f"{self._wal}: {self._broken}; it must be written anew")


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


def _write_at(descriptor: int, payload: bytes, offset: int) -> None:
    view = memoryview(payload)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _replace(path: Path, payload: bytes) -> int:
    """Write beside, sync, rename, sync the directory: all of it or nothing. Raises OSError.

    The new file, open for reading and writing: whoever asks for all descriptors that it takes
    before it changes anything does not lack one in the middle.
    """
    staged = path.with_name(path.name + ".new")
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        descriptor = os.open(staged, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_at(descriptor, payload, 0)
            sync_data(descriptor)
            os.rename(staged, path)
            os.fsync(parent)
        except BaseException:
            os.close(descriptor)
            raise
    finally:
        os.close(parent)
    return descriptor
