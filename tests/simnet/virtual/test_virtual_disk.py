"""What a simulated disk keeps over a crash, and how it fails when asked to."""

import random

import pytest

from daa_dag.chunking import Manifest, manifest_of
from daa_node.errors import StorageFailed
from simnet.virtual.disk import Disk, MemoryJournal, MemoryStore, Mount

BLOB = b"chunk one chunk two"
MANIFEST: Manifest = manifest_of(BLOB, [10, 9])


def disk(seed: int = 0) -> Disk:
    return Disk(random.Random(seed))


def store_on(on: Disk) -> MemoryStore:
    return MemoryStore(Mount(on), "chain")


async def fill(store: MemoryStore, durable_blob: bool = True) -> None:
    if durable_blob:
        writer = await store.begin_blob("deltas", MANIFEST)
        assert writer.missing() == [0, 1]
        await writer.write_chunks([(1, BLOB[10:]), (0, memoryview(BLOB[:10]))])
        await writer.commit()
    else:
        await store.put_blob("deltas", BLOB, [10, 9])


async def test_a_blob_is_there_when_it_was_committed() -> None:
    store = store_on(disk())
    assert await store.blob_manifest("deltas", MANIFEST.root) is None
    await fill(store)
    assert await store.blob_manifest("deltas", MANIFEST.root) == MANIFEST
    assert await store.read_chunk("deltas", MANIFEST.root, 1) == BLOB[10:]
    both = bytearray(19)
    await store.read_into("deltas", MANIFEST.root, [1, 0], memoryview(both))
    assert both == BLOB[10:] + BLOB[:10]
    assert bytes(await store.view_blob("deltas", MANIFEST.root)) == BLOB
    assert await store.blob_roots("deltas") == [MANIFEST.root]
    await store.delete_blob("deltas", MANIFEST.root)
    assert await store.blob_roots("deltas") == []
    with pytest.raises(StorageFailed):
        await store.view_blob("deltas", MANIFEST.root)


async def test_a_crash_keeps_what_was_synced_and_gambles_with_the_rest() -> None:
    kept = 0
    for seed in range(40):
        on = disk(seed)
        store = store_on(on)
        await store.put_record("blocks", "synced", b"1")
        await store.put_record("blocks", "changed", b"old")
        await store.put_record("blocks", "changed", b"new", durable=False)
        await store.put_record("blocks", "fresh", b"2", durable=False)
        on.crash()
        again = store_on(on)
        assert await again.get_record("blocks", "synced") == b"1"
        assert await again.get_record("blocks", "changed") in (b"old", b"new")
        kept += await again.get_record("blocks", "fresh") == b"2"
    assert 5 < kept < 35


async def test_whoever_held_the_disk_before_the_crash_can_do_nothing_more() -> None:
    on = disk()
    store, journal = store_on(on), MemoryJournal(Mount(on))
    on.crash()
    with pytest.raises(StorageFailed, match="down"):
        await store.put_record("blocks", "ghost", b"1")
    with pytest.raises(StorageFailed, match="down"):
        await journal.append(b"ghost")


async def test_make_durable_keeps_a_blob_over_a_crash_and_deletes_a_damaged_one() -> None:
    for seed in range(10):
        on = disk(seed)
        store = store_on(on)
        await fill(store, durable_blob=False)
        await store.make_durable("deltas", MANIFEST.root)
        on.crash()
        assert await store_on(on).blob_roots("deltas") == [MANIFEST.root]
        assert on.rot() == f"chain/deltas/{MANIFEST.root.hex()}"
        rotten = store_on(on)
        with pytest.raises(StorageFailed, match="damaged"):
            await rotten.make_durable("deltas", MANIFEST.root)
        assert await rotten.blob_roots("deltas") == []


async def test_the_journal_and_its_guard_survive() -> None:
    on = disk()
    journal = MemoryJournal(Mount(on))
    assert (await journal.load(), await journal.read_guard()) == ([], None)
    await journal.rewrite([b"base"])
    await journal.append(b"one")
    await journal.write_guard(b"guard")
    on.crash()
    journal = MemoryJournal(Mount(on))
    assert await journal.load() == [b"base", b"one"]
    assert await journal.read_guard() == b"guard"


async def test_a_lying_disk_loses_what_it_said_was_synced() -> None:
    lost = set()
    for seed in range(20):
        on = disk(seed)
        journal = MemoryJournal(Mount(on))
        await journal.append(b"true")
        on.lying = True
        await journal.append(b"pretended")
        await journal.write_guard(b"pretended")
        on.crash()
        journal = MemoryJournal(Mount(on))
        assert (await journal.load())[0] == b"true"
        lost.add((len(await journal.load()), await journal.read_guard()))
    assert lost == {(1, None), (1, b"pretended"), (2, None), (2, b"pretended")}


async def test_a_full_disk_refuses_and_takes_again_when_there_is_room() -> None:
    on = disk()
    store, journal = store_on(on), MemoryJournal(Mount(on))
    on.full = True
    with pytest.raises(StorageFailed, match="no space"):
        await store.put_record("blocks", "a", b"1")
    with pytest.raises(StorageFailed, match="no space"):
        await journal.append(b"1")
    on.full = False
    await journal.append(b"2")
    assert await journal.load() == [b"2"]


async def test_a_crash_in_the_middle_of_a_write_comes_when_it_is_due() -> None:
    on = disk()
    journal = MemoryJournal(Mount(on))
    on.writes_until_crash, on.on_crash_due = 1, on.crash
    await journal.append(b"whole")
    with pytest.raises(StorageFailed, match="the power went"):
        await journal.append(b"torn")
    assert await MemoryJournal(Mount(on)).load() == [b"whole"]


async def test_an_empty_disk_takes_the_place_of_a_wiped_one() -> None:
    on = disk()
    await fill(store_on(on))
    on.wipe()
    assert await store_on(on).blob_roots("deltas") == []
    assert await MemoryJournal(Mount(on)).load() == []
