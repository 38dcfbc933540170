"""Retired files are written over by later ones, and nobody takes the new content for the old."""

import os
import threading
import time
from pathlib import Path

import pytest

from daa_dag.chunking import CHUNK_BYTES_MAX, cut, manifest_of
from daa_node.adapters.blob_directory import BlobDirectory
from daa_node.adapters.spare_files import (
    SPARE_BYTES_MAX,
    SPARE_BYTES_MIN,
    SPARES_A_SIZE_MAX,
    SpareFiles,
)
from daa_node.cli.compose import RECYCLED
from daa_node.errors import StorageFailed
from daa_node.training.boundaries import BOUNDARIES, CLAIMED

SIZE = CHUNK_BYTES_MAX + 5
OLD, NEW = os.urandom(SIZE), os.urandom(SIZE)
OLD_MANIFEST = manifest_of(OLD, cut([SIZE]))
NEW_MANIFEST = manifest_of(NEW, cut([SIZE]))


def file_of(path: Path, size_bytes: int) -> Path:
    path.write_bytes(bytes(size_bytes))
    return path


def filled(store: BlobDirectory, payload: bytes, kind: str = "updates") -> None:
    manifest = manifest_of(payload, cut([SIZE]))
    partial = store.begin_blob(kind, manifest)
    for index in partial.missing():
        at = manifest.offsets[index]
        partial.write_chunk(index, payload[at : at + manifest.sizes[index]])
    partial.commit(durable=False)


def test_a_spare_is_given_once_to_who_needs_its_size(tmp_path: Path) -> None:
    spares = SpareFiles(tmp_path / "spares")
    inode = file_of(tmp_path / "old", SIZE).stat().st_ino
    spares.retire(tmp_path / "old")
    assert not (tmp_path / "old").exists()
    assert not spares.take(SIZE + 1, tmp_path / "other")
    assert spares.take(SIZE, tmp_path / "new")
    assert (tmp_path / "new").stat().st_ino == inode
    assert not spares.take(SIZE, tmp_path / "second")


def test_small_vast_and_surplus_files_and_those_with_another_name_are_deleted(
    tmp_path: Path,
) -> None:
    spares = SpareFiles(tmp_path / "spares")
    spares.retire(file_of(tmp_path / "small", SPARE_BYTES_MIN - 1))
    os.link(file_of(tmp_path / "linked", SIZE), tmp_path / "other name")
    spares.retire(tmp_path / "linked")
    with (tmp_path / "vast").open("wb") as file:
        file.truncate(SPARE_BYTES_MAX + 1)  # a hole: it takes no room
    spares.retire(tmp_path / "vast")
    spares.retire(tmp_path / "never was")
    assert not (tmp_path / "spares").exists()
    for _ in range(SPARES_A_SIZE_MAX + 3):
        spares.retire(file_of(tmp_path / "one", SIZE))
    assert len(list((tmp_path / "spares").iterdir())) == SPARES_A_SIZE_MAX
    assert {path.name for path in tmp_path.iterdir()} == {"spares", "other name"}


def test_a_spare_that_somebody_removed_is_passed_over(tmp_path: Path) -> None:
    spares = SpareFiles(tmp_path / "spares")
    for _ in range(2):
        spares.retire(file_of(tmp_path / "one", SIZE))
    max((tmp_path / "spares").iterdir()).unlink()
    assert spares.take(SIZE, tmp_path / "new")
    assert not spares.take(SIZE, tmp_path / "newer")


def test_a_deleted_blob_of_a_recycled_kind_becomes_the_next_one(tmp_path: Path) -> None:
    store = BlobDirectory(tmp_path / "work", recycled=("updates",))
    filled(store, OLD)
    # open meanwhile, or its number may be given anew
    with store.path_of("updates", OLD_MANIFEST.root).open("rb") as old:
        store.delete_blob("updates", OLD_MANIFEST.root)
        assert store.blob_roots("updates") == []
        filled(store, NEW)
        path = store.path_of("updates", NEW_MANIFEST.root)
        assert os.path.samestat(path.stat(), os.fstat(old.fileno()))
    assert path.read_bytes() == NEW
    store.delete_blob("updates", NEW_MANIFEST.root)
    store.sweep()
    assert not list((tmp_path / "work.tmp").iterdir())


@pytest.mark.parametrize("kind", [BOUNDARIES, CLAIMED])
def test_what_a_daemon_fetches_for_a_check_is_written_over_a_boundary_of_before(
    tmp_path: Path, kind: str
) -> None:
    store = BlobDirectory(tmp_path / "work", RECYCLED)
    filled(store, OLD, kind)
    with store.path_of(kind, OLD_MANIFEST.root).open("rb") as old:  # or its number is given anew
        store.delete_blob(kind, OLD_MANIFEST.root)
        filled(store, NEW, CLAIMED)
        path = store.path_of(CLAIMED, NEW_MANIFEST.root)
        assert os.path.samestat(path.stat(), os.fstat(old.fileno()))
    assert path.read_bytes() == NEW


def test_other_kinds_are_deleted_for_good(tmp_path: Path) -> None:
    store = BlobDirectory(tmp_path / "chain", recycled=("states",))
    filled(store, OLD)
    store.delete_blob("updates", OLD_MANIFEST.root)
    assert not list((tmp_path / "chain.tmp").iterdir())


def test_a_reader_that_a_later_blob_overtakes_gets_an_error_and_none_of_its_bytes(
    tmp_path: Path,
) -> None:
    store = BlobDirectory(tmp_path / "work", recycled=("updates",))
    stop = threading.Event()

    def replace_again_and_again() -> None:
        while not stop.is_set():
            for payload, manifest in ((OLD, OLD_MANIFEST), (NEW, NEW_MANIFEST)):
                filled(store, payload)
                store.delete_blob("updates", manifest.root)

    replacing = threading.Thread(target=replace_again_and_again)
    replacing.start()
    wrong = right = overtaken = 0
    try:
        ends_s = time.monotonic() + 20
        while time.monotonic() < ends_s and min(right, overtaken) < 20:
            target = bytearray(SIZE)
            try:
                store.read_into("updates", OLD_MANIFEST.root, [0, 1], memoryview(target))
                right, wrong = right + (target == OLD), wrong + (target != OLD)
            except StorageFailed as failure:
                overtaken += "while it was read" in str(failure)
                time.sleep(0.0002)  # let the other thread have the interpreter
    finally:
        stop.set()
        replacing.join()
    assert wrong == 0
    assert min(right, overtaken) > 0  # or this test has shown nothing


def test_a_reader_whose_file_has_been_another_blobs_meanwhile_gets_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under its own name again by the end, and the same file."""
    store, read = BlobDirectory(tmp_path / "work", recycled=("updates",)), os.pread
    filled(store, OLD)

    def read_late(file: int, size_bytes: int, offset: int) -> bytes:
        store.delete_blob("updates", OLD_MANIFEST.root)
        filled(store, NEW)
        time.sleep(0.02)  # as coarse as the times of files are
        payload = read(file, size_bytes, offset)
        store.delete_blob("updates", NEW_MANIFEST.root)
        filled(store, OLD)
        return payload

    monkeypatch.setattr(os, "pread", read_late)
    with pytest.raises(StorageFailed, match="while it was read"):
        store.read_chunk("updates", OLD_MANIFEST.root, 0)
