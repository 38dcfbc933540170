"""A group of files is durable, all of it, before the one that says so is there."""

from functools import partial
from pathlib import Path

import pytest

from daa_dag.ids import digest_of
from daa_node.adapters import pack_directory
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.checkpoints import writes as checkpoint_writes
from daa_node.checkpoints.layout import BLOCKS, VERTICES
from daa_node.checkpoints.writes import GroupWriter, Write


async def test_what_is_put_loosely_is_packed_however_much_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack takes a batch; whoever lands on a long chain brings many of them."""
    monkeypatch.setattr(pack_directory, "BATCH_RECORDS_MAX", 4)
    store, work = DiskBlobStore(tmp_path / "chain"), DiskBlobStore(tmp_path / "work")
    names = [digest_of(b"%d" % number).hex() for number in range(11)]
    loose_at_the_end = list[str]()

    async def last() -> None:
        loose_at_the_end.extend(await store.record_names(BLOCKS, packed=False))
        await store.put_record(VERTICES, names[0], b"a vertex")

    writes = [
        Write(
            f"{BLOCKS}/{name}",
            partial(store.put_record, BLOCKS, name, b"a block", True),
            partial(store.put_record, BLOCKS, name, b"a block", False),
        )
        for name in names
    ]
    await GroupWriter(store, work).add([[*writes, Write(f"{VERTICES}/{names[0]}", last)]])
    assert loose_at_the_end == [], "these no sync has made durable"
    assert await store.record_names(BLOCKS) == sorted(names)
    assert await store.packed_count(BLOCKS, ()) == len(names)


async def test_never_more_than_so_many_wait_loosely_for_their_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has blocks of the disk to itself: all proofs of a long chain at once would fill it."""
    monkeypatch.setattr(checkpoint_writes, "LOOSE_MAX", 4)
    store, work = DiskBlobStore(tmp_path / "chain"), DiskBlobStore(tmp_path / "work")
    names = [digest_of(b"%d" % number).hex() for number in range(11)]
    counts = list[int]()

    async def put(name: str, durable: bool) -> None:
        await store.put_record(BLOCKS, name, b"a block", durable)
        counts.append(len(await store.record_names(BLOCKS, packed=False)))

    writes = [
        Write(f"{BLOCKS}/{name}", partial(put, name, True), partial(put, name, False))
        for name in names
    ]
    last = partial(store.put_record, VERTICES, names[0], b"a vertex")
    await GroupWriter(store, work).add([[*writes, Write(f"{VERTICES}/{names[0]}", last)]])
    assert counts == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3]
    assert await store.packed_count(BLOCKS, ()) == len(names)
