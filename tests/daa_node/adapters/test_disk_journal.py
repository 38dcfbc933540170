"""The journal on a real disk: torn tails, damage, full disks, versions, and its lock."""

import errno
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from daa_node.adapters.disk_journal import DiskJournal, open_journal
from daa_node.adapters.offload import ThreadOffload
from daa_node.errors import StorageFailed, UserError

T = TypeVar("T")
RECORDS = [b"first", b"", b"third" * 1000, bytes(range(256))]


def with_journal(directory: Path, work: Callable[[DiskJournal], Awaitable[T]]) -> T:
    """Open, load, work, close."""

    async def main() -> T:
        async with open_journal(directory, ThreadOffload()) as journal:
            return await work(journal)

    return trio.run(main)


def loaded(directory: Path) -> list[bytes]:
    return with_journal(directory, lambda journal: journal.load())


def write(directory: Path, records: list[bytes]) -> None:
    async def work(journal: DiskJournal) -> None:
        await journal.load()
        for record in records:
            await journal.append(record)

    with_journal(directory, work)


def test_records_return_in_order_and_more_can_follow(tmp_path: Path) -> None:
    write(tmp_path, RECORDS[:2])
    write(tmp_path, RECORDS[2:])
    assert loaded(tmp_path) == RECORDS


def test_a_fresh_directory_is_an_empty_log_without_a_guard(tmp_path: Path) -> None:
    async def work(journal: DiskJournal) -> tuple[list[bytes], bytes | None]:
        return await journal.load(), await journal.read_guard()

    assert with_journal(tmp_path / "new", work) == ([], None)
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


def test_a_log_cut_anywhere_in_its_last_record_loses_that_record_only(tmp_path: Path) -> None:
    write(tmp_path, RECORDS[:3])
    before = (tmp_path / "wal").stat().st_size
    write(tmp_path, RECORDS[3:])
    whole = (tmp_path / "wal").read_bytes()
    for size in range(before, len(whole)):
        (tmp_path / "wal").write_bytes(whole[:size])
        assert loaded(tmp_path) == RECORDS[:3]
        assert (tmp_path / "wal").stat().st_size == before, "the tail is cut for good"


def test_zeros_or_noise_behind_the_last_record_are_cut(tmp_path: Path) -> None:
    # A power cut may lengthen a file before its bytes arrive.
    write(tmp_path, RECORDS)
    for tail in (bytes(5000), os.urandom(5000)):
        with (tmp_path / "wal").open("ab") as file:
            file.write(tail)
        assert loaded(tmp_path) == RECORDS
    write(tmp_path, [b"fifth"])
    assert loaded(tmp_path) == [*RECORDS, b"fifth"]


def test_any_damage_before_a_whole_record_is_reported_and_nothing_is_cut(tmp_path: Path) -> None:
    write(tmp_path, [b"first", b"second", b"third"])
    whole = (tmp_path / "wal").read_bytes()
    last = whole.rindex(b"third") - 40
    for index in range(12, last):
        damaged = bytearray(whole)
        damaged[index] ^= 0x10
        (tmp_path / "wal").write_bytes(damaged)
        with pytest.raises(StorageFailed, match=r"wal: record . at byte \d+ is damaged.* no older"):
            loaded(tmp_path)
        assert (tmp_path / "wal").read_bytes() == damaged


def test_rewriting_replaces_the_log_and_appending_goes_on(tmp_path: Path) -> None:
    async def work(journal: DiskJournal) -> None:
        await journal.load()
        for number in range(50):
            await journal.append(b"%d" % number * 100)
        await journal.rewrite([b"summary"])
        await journal.append(b"next")

    with_journal(tmp_path, work)
    assert loaded(tmp_path) == [b"summary", b"next"]
    assert (tmp_path / "wal").stat().st_size < 200


def test_a_crash_while_rewriting_leaves_the_old_log(tmp_path: Path) -> None:
    write(tmp_path, RECORDS)
    (tmp_path / "wal.new").write_bytes(b"daa-wal\nhalf of some")
    assert loaded(tmp_path) == RECORDS


def guard_of(directory: Path) -> bytes | None:
    return with_journal(directory, lambda journal: journal.read_guard())


def test_the_guard_is_replaced_whole(tmp_path: Path) -> None:
    async def work(journal: DiskJournal) -> None:
        await journal.write_guard(b"old" * 100)
        await journal.write_guard(b"new")

    with_journal(tmp_path, work)
    assert guard_of(tmp_path) == b"new"
    assert not (tmp_path / "guard.new").exists(), "renamed, not copied"
    (tmp_path / "guard.new").write_bytes(b"half")
    assert guard_of(tmp_path) == b"new"


def test_a_damaged_guard_is_neither_missing_nor_believed(tmp_path: Path) -> None:
    with_journal(tmp_path, lambda journal: journal.write_guard(b"payload"))
    whole = (tmp_path / "guard").read_bytes()
    for index in [*range(8), *range(12, len(whole))]:
        damaged = bytearray(whole)
        damaged[index] ^= 1
        (tmp_path / "guard").write_bytes(damaged)
        assert guard_of(tmp_path) == b""
    for size in range(len(whole)):
        (tmp_path / "guard").write_bytes(whole[:size])
        assert guard_of(tmp_path) == b""


@pytest.mark.parametrize("name", ["wal", "guard"])
def test_a_store_of_a_newer_version_names_both_versions(tmp_path: Path, name: str) -> None:
    async def both(journal: DiskJournal) -> None:
        await journal.load()
        await journal.write_guard(b"payload")
        await journal.read_guard()

    with_journal(tmp_path, both)
    whole = bytearray((tmp_path / name).read_bytes())
    struct.pack_into(">I", whole, 8, 7)
    (tmp_path / name).write_bytes(whole)
    reader = loaded if name == "wal" else guard_of
    with pytest.raises(UserError, match=r"format version 7, this program reads version 1"):
        reader(tmp_path)
    assert (tmp_path / name).read_bytes() == whole


def test_a_foreign_file_in_place_of_the_log_is_not_touched(tmp_path: Path) -> None:
    for foreign in (b"", b"#!/bin/sh\necho\n"):
        (tmp_path / "wal").write_bytes(foreign)
        with pytest.raises(StorageFailed, match="does not begin like a file of this program"):
            loaded(tmp_path)
        assert (tmp_path / "wal").read_bytes() == foreign


HOLDER = """
import sys, trio
from pathlib import Path
from daa_node.adapters.disk_journal import open_journal
from daa_node.adapters.offload import ThreadOffload
async def main():
    async with open_journal(Path(sys.argv[1]), ThreadOffload()):
        sys.stdout.write("held\\n"); sys.stdout.flush()
        await trio.to_thread.run_sync(sys.stdin.read)
trio.run(main)
"""


def test_a_second_signer_is_refused_and_told_who_holds_the_directory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"in use by process {holder.pid}"):
            loaded(tmp_path)
        holder.kill()
    assert loaded(tmp_path) == []  # the kernel drops a dead process's lock


def test_the_lock_also_holds_within_one_process(tmp_path: Path) -> None:
    async def second(journal: DiskJournal) -> None:
        async with open_journal(tmp_path, ThreadOffload()):
            pass

    with pytest.raises(UserError, match=f"in use by process {os.getpid()}"):
        with_journal(tmp_path, second)


def test_a_full_disk_fails_the_append_and_room_heals_it(tmp_path: Path) -> None:
    # A limit on file sizes stands in for the full disk: the same write fails in its middle.
    async def work(journal: DiskJournal) -> None:
        await journal.load()
        await journal.append(b"before")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            with pytest.raises(StorageFailed, match="cannot write"):
                await journal.append(bytes(10_000))
            assert (tmp_path / "wal").stat().st_size < 100, "half a record is taken back"
            await journal.append(b"small enough")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        await journal.append(bytes(10_000))

    with_journal(tmp_path, work)
    assert loaded(tmp_path) == [b"before", b"small enough", bytes(10_000)]


class Syncs:
    """os.fsync and os.fdatasync: on request one fails, and what it was for never gets to the disk.

    As Linux does it: the kernel calls the lost pages clean, so that the next sync succeeds.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fail_in: int | None = None
        self.files: list[int] = []  # inodes that a sync failed on
        self.synced_last: list[int] = []
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._sync)

    def _sync(self, file: int) -> None:
        if self.fail_in is not None:
            self.fail_in -= 1
            if self.fail_in < 0:
                self.fail_in = None
                self.files.append(os.fstat(file).st_ino)
                raise OSError(errno.EIO, "Input/output error")
        self.synced_last.append(os.fstat(file).st_ino)


def test_after_a_failed_sync_nothing_is_promised_until_the_log_is_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)

    async def work(journal: DiskJournal) -> None:
        await journal.load()
        await journal.append(b"before")
        syncs.fail_in = 0
        with pytest.raises(StorageFailed, match="cannot sync"):
            await journal.append(b"lost")
        for promise in (journal.append, journal.write_guard):
            with pytest.raises(StorageFailed, match="must be written anew"):
                await promise(b"after")
        await journal.rewrite([b"all"])
        assert (tmp_path / "wal").stat().st_ino not in syncs.files
        await journal.append(b"after")
        await journal.write_guard(b"after")

    with_journal(tmp_path, work)
    assert loaded(tmp_path) == [b"all", b"after"]


def test_a_start_trusts_no_page_that_an_earlier_process_failed_to_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record can be read, from the kernel's memory, and is not on the disk."""
    write(tmp_path, [b"before"])
    syncs = Syncs(monkeypatch)

    async def work(journal: DiskJournal) -> None:
        await journal.load()
        syncs.fail_in = 0
        with pytest.raises(StorageFailed, match="cannot sync"):
            await journal.append(b"lost")

    with_journal(tmp_path, work)
    written, write_at = bytearray(), os.pwrite

    def note(file: int, payload: memoryview, offset: int) -> int:
        if os.fstat(file).st_ino in syncs.files:
            assert offset == len(written)
            written.extend(payload)
        return write_at(file, payload, offset)

    monkeypatch.setattr(os, "pwrite", note)
    assert loaded(tmp_path) == [b"before", b"lost"]
    assert written == (tmp_path / "wal").read_bytes()
    assert syncs.synced_last[-2:] == [(tmp_path / "wal").stat().st_ino, tmp_path.stat().st_ino]


def test_a_log_whose_name_could_not_be_synced_is_replaced_before_it_is_appended_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file has the name by then: what is appended to the old one nobody ever reads."""
    syncs = Syncs(monkeypatch)

    async def work(journal: DiskJournal) -> None:
        await journal.load()
        syncs.fail_in = 1  # of the directory
        with pytest.raises(StorageFailed, match="cannot replace"):
            await journal.rewrite([b"base"])
        with pytest.raises(StorageFailed, match="must be written anew"):
            await journal.append(b"to a file without a name")
        await journal.rewrite([b"base"])
        await journal.append(b"after")

    with_journal(tmp_path, work)
    assert loaded(tmp_path) == [b"base", b"after"]
