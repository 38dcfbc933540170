"""Packs that no daemon wrote, and what is no file: one error names them, and the rest is read."""

import os
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

import pytest

from daa_dag.ids import BlobRoot, digest_of
from daa_node.adapters import disk_records
from daa_node.adapters.blob_directory import BlobDirectory
from daa_node.errors import StorageFailed
from daa_node.packs.format import PACK_BYTES_MAX, PACKS, REPLACES_MAX, PackWriter, check_of, key_of
from daa_node.packs.merging import MERGED
from tests.daa_node.adapters.test_pack_directory import (
    KINDS,
    Contents,
    assert_holds,
    fill,
    packs_in,
)

ENTRY = Struct(">33sQI16s")  # key, place, size and check
FOOTER = Struct(">QI8s")
HERE, NOWHERE = "11" * 32, "22" * 32


@pytest.fixture
def store(tmp_path: Path) -> BlobDirectory:
    return BlobDirectory(tmp_path / "chain")


def put_forged(store: BlobDirectory, entries: Sequence[tuple[bytes, int, int, bytes]]) -> Path:
    """A pack that begins with a block and has this index, whatever it says, under its own name."""
    content = bytearray()
    writer = PackWriter(content.extend)
    writer.add(key(HERE), b"here")
    header, end = content[:12], len(content)
    tail = b"".join(ENTRY.pack(*entry) for entry in entries)
    tail += FOOTER.pack(end, len(entries), b"pack end")
    path = store.records.root / PACKS / digest_of(bytes(header) + tail).hex()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(content) + tail)
    return path


def key(name: str) -> bytes:
    found = key_of("blocks", name)
    assert found is not None
    return found


def good() -> tuple[bytes, int, int, bytes]:
    return key(HERE), 12, 4, check_of(key(HERE), b"here")


@pytest.mark.parametrize(
    ("place", "size_bytes"),
    [(2**64 - 1, 4), (2**63 - 1, 4), (2**62, 4), (12, 2**32 - 1), (2**64 - 1, 2**32 - 1)],
)
def test_a_record_of_any_place_and_size_is_damaged_and_others_are_read(
    store: BlobDirectory, place: int, size_bytes: int
) -> None:
    made = fill(store, 0, 10)
    assert store.packs.pack(KINDS, 1) == len(made)
    put_forged(store, [good(), (key(NOWHERE), place, size_bytes, bytes(16))])
    again = BlobDirectory(store.records.root)
    assert again.get_record("blocks", HERE) == b"here"
    with pytest.raises(StorageFailed, match=f"blocks/{NOWHERE} is damaged in its pack"):
        again.get_record("blocks", NOWHERE)
    assert again.packs.read_range("blocks", NOWHERE, 0, 4) == b""
    assert {HERE, NOWHERE} <= {*again.record_names("blocks")}
    again.records.put_record("blocks", NOWHERE, b"a good one", durable=False)
    assert again.packs.pack(KINDS, 1) == 1
    made |= {("blocks", HERE): b"here", ("blocks", NOWHERE): b"a good one"}
    assert_holds(again, made)
    assert_holds(BlobDirectory(store.records.root), made)


def test_an_index_that_is_out_of_order_is_named_and_no_assertion_of_ours(
    store: BlobDirectory,
) -> None:
    forged = put_forged(store, [(key(NOWHERE), 12, 4, bytes(16)), good()])
    made: Contents = {}
    for number in range(MERGED - 1):
        made |= fill(store, 3 * number + 1, 1)
        store.packs.pack(KINDS, 1)
    for use in (lambda: store.record_names("blocks"), store.packs.merge):
        with pytest.raises(StorageFailed, match=f"{forged.name}.* is out of order"):
            use()
    with pytest.raises(StorageFailed, match="put a good copy in its place"):
        store.record_names("blocks")
    for (kind, name), payload in made.items():
        assert store.get_record(kind, name) == payload


def test_a_pack_longer_than_any_is_named_unless_its_records_tell(store: BlobDirectory) -> None:
    made = fill(store, 0, 10)
    store.packs.pack(KINDS, 1)
    (path,) = packs_in(store)
    content = path.read_bytes()
    os.truncate(path, PACK_BYTES_MAX + 1)
    assert_holds(BlobDirectory(store.records.root), made)
    assert path.read_bytes() == content
    path.write_bytes(content[: len(content) // 3])
    os.truncate(path, 2**40)
    with pytest.raises(StorageFailed, match=f"{path.name} is longer than"):
        BlobDirectory(store.records.root).get_record("blocks", HERE)


@pytest.mark.parametrize("kind", [PACKS, "blocks", "manifests", "vertices"])
def test_nobody_waits_at_a_pipe(store: BlobDirectory, kind: str) -> None:
    path = store.records.root / kind / HERE
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(StorageFailed, match=rf"{kind}/{HERE}: it is no file"):
        store.get_record("blocks" if kind == PACKS else kind, HERE)
    if kind == "manifests":
        (store.records.root / "deltas").mkdir()
        (store.records.root / "deltas" / HERE).write_bytes(b"")
        with pytest.raises(StorageFailed, match="it is no file"):
            store.blob_manifest("deltas", BlobRoot(bytes.fromhex(HERE)))


def test_a_file_that_no_memory_holds_is_named(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.records.put_record("blocks", HERE, b"here", durable=False)
    os.truncate(store.records.record_path("blocks", HERE), 2**41)
    with pytest.raises(StorageFailed, match=f"blocks/{HERE} has {2**41} bytes"):
        store.get_record("blocks", HERE)
    monkeypatch.setattr(disk_records, "READ_BYTES_MAX", 4)
    store.records.put_record("blocks", HERE, b"here", durable=False)
    assert store.get_record("blocks", HERE) == b"here"


def test_more_packs_that_cannot_be_removed_than_a_pack_can_name_are_told_of(
    store: BlobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where somebody has put very many there that one replaces, on a disk that removes none."""
    old, made = [f"{number:064x}" for number in range(1, REPLACES_MAX + 2)], fill(store, 0, 4)
    assert store.packs.names("blocks") == set()
    monkeypatch.setattr(store.packs._open, "leaving", frozenset(old))
    with pytest.raises(StorageFailed, match=f"{len(old)} packs in .* cannot be removed"):
        store.packs.pack(KINDS, 1)
    assert_holds(store, made)
