"""Packs that are damaged, cut, put back or left behind: mended, named, or kept until it is safe."""

import errno
import os
from contextlib import suppress
from io import FileIO
from pathlib import Path

import pytest

from daa_node.adapters import open_packs
from daa_node.adapters.blob_directory import BlobDirectory
from daa_node.errors import StorageFailed
from daa_node.packs import format as packed
from daa_node.packs.format import Entry, Head, ReadAt
from daa_node.packs.merging import MERGED
from tests.daa_node.adapters.test_pack_directory import (
    KINDS,
    Contents,
    Stumble,
    assert_holds,
    fill,
    merged_away,
    packs_in,
    watched,
)


@pytest.fixture
def store(tmp_path: Path) -> BlobDirectory:
    return BlobDirectory(tmp_path / "chain")


def test_an_index_that_rots_while_it_is_open_costs_no_record_in_a_merge(
    store: BlobDirectory,
) -> None:
    made = merged_away(store)
    path = packs_in(store)[0]
    content = bytearray(path.read_bytes())
    content[-40] ^= 1  # of the key of the last entry, and of nothing else
    path.write_bytes(content)
    assert store.packs.merge() == MERGED
    assert_holds(store, made)
    assert_holds(BlobDirectory(store.records.root), made)


@pytest.mark.parametrize("back", [4, 40, 1000])
def test_an_index_that_the_disk_cannot_read_is_made_again_from_the_records(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch, back: int
) -> None:
    made = fill(store, 0, 30)
    store.packs.pack(KINDS, 1)
    (path,) = packs_in(store)
    content, inode = path.read_bytes(), path.stat().st_ino
    bad, pread = len(content) - back, os.pread

    def failing(file: int, size_bytes: int, offset: int) -> bytes:
        if os.fstat(file).st_ino == inode and offset <= bad < offset + size_bytes:
            raise OSError(errno.EIO, "Input/output error")
        return pread(file, size_bytes, offset)

    monkeypatch.setattr(os, "pread", failing)
    assert_holds(BlobDirectory(store.records.root), made)
    assert path.read_bytes() == content
    assert path.stat().st_ino != inode


def test_a_pack_that_is_cut_while_it_is_open_fails_as_a_disk_does(store: BlobDirectory) -> None:
    fill(store, 0, 30)
    store.packs.pack(KINDS, 1)
    assert store.record_names("manifests")
    (path,) = packs_in(store)
    os.truncate(path, path.stat().st_size - 100)
    with pytest.raises(StorageFailed, match="cannot list manifests"):
        store.record_names("manifests")


def test_old_packs_put_back_beside_a_damaged_one_are_kept_and_heal_it(
    store: BlobDirectory,
) -> None:
    made = merged_away(store)
    kept = {path: path.read_bytes() for path in packs_in(store)}
    store.packs.merge()
    (merged,) = packs_in(store)
    for path, content in kept.items():
        path.write_bytes(content)
    again = BlobDirectory(store.records.root)
    assert_holds(again, made)
    assert packs_in(again) == [merged]
    (kind, name), payload = next(iter(made.items()))
    merged.write_bytes(merged.read_bytes().replace(payload, bytes(len(payload)), 1))
    for path, content in kept.items():
        path.write_bytes(content)
    again = BlobDirectory(store.records.root)
    assert_holds(again, made)
    assert again.packs.merge() == MERGED
    assert packs_in(again) == [merged]  # made again
    assert_holds(again, made)
    assert_holds(BlobDirectory(store.records.root), made)


def test_a_lost_index_is_made_anew_at_the_next_start(store: BlobDirectory) -> None:
    made = fill(store, 0, 10)
    store.packs.pack(KINDS, 1)
    (path,) = packs_in(store)
    content = path.read_bytes()
    for damaged in (content[:-9], content + b"foreign", content[:-100] + bytes(100)):
        path.write_bytes(damaged)
        assert_holds(BlobDirectory(store.records.root), made)
        assert path.read_bytes() == content
    path.write_bytes(content[: len(content) // 3])
    with pytest.raises(StorageFailed, match="put a good copy in its place"):
        BlobDirectory(store.records.root).get_record("blocks", "ab" * 32)


def test_a_pack_that_a_killed_process_left_is_durable_before_files_go(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fill(store, 0, 10)
    store.packs.pack(KINDS, 1)
    fill(store, 0, 10)  # as they were when it was killed
    again = BlobDirectory(store.records.root)
    with monkeypatch.context() as patch:
        steps = watched(patch)
        assert again.packs.pack(KINDS, 1) == 0
    assert len(steps) == 1 + len(made)
    assert steps[0] == ("sync", (store.records.root / "packs").resolve())
    assert_holds(again, made)


def test_a_full_disk_leaves_nothing_of_an_index_that_is_made_anew(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fill(store, 0, 10)
    store.packs.pack(KINDS, 1)
    (path,) = packs_in(store)
    os.truncate(path, path.stat().st_size - 9)
    again = BlobDirectory(store.records.root)
    for step in (2, 3, 4):
        with monkeypatch.context() as patch:
            Stumble(patch, step, OSError(errno.ENOSPC, "No space left on device"))
            with pytest.raises(StorageFailed):
                again.record_names("blocks")
        assert not list(again.records.scratch.glob("*"))
    assert_holds(again, made)


def test_with_more_packs_than_may_be_open_few_are_opened_at_each_look(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_packs, "FILES_OPEN_MAX", 5)
    made = merged_away(store)
    assert len(packs_in(store)) == MERGED
    opened: list[str] = []

    def watched(path: Path) -> FileIO:
        opened.append(path.name)
        return FileIO(path)

    monkeypatch.setattr(open_packs, "open_file", watched)
    for number in range(20):
        assert not store.packs.has("blocks", f"{number:064x}")
    assert len(opened) <= 5 + 20 * (MERGED - 4)
    opened.clear()
    monkeypatch.setattr(open_packs, "FILES_OPEN_MAX", MERGED)
    for number in range(20):
        assert not store.packs.has("blocks", f"{number:064x}")
    assert len(opened) <= MERGED - 4
    assert_holds(store, made)


def test_what_lies_beside_the_last_find_is_looked_for_in_one_pack(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[Contents] = []
    for number in range(MERGED):
        groups.append(fill(store, number * 10, 10))
        assert store.packs.pack(KINDS, 1) > 0
    looks: list[str] = []
    find = packed.find

    def watched_find(head: Head, read: ReadAt, key: bytes) -> Entry | None:
        looks.append(head.name)
        return find(head, read, key)

    monkeypatch.setattr(packed, "find", watched_find)
    for made in groups:
        for kind, name in made:
            assert store.packs.has(kind, name)
    records = sum(map(len, groups))
    # the first of each group in all packs at the most, and what follows it in one
    assert records <= len(looks) <= records + MERGED * (MERGED + 1)
    assert store.packs.merge() == MERGED  # the likely one is part of another now
    assert_holds(store, {key: payload for made in groups for key, payload in made.items()})


def open_in(store: BlobDirectory) -> list[str]:
    """The packs that this process holds open, as the kernel names them."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            links.append(os.readlink(entry))
    return [link for link in links if link.startswith(str(store.records.root / "packs"))]


def test_packs_that_are_gone_take_no_room_of_a_disk(store: BlobDirectory) -> None:
    """A file that has no name and is held open takes as much as before."""
    made = merged_away(store)
    assert_holds(store, made)
    assert store.packs.merge() == MERGED
    assert_holds(store, made)
    assert len(open_in(store)) == 1
    assert not any(link.endswith("(deleted)") for link in open_in(store))


def test_of_many_packs_few_are_open(store: BlobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_packs, "FILES_OPEN_MAX", 3)
    made = merged_away(store)
    again = BlobDirectory(store.records.root)
    for _ in range(2):
        for kind, name in made:
            assert again.get_record(kind, name) == made[kind, name]
    assert len(open_in(store)) <= 2 * 3  # of both


def test_where_a_file_and_a_pack_differ_both_stay(store: BlobDirectory) -> None:
    """One of them is damaged: whoever looks through the chain finds out which, and says so."""
    made = fill(store, 0, 4)
    store.packs.pack(KINDS, 1)
    name = next(name for kind, name in made if kind == "blocks")
    store.records.put_record("blocks", name, b"rotten", durable=False)
    fill(store, 4, 1)
    assert store.packs.pack(KINDS, 1) == 1
    loose = store.records.record_path("blocks", name)
    assert loose.read_bytes() == b"rotten"
    loose.unlink()
    assert store.get_record("blocks", name) == made["blocks", name]


def test_a_pack_that_could_not_be_removed_brings_nothing_back_after_a_crash(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each later pack names it: the one that replaced it may be part of another by then."""
    made = merged_away(store)
    (kind, name), payload = next(iter(made.items()))
    stays = next(path for path in packs_in(store) if payload in path.read_bytes())
    unlink = os.unlink

    def refused(path: Path) -> None:
        if Path(path) == stays:
            raise OSError(errno.EIO, "Input/output error")
        unlink(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refused)
        store.delete_record(kind, name)
        del made[kind, name]
        for change in (lambda: store.settle([kind]), store.packs.merge):
            with pytest.raises(StorageFailed):
                change()
    assert stays in packs_in(store)
    again = BlobDirectory(store.records.root)  # the process was killed there
    assert_holds(again, made)
    assert len(packs_in(store)) == 1
