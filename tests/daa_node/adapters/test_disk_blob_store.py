"""The disk store keeps whole files or none, resumes good chunks, and never leaves its root."""

import errno
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from daa_dag.chunking import Manifest, cut, manifest_of
from daa_dag.ids import BlobRoot
from daa_node.adapters.blob_directory import MANIFESTS_CACHED_MAX, PARTIAL_AGE_S_MAX, BlobDirectory
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.errors import PeerFault, StorageFailed

PAYLOAD = os.urandom(700_000)
MANIFEST = manifest_of(PAYLOAD, cut([300_000, 400_000]))  # four chunks


@pytest.fixture
def store(tmp_path: Path) -> BlobDirectory:
    return BlobDirectory(tmp_path / "work")


def chunk(index: int, manifest: Manifest = MANIFEST, payload: bytes = PAYLOAD) -> bytes:
    at = manifest.offsets[index]
    return payload[at : at + manifest.sizes[index]]


def put_blob(store: BlobDirectory, kind: str = "updates") -> None:
    partial = store.begin_blob(kind, MANIFEST)
    for index in partial.missing():
        partial.write_chunk(index, chunk(index))
    partial.commit()


def all_files(store: BlobDirectory) -> list[str]:
    top = store.records.root.parent
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())


def test_records_come_back_and_are_replaced_whole(store: BlobDirectory) -> None:
    assert store.records.get_record("blocks", "ab") is None
    assert store.records.record_names("blocks") == []
    store.records.put_record("blocks", "ab", b"one")
    store.records.put_record("blocks", "ab", b"two", durable=False)
    store.records.put_record("blocks", "aa.final", b"")
    assert store.records.get_record("blocks", "ab") == b"two"
    assert store.records.record_names("blocks") == ["aa.final", "ab"]
    store.records.delete_record("blocks", "ab")
    store.records.delete_record("blocks", "ab")
    assert store.records.record_names("blocks") == ["aa.final"]
    assert all_files(store) == ["work/blocks/aa.final"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("..", "x"),
        ("blocks", ".."),
        ("blocks", "../../etc/passwd"),
        ("blocks", "/etc/passwd"),
        ("blocks", ".hidden"),
        ("blocks", ""),
        ("", "x"),
        ("a/b", "x"),
        ("blocks", "a\0b"),
        ("blocks", "a\nb"),
        ("blocks", "x" * 129),
        ("Blocks", "x"),
        ("blocks", "ünder"),
    ],
)
def test_a_name_that_is_no_plain_name_never_becomes_a_path(
    store: BlobDirectory, kind: str, name: str
) -> None:
    with pytest.raises(PeerFault, match="bad_name"):
        store.records.put_record(kind, name, b"x")
    with pytest.raises(PeerFault, match="bad_name"):
        store.records.get_record(kind, name)
    with pytest.raises(PeerFault, match="bad_name"):
        store.records.delete_record(kind, name)
    assert all_files(store) == []


def test_a_root_of_another_length_is_refused(store: BlobDirectory) -> None:
    for root in (b"", b"x" * 31, b"../" * 11):
        with pytest.raises(PeerFault, match="bad_name"):
            store.path_of("updates", BlobRoot(root))


def test_a_blob_is_visible_once_it_is_whole(store: BlobDirectory) -> None:
    partial = store.begin_blob("updates", MANIFEST)
    assert partial.missing() == [0, 1, 2, 3]
    for index in (3, 0, 2):
        partial.write_chunk(index, chunk(index))
        assert store.blob_manifest("updates", MANIFEST.root) is None
        assert store.blob_roots("updates") == []
    partial.write_chunk(1, chunk(1))
    partial.commit()
    partial.commit()
    assert store.blob_roots("updates") == [MANIFEST.root]
    assert store.blob_manifest("updates", MANIFEST.root) == MANIFEST
    assert b"".join(store.read_chunk("updates", MANIFEST.root, i) for i in range(4)) == PAYLOAD
    assert bytes(store.view_blob("updates", MANIFEST.root)) == PAYLOAD
    assert store.path_of("updates", MANIFEST.root).read_bytes() == PAYLOAD
    assert store.begin_blob("updates", MANIFEST).missing() == []
    assert len(all_files(store)) == 2


def test_a_partial_blob_is_resumed_and_its_damaged_chunks_are_wanted_again(
    store: BlobDirectory,
) -> None:
    partial = store.begin_blob("updates", MANIFEST)
    for index in (0, 1, 3):
        partial.write_chunk(index, chunk(index))
    again = BlobDirectory(store.records.root)
    assert again.begin_blob("updates", MANIFEST).missing() == [2]
    (path,) = store.records.scratch.glob("*.partial")
    with open(path, "r+b") as file:
        file.seek(MANIFEST.offsets[1])
        file.write(bytes([chunk(1)[0] ^ 1]))  # another byte than the random one that was there
        file.seek(0, os.SEEK_END)
        file.write(b"what does not belong")
    resumed = again.begin_blob("updates", MANIFEST)
    assert resumed.missing() == [1, 2]
    for index in resumed.missing():
        resumed.write_chunk(index, chunk(index))
    resumed.commit()
    assert bytes(again.view_blob("updates", MANIFEST.root)) == PAYLOAD


def test_what_has_come_of_a_blob_is_read_before_it_is_whole(store: BlobDirectory) -> None:
    partial = store.begin_blob("updates", MANIFEST)
    for index in (0, 2):
        partial.write_chunk(index, chunk(index))
    target = bytearray(MANIFEST.sizes[2] + MANIFEST.sizes[0])
    partial.read_into([2, 0], memoryview(target))
    assert bytes(target) == chunk(2) + chunk(0)
    with pytest.raises(StorageFailed, match="ends inside"):
        partial.read_into([3], memoryview(bytearray(MANIFEST.sizes[3])))


def test_what_has_come_of_a_blob_is_read_once_it_is_whole_as_long_as_it_lies_there(
    store: BlobDirectory,
) -> None:
    partial, again = store.begin_blob("updates", MANIFEST), store.begin_blob("updates", MANIFEST)
    for each in (partial, again):
        for index in each.missing():
            each.write_chunk(index, chunk(index))
        each.commit()
        target = bytearray(MANIFEST.sizes[2] + MANIFEST.sizes[0])
        each.read_into([2, 0], memoryview(target))
        assert bytes(target) == chunk(2) + chunk(0)
    store.delete_blob("updates", MANIFEST.root)
    with pytest.raises(StorageFailed):
        partial.read_into([0], memoryview(bytearray(MANIFEST.sizes[0])))


def test_a_finished_file_is_adopted_and_a_short_one_refused(store: BlobDirectory) -> None:
    path = store.records.scratch_file("state")
    path.write_bytes(PAYLOAD)
    store.adopt_file("states", path, MANIFEST)
    assert not path.exists()
    assert store.read_chunk("states", MANIFEST.root, 3) == chunk(3)
    short = store.records.scratch_file("state")
    short.write_bytes(PAYLOAD[:-1])
    with pytest.raises(StorageFailed, match="its manifest says 700000"):
        store.adopt_file("updates", short, MANIFEST)
    assert store.blob_roots("updates") == []


def test_a_blob_that_a_power_cut_has_left_without_a_manifest_is_listed_and_can_go(
    store: BlobDirectory,
) -> None:
    put_blob(store)
    store.records.record_path("manifests", MANIFEST.root.hex()).unlink()
    again = BlobDirectory(store.records.root)
    assert again.blob_manifest("updates", MANIFEST.root) is None
    assert again.blob_roots("updates") == [MANIFEST.root]
    again.delete_blob("updates", MANIFEST.root)
    assert all_files(again) == []


@pytest.mark.parametrize("damage", [False, True])
def test_a_blob_that_is_there_is_not_replaced_by_a_file_that_nobody_has_synced(
    store: BlobDirectory, damage: bool
) -> None:
    """An update of one contributor, and the delta that its merge makes, may be the same bytes."""
    put_blob(store)
    there = store.path_of("updates", MANIFEST.root)
    if damage:
        there.write_bytes(bytes(len(PAYLOAD)))
    synced = there.stat().st_ino
    path = store.records.scratch_file("delta")
    path.write_bytes(PAYLOAD)
    store.adopt_file("updates", path, MANIFEST)
    assert not path.exists()
    assert there.read_bytes() == PAYLOAD
    assert (there.stat().st_ino == synced) is not damage


def test_an_adopted_file_is_synced_afterwards_if_it_is_still_what_was_adopted(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def note(file: int) -> None:
        synced.append(os.fstat(file).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    path = store.records.scratch_file("sealed")
    path.write_bytes(PAYLOAD)
    store.adopt_file("updates", path, MANIFEST)
    assert synced == []
    held = store.path_of("updates", MANIFEST.root)
    manifest = store.records.record_path("manifests", MANIFEST.root.hex())
    store.make_durable("updates", MANIFEST.root)
    wanted = (held, held.parent, manifest, manifest.parent, store.records.root)
    assert {path.stat().st_ino for path in wanted} <= {*synced}
    with open(held, "r+b") as file:  # a power cut can leave the size and not the bytes
        file.write(b"\0" * 9)
    with pytest.raises(StorageFailed, match="was damaged, and is deleted"):
        store.make_durable("updates", MANIFEST.root)
    assert store.blob_manifest("updates", MANIFEST.root) is None
    with pytest.raises(StorageFailed, match="there is no blob"):
        store.make_durable("updates", MANIFEST.root)


@pytest.mark.parametrize("failing", range(2))  # the manifest's, the blob's
def test_what_a_sync_failed_on_is_gone_rather_than_taken_for_durable_by_the_next(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The kernel may call lost pages clean: then a second sync succeeds, and proves nothing."""
    path = store.records.scratch_file("sealed")
    path.write_bytes(PAYLOAD)
    store.adopt_file("updates", path, MANIFEST)
    fail_sync(monkeypatch, failing)
    with pytest.raises(StorageFailed, match="cannot sync"):
        store.make_durable("updates", MANIFEST.root)
    assert store.blob_manifest("updates", MANIFEST.root) is None


@pytest.mark.parametrize("lack", [errno.EMFILE, errno.ENFILE])
def test_what_could_not_be_synced_for_want_of_a_descriptor_stays_and_is_synced_later(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch, lack: int
) -> None:
    path = store.records.scratch_file("sealed")
    path.write_bytes(PAYLOAD)
    store.adopt_file("updates", path, MANIFEST)
    fail_sync(monkeypatch, 1, lack)
    with pytest.raises(StorageFailed):
        store.make_durable("updates", MANIFEST.root)
    store.make_durable("updates", MANIFEST.root)
    assert bytes(store.view_blob("updates", MANIFEST.root)) == PAYLOAD


@pytest.mark.parametrize("failing", range(6))
def test_a_blob_whose_sync_failed_is_fetched_again(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    fail_sync(monkeypatch, failing)  # of manifest and blob: the file, its directory's name, itself
    with pytest.raises(StorageFailed):
        put_blob(store)
    assert store.blob_manifest("updates", MANIFEST.root) is None
    left = [store.path_of("updates", MANIFEST.root), *store.records.scratch.glob("*.partial")]
    inodes = {path.stat().st_ino for path in left if path.exists()}
    assert not inodes & failed
    put_blob(store)
    assert bytes(store.view_blob("updates", MANIFEST.root)) == PAYLOAD


failed: set[int] = set()  # inodes that a sync failed on, in this test


def fail_sync(monkeypatch: pytest.MonkeyPatch, after: int, error: int = errno.EIO) -> None:
    """One sync fails, so many later; what follows does as if all were well."""
    left = iter([False] * after + [True])
    failed.clear()

    def sync(file: int) -> None:
        if next(left, False):
            failed.add(os.fstat(file).st_ino)
            raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "fsync", sync)


@pytest.mark.parametrize("moves", range(3))
def test_a_crash_between_the_two_files_of_a_blob_leaves_no_blob_without_a_manifest(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    path, move, left = store.records.scratch_file("sealed"), os.replace, iter([None] * moves)
    path.write_bytes(PAYLOAD)

    def dies(source: Path, target: Path) -> None:
        try:
            next(left)
        except StopIteration:
            raise KeyboardInterrupt from None
        move(source, target)

    monkeypatch.setattr(os, "replace", dies)
    try:
        store.adopt_file("updates", path, MANIFEST)
    except KeyboardInterrupt:
        assert moves < 2
    after = BlobDirectory(store.records.root)
    named = [root for root in after.blob_roots("updates") if after.blob_manifest("updates", root)]
    assert after.blob_roots("updates") == named == [MANIFEST.root] * (moves == 2)


def test_a_deleted_blob_leaves_nothing_of_what_had_arrived(store: BlobDirectory) -> None:
    store.begin_blob("updates", MANIFEST).write_chunk(0, chunk(0))
    assert all_files(store)
    store.delete_blob("updates", MANIFEST.root)
    assert all_files(store) == []


def test_of_however_many_blobs_few_manifests_are_kept_in_memory(store: BlobDirectory) -> None:
    for number in range(2 * MANIFESTS_CACHED_MAX):
        payload = b"%d" % number
        path, manifest = store.records.scratch_file("sealed"), manifest_of(payload, [len(payload)])
        path.write_bytes(payload)
        store.adopt_file("updates", path, manifest)
        assert store.blob_manifest("updates", manifest.root) == manifest
    assert len(store._manifests) == MANIFESTS_CACHED_MAX


def test_what_was_deleted_is_settled_by_a_sync_of_its_directory(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    put_blob(store)
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    store.delete_blob("updates", MANIFEST.root)
    store.records.settle(["updates", "never-written"])
    assert synced == [store.path_of("updates", MANIFEST.root).parent.stat().st_ino]


def test_deleting_one_of_two_kinds_keeps_the_manifest_that_they_share(
    store: BlobDirectory,
) -> None:
    put_blob(store, "updates")
    put_blob(store, "deltas")
    store.delete_blob("updates", MANIFEST.root)
    assert store.blob_manifest("updates", MANIFEST.root) is None
    assert store.read_chunk("deltas", MANIFEST.root, 0) == chunk(0)
    view = store.view_blob("deltas", MANIFEST.root)
    store.delete_blob("deltas", MANIFEST.root)
    store.delete_blob("deltas", MANIFEST.root)
    assert bytes(view) == PAYLOAD, "a mapped blob outlives its name"
    assert all_files(store) == []


def test_what_is_not_there_or_damaged_is_a_storage_failure(store: BlobDirectory) -> None:
    with pytest.raises(StorageFailed):
        store.read_chunk("updates", MANIFEST.root, 0)
    with pytest.raises(StorageFailed):
        store.view_blob("updates", MANIFEST.root)
    put_blob(store)
    with pytest.raises(StorageFailed):
        store.read_chunk("updates", MANIFEST.root, 4)
    with pytest.raises(StorageFailed):
        store.read_chunk("updates", MANIFEST.root, -1)
    os.truncate(store.path_of("updates", MANIFEST.root), 600_000)
    with pytest.raises(StorageFailed, match="ends inside chunk 3"):
        store.read_chunk("updates", MANIFEST.root, 3)
    with pytest.raises(StorageFailed, match="another size"):
        store.view_blob("updates", MANIFEST.root)
    manifest_path = store.records.root / "manifests" / MANIFEST.root.hex()
    payload = bytearray(manifest_path.read_bytes())
    payload[-1] ^= 1
    for damaged in (payload, b"\xff\xff", b""):  # a power cut, if it was not synced
        manifest_path.write_bytes(damaged)
        again = BlobDirectory(store.records.root)
        assert again.blob_manifest("updates", MANIFEST.root) is None
        put_blob(again)
        assert bytes(again.view_blob("updates", MANIFEST.root)) == PAYLOAD


def test_a_full_disk_is_a_storage_failure_that_keeps_the_old_bytes(store: BlobDirectory) -> None:
    # A limit on file sizes stands in for the full disk: the same writes fail in their middle.
    store.records.put_record("blocks", "ab", b"old")
    partial = store.begin_blob("updates", MANIFEST)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StorageFailed, match="cannot write .*blocks/ab: File too large"):
            store.records.put_record("blocks", "ab", b"new" * 5000)
        with pytest.raises(StorageFailed, match="File too large"):
            partial.write_chunk(0, chunk(0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert 0 in partial.missing()
    assert store.records.get_record("blocks", "ab") == b"old"
    assert [path.suffix for path in store.records.scratch.iterdir()] == [".partial"]
    partial = store.begin_blob("updates", MANIFEST)  # there is room again
    for index in partial.missing():
        partial.write_chunk(index, chunk(index))
    partial.commit()
    assert bytes(store.view_blob("updates", MANIFEST.root)) == PAYLOAD


def test_a_sweep_removes_leftovers_and_keeps_partials(store: BlobDirectory) -> None:
    store.sweep()
    store.records.scratch_file("state").write_bytes(b"half")
    store.begin_blob("updates", MANIFEST).write_chunk(0, chunk(0))
    store.sweep()
    (partial,) = store.records.scratch.iterdir()
    assert partial.suffix == ".partial"
    long_ago_s = time.time() - PARTIAL_AGE_S_MAX - 60
    os.utime(partial, (long_ago_s, long_ago_s))
    store.sweep()
    assert not list(store.records.scratch.iterdir())


_WRITER = """
import sys
from pathlib import Path
from daa_node.adapters.blob_directory import BlobDirectory
store = BlobDirectory(Path(sys.argv[1]))
print("ready", flush=True)
number = 0
while True:
    payload = bytes([number % 251]) * 4_000_000
    store.records.put_record("blocks", f"{number % 7}", payload, durable=False)
    number += 1
"""


def test_a_killed_writer_leaves_only_whole_records(store: BlobDirectory) -> None:
    for attempt in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(store.records.root)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.05 + 0.03 * attempt)
        writer.kill()
        writer.wait()
        writer.stdout.close()
        for name in store.records.record_names("blocks"):
            payload = store.records.get_record("blocks", name)
            assert payload is not None
            assert payload == payload[:1] * 4_000_000, f"{name}, attempt {attempt}"
    store.sweep()
    assert not list(store.records.scratch.iterdir())


def test_the_seam_says_the_same_as_the_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = DiskBlobStore(tmp_path / "work")
        await store.put_record("blocks", "ab", b"x")
        assert await store.get_record("blocks", "ab") == b"x"
        assert await store.record_names("blocks") == ["ab"]
        writer = await store.begin_blob("updates", MANIFEST)
        async with trio.open_nursery() as nursery:
            for index in writer.missing():
                nursery.start_soon(writer.write_chunk, index, chunk(index))
        assert writer.missing() == []
        await writer.commit()
        assert await store.blob_roots("updates") == [MANIFEST.root]
        assert await store.blob_manifest("updates", MANIFEST.root) == MANIFEST
        assert await store.read_chunk("updates", MANIFEST.root, 2) == chunk(2)
        assert bytes(await store.view_blob("updates", MANIFEST.root)) == PAYLOAD
        await store.delete_blob("updates", MANIFEST.root)
        await store.delete_record("blocks", "ab")
        assert all_files(store.directory) == []
        path = store.directory.records.scratch_file("state")
        path.write_bytes(PAYLOAD)
        await store.adopt_file("states", path, MANIFEST, durable=True)
        assert await store.blob_roots("states") == [MANIFEST.root]

    trio.run(scenario)
