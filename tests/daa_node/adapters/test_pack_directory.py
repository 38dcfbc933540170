"""Records move into packs, and packs into larger ones, and at no moment is anything lost."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TypeVar

import pytest

from daa_dag.chunking import manifest_of
from daa_dag.ids import BlobRoot, digest_of
from daa_node.adapters import pack_directory
from daa_node.adapters.blob_directory import BlobDirectory
from daa_node.errors import StorageFailed
from daa_node.packs.merging import MERGED

pytestmark = pytest.mark.usefixtures("warm_programs")

KINDS = ("blocks", "certificates", "deltas", "manifests")
T = TypeVar("T")
Contents = dict[tuple[str, str], bytes]


def fill(store: BlobDirectory, start: int, count: int) -> Contents:
    """So many blocks, a certificate and a delta with its manifest beside each third."""
    made: Contents = {}
    for number in range(start, start + count):
        name, payload = digest_of(b"%d" % number).hex(), b"payload %d" % number
        made["blocks", name] = payload
        if number % 3 == 0:
            made["certificates", f"{name}.final"] = payload * 9
            manifest = manifest_of(payload, [4, len(payload) - 4])
            made["deltas", manifest.root.hex()] = payload
            made["manifests", manifest.root.hex()] = manifest.encode()
    for (kind, name), payload in made.items():
        store.records.put_record(kind, name, payload, durable=False)  # or a test takes minutes
    return made


def assert_holds(store: BlobDirectory, wanted: Contents) -> None:
    for (kind, name), payload in wanted.items():
        assert store.get_record(kind, name) == payload, f"{kind}/{name}"
        assert store.has_record(kind, name)
    for kind in KINDS:
        assert store.record_names(kind) == sorted(n for k, n in wanted if k == kind)


def packs_in(store: BlobDirectory) -> list[Path]:
    return sorted((store.records.root / "packs").glob("*"))


def loose_in(store: BlobDirectory) -> list[Path]:
    return [p for kind in KINDS for p in (store.records.root / kind).glob("*")]


@pytest.fixture
def store(tmp_path: Path) -> BlobDirectory:
    return BlobDirectory(tmp_path / "chain")


def merged_away(store: BlobDirectory, start: int = 0) -> Contents:
    """Enough packs for a merge."""
    made: Contents = {}
    for number in range(MERGED):
        made |= fill(store, start + number * 10, 10)
        assert store.packs.pack(KINDS, 1) > 0
    return made


def test_what_is_packed_is_read_as_before_and_its_files_are_gone(store: BlobDirectory) -> None:
    made = fill(store, 0, 30)
    assert store.packs.pack(KINDS, len(made) + 1) == 0
    assert store.packs.pack(KINDS, len(made)) == len(made)
    assert loose_in(store) == []
    assert len(packs_in(store)) == 1
    assert_holds(store, made)
    assert_holds(BlobDirectory(store.records.root), made)
    assert store.get_record("blocks", "ab" * 32) is None
    assert store.get_record("blocks", "other") is None


def test_a_packed_blob_is_read_by_range_and_never_fetched_again(store: BlobDirectory) -> None:
    fill(store, 0, 3)
    payload = b"payload 0"
    manifest = manifest_of(payload, [4, 5])
    store.packs.pack(KINDS, 1)
    assert store.blob_manifest("deltas", manifest.root) == manifest
    assert store.read_chunk("deltas", manifest.root, 1) == payload[4:]
    both = bytearray(9)
    store.read_into("deltas", manifest.root, [1, 0], memoryview(both))
    assert both == payload[4:] + payload[:4]
    assert bytes(store.view_blob("deltas", manifest.root)) == payload
    assert store.blob_roots("deltas") == [manifest.root]
    store.make_durable("deltas", manifest.root)
    assert store.begin_blob("deltas", manifest).missing() == []
    again = store.records.scratch_file("delta")
    again.write_bytes(payload)
    store.adopt_file("deltas", again, manifest, durable=True)
    assert (again.exists(), loose_in(store)) == (False, [])
    store.delete_blob("deltas", manifest.root)
    store.settle(["deltas"])
    assert store.blob_manifest("deltas", manifest.root) is None
    assert store.get_record("manifests", manifest.root.hex()) is None


def test_what_is_put_anew_takes_the_place_of_what_rots_in_a_pack(store: BlobDirectory) -> None:
    """The rotten one is there until then, and goes from its pack with the next deletions."""
    made, payload = fill(store, 0, 3), b"the only one"
    manifest = manifest_of(payload, [4, 8])
    key = manifest.root.hex()
    made |= {("deltas", key): payload, ("manifests", key): manifest.encode()}
    for kind in ("manifests", "deltas"):
        store.records.put_record(kind, key, made[kind, key])
    store.packs.pack(KINDS, 1)
    (pack,) = packs_in(store)
    pack.write_bytes(pack.read_bytes().replace(payload, b"q" + payload[1:]))
    store = BlobDirectory(store.records.root)
    assert store.begin_blob("deltas", manifest).missing() == []  # who does not say so finds it here
    partial = store.begin_blob("deltas", manifest, anew=True)
    assert partial.missing() == [0, 1]
    partial.write_chunks([(0, payload[:4]), (1, payload[4:])])
    assert store.read_chunk("deltas", manifest.root, 0) == b"qhe "
    partial.commit()
    assert_holds(store, made)
    assert_holds(BlobDirectory(store.records.root), made)  # killed before the pack is written anew
    store.settle(["deltas"])
    assert store.packs.size_of("deltas", key) is None
    assert store.packs.size_of("manifests", key) is None
    assert_holds(store, made)


def test_packs_merge_and_what_was_deleted_goes_from_them(store: BlobDirectory) -> None:
    made = merged_away(store)
    assert len(packs_in(store)) == MERGED
    assert store.packs.merge() == MERGED
    assert store.packs.merge() == 0
    assert len(packs_in(store)) == 1
    assert_holds(store, made)
    gone = [key for key in made if key[0] == "blocks"][::2]
    for kind, name in gone:
        del made[kind, name]
        store.delete_record(kind, name)
    assert_holds(store, made)
    store.settle(["blocks"])
    assert_holds(store, made)
    assert_holds(BlobDirectory(store.records.root), made)
    for kind, name in made:
        store.delete_record(kind, name)
    store.settle(KINDS)
    assert packs_in(store) == []


def test_what_was_deleted_and_came_again_is_packed_again(store: BlobDirectory) -> None:
    made = fill(store, 0, 4)
    store.packs.pack(KINDS, 1)
    for kind, name in made:
        store.delete_record(kind, name)
    assert fill(store, 0, 4) == made
    store.packs.pack(KINDS, 1)
    assert not loose_in(store)
    assert_holds(store, made)
    store.settle(KINDS)
    assert_holds(BlobDirectory(store.records.root), made)


def test_a_large_blob_stays_a_file_of_its_own(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daa_node.packs.format.RECORD_BYTES_MAX", 40)
    made = fill(store, 0, 30)
    small = [payload for payload in made.values() if len(payload) <= 40]
    assert store.packs.pack(KINDS, 1) == len(small) < len(made)
    assert len(loose_in(store)) == len(made) - len(small)
    assert_holds(store, made)


def test_one_packing_takes_no_more_than_it_may(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_directory, "BATCH_RECORDS_MAX", 7)
    made = fill(store, 0, 12)
    sizes = []
    while moved := store.packs.pack(KINDS, 1):
        sizes.append(moved)
        assert_holds(store, made)
    assert sum(sizes) == len(made)
    assert max(sizes) == 7


class Stumble:
    """The file system's calls that change something fail, or the process dies, at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, fault: BaseException) -> None:
        self.left, self.fault, self.has_struck = at, fault, False
        for name in ("fsync", "replace", "unlink", "mkdir"):
            patch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, call: Callable[..., object]) -> Callable[..., object]:
        def stumbling(*arguments: object, **named: object) -> object:
            if self.left == 0 or (self.has_struck and isinstance(self.fault, KeyboardInterrupt)):
                self.has_struck, self.left = True, -1
                # a new one each time: its traceback holds all that its frames have open
                raise type(self.fault)(*self.fault.args)
            self.left -= 1
            return call(*arguments, **named)

        return stumbling


FAULTS = (KeyboardInterrupt(), OSError(errno.EIO, "Input/output error"), OSError(errno.ENOSPC, ""))


@pytest.mark.parametrize("fault", FAULTS, ids=["dies", "EIO", "ENOSPC"])
@pytest.mark.parametrize("verb", ["pack", "merge", "purge"])
def test_nothing_is_lost_whichever_step_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, fault: BaseException
) -> None:
    template = BlobDirectory(tmp_path / "chain")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)
        whole = merged_away(template)
        if verb == "pack":
            whole |= fill(template, 1000, 3)
    for step in range(200):
        store, made = BlobDirectory(tmp_path / str(step) / "chain"), dict(whole)
        shutil.copytree(template.records.root, store.records.root)
        doomed = next(iter(made))
        acts: dict[str, Callable[[], object]] = {
            "pack": partial(store.packs.pack, KINDS, 1),
            "merge": store.packs.merge,
            "purge": store.packs.purge,
        }
        act = acts[verb]
        if verb == "purge":
            store.delete_record(*doomed)
            del made[doomed]
        with monkeypatch.context() as patch:
            stumble = Stumble(patch, step, fault)
            try:
                act()
            except (KeyboardInterrupt, StorageFailed):
                assert stumble.has_struck
        if not isinstance(fault, KeyboardInterrupt):
            assert_holds(store, made)  # the same process goes on
            act()
            assert_holds(store, made)
        again = BlobDirectory(store.records.root)
        again.sweep()
        if verb == "purge" and isinstance(fault, KeyboardInterrupt):
            again.delete_record(*doomed)  # its writer's note has it done again
            again.settle([doomed[0]])
        assert_holds(again, made)
        names = [path.name for path in packs_in(again)]
        assert len(names) == len(set(names)) <= MERGED + 1
        assert not list(again.records.scratch.glob("*"))
        if not stumble.has_struck:
            assert step > 3
            return
    raise AssertionError("it never came to its end")


def test_a_pack_that_comes_out_otherwise_than_it_was_written_is_not_kept(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fill(store, 0, 10)

    def spoilt(path: Path) -> object:
        content = bytearray(path.read_bytes())
        content[80] ^= 1
        path.write_bytes(content)
        return FileIO(path)

    monkeypatch.setattr(pack_directory, "FileIO", spoilt)
    with pytest.raises(StorageFailed, match="a new pack"):
        store.packs.pack(KINDS, 1)
    assert len(loose_in(store)) == len(made)
    assert packs_in(store) == []


def test_a_rotten_record_is_refused_and_neither_lost_nor_taken_for_good_by_a_merge(
    store: BlobDirectory,
) -> None:
    made = merged_away(store)
    (kind, name), payload = next(iter(made.items()))
    path = next(p for p in packs_in(store) if payload in p.read_bytes())
    path.write_bytes(path.read_bytes().replace(payload, bytes(len(payload)), 1))
    assert store.packs.merge() == MERGED
    with pytest.raises(StorageFailed, match=f"{kind}/{name} is damaged in its pack"):
        store.get_record(kind, name)
    del made[kind, name]
    for (other, key), good in made.items():
        assert store.get_record(other, key) == good


def test_a_good_file_takes_the_place_of_a_rotten_record(store: BlobDirectory) -> None:
    made = fill(store, 0, 1)
    store.packs.pack(KINDS, 1)
    (path,) = packs_in(store)
    path.write_bytes(path.read_bytes().replace(b"payload", b"rotten!"))
    assert fill(store, 0, 1) == made
    again = BlobDirectory(store.records.root)
    again.packs.pack(KINDS, 1)
    assert_holds(again, made)
    assert not loose_in(again)
    assert all(b"rotten!" not in path.read_bytes() for path in packs_in(again))


def watched(patch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """What is done to the file system from now on, in order."""
    steps: list[tuple[str, Path]] = []
    fsync, unlink, replace = os.fsync, os.unlink, os.replace

    def synced(file: int) -> None:
        steps.append(("sync", Path(f"/proc/self/fd/{file}").resolve()))
        fsync(file)

    def deleted(path: Path) -> None:
        steps.append(("delete", Path(path)))
        unlink(path)

    def renamed(source: Path, target: Path) -> None:
        steps.append(("rename", Path(target)))
        replace(source, target)

    patch.setattr(os, "fsync", synced)
    patch.setattr(os, "unlink", deleted)
    patch.setattr(os, "replace", renamed)
    return steps


@pytest.mark.parametrize("verb", ["pack", "merge", "purge"])
def test_nothing_is_deleted_before_what_stands_for_it_is_synced(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    made = merged_away(store)
    doomed = [name for kind, name in made if kind == "blocks"][:1]
    if verb == "pack":
        fill(store, 1000, 3)
    if verb == "purge":
        store.delete_record("blocks", doomed[0])
    acts: dict[str, Callable[[], object]] = {
        "pack": partial(store.packs.pack, KINDS, 1),
        "merge": store.packs.merge,
        "purge": partial(store.settle, ["blocks"]),
    }
    old = {*packs_in(store)}
    with monkeypatch.context() as patch:
        steps = watched(patch)
        acts[verb]()
    (new,) = {*packs_in(store)} - old
    at = steps.index(("rename", new))
    assert steps[at - 1][0] == "sync"  # the file itself, by its name in the scratch folder
    assert steps[at - 1][1].parent == store.records.scratch.resolve()
    folder = ("sync", new.parent.resolve())
    assert steps[at + 1] == folder
    gone = [number for number, (what, path) in enumerate(steps) if what == "delete"]
    removed = [number for number in gone if steps[number][1].parent != store.records.scratch]
    assert removed
    assert min(removed) > at + 1
    if verb != "pack":  # else a power cut brings back what nobody names any more
        assert folder in steps[max(removed) :]


def test_a_blob_that_moves_while_it_is_read_is_read_from_where_it_went(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 0, 1)
    payload = b"payload 0"
    manifest = manifest_of(payload, [4, 5])
    store.packs.pack(KINDS, 1)
    monkeypatch.setattr(Path, "is_file", lambda _path: True)  # it was there a moment ago
    assert store.read_chunk("deltas", manifest.root, 0) == payload[:4]
    assert bytes(store.view_blob("deltas", manifest.root)) == payload
    both = bytearray(9)
    store.read_into("deltas", manifest.root, [0, 1], memoryview(both))
    assert both == payload


def test_files_that_move_between_two_looks_of_a_listing_are_listed(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fill(store, 0, 4)
    looks = [0]

    def moving_after(look: Callable[[str], T]) -> Callable[[str], T]:
        def looked(kind: str) -> T:
            looks[0] += 1
            found = look(kind)
            if looks[0] == 1:
                store.packs.pack(KINDS, 1)
            return found

        return looked

    monkeypatch.setattr(store.records, "record_names", moving_after(store.records.record_names))
    monkeypatch.setattr(store.packs, "names", moving_after(store.packs.names))
    assert store.record_names("blocks") == sorted(n for k, n in made if k == "blocks")
    assert loose_in(store) == []


def test_readers_see_everything_at_every_moment_of_packing_and_merging(
    store: BlobDirectory,
) -> None:
    made = merged_away(store) | fill(store, 500, 40)
    failures: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            for (kind, name), payload in made.items():
                try:
                    if store.get_record(kind, name) != payload:
                        failures.append(f"{kind}/{name} is not there")
                    if kind == "deltas":
                        root = BlobRoot(bytes.fromhex(name))
                        store.read_chunk("deltas", root, 0)
                        store.view_blob("deltas", root)
                except StorageFailed as fault:
                    failures.append(str(fault))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for start in range(1000, 1200, 10):
        fill(store, start, 10)
        store.packs.pack(KINDS, 1)
        store.packs.merge()
    done.set()
    for reader in readers:
        reader.join()
    assert not failures, failures[:3]
    assert len(packs_in(store)) <= 2 * MERGED


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {top!r})
from daa_node.adapters.blob_directory import BlobDirectory
from tests.daa_node.adapters.test_pack_directory import KINDS, fill
store = BlobDirectory(Path(sys.argv[1]))
store.sweep()
start = int(sys.argv[2])
while True:
    fill(store, start, 10)
    print(start, flush=True)
    store.packs.pack(KINDS, 1)
    store.packs.merge()
    start += 10
"""


@pytest.mark.long
def test_a_process_that_is_killed_while_it_packs_loses_nothing(tmp_path: Path) -> None:
    root, top = tmp_path / "chain", str(Path(__file__).parents[3])
    made: Contents = {}
    start = 0
    for turn in range(30):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED.format(top=top), str(root), str(start)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        first = process.stdout.readline()  # something is there to be packed
        time.sleep(0.011 * turn)
        process.send_signal(signal.SIGKILL)
        printed = [int(first), *(int(line) for line in process.stdout)]
        process.wait()
        scratch = BlobDirectory(tmp_path / f"expected-{turn}")
        for begun in printed:
            made |= fill(scratch, begun, 10)
        start = printed[-1] + 10
        again = BlobDirectory(root)
        again.sweep()
        for (kind, name), payload in made.items():
            assert again.get_record(kind, name) == payload, f"turn {turn}: {kind}/{name}"
    assert start >= 300
