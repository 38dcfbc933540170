"""What a simulated disk keeps over a crash, and how it fails when asked to."""

import random
from collections import Counter

import pytest
import trio
import trio.testing

from daa_dag.chunking import Manifest, manifest_of
from daa_node.errors import StorageFailed
from simnet.nodes.virtual.disk import FATES, LOG, WRITTEN_BACK_S, Disk
from simnet.nodes.virtual.disk_mount import Mount
from simnet.nodes.virtual.disk_seams import MemoryJournal, MemoryStore

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


@pytest.mark.long
async def test_a_crash_keeps_what_was_synced_and_does_anything_to_the_rest() -> None:
    fresh, changed, deleted = Counter[str](), Counter[str](), Counter[str]()
    payload, befallen = bytes(range(1, 201)), Counter[str]()
    for seed in range(200):
        on = disk(seed)
        store = store_on(on)
        await store.put_record("blocks", "synced", b"1")
        await store.put_record("heads", "changed", b"old")
        await store.put_record("heads", "changed", payload, durable=False)
        await store.put_record("fresh", "fresh", payload, durable=False)
        await store.put_record("gone", "deleted", b"3")
        await store.delete_record("gone", "deleted")
        on.crash()
        again = store_on(on)
        assert await again.get_record("blocks", "synced") == b"1"
        fresh[fate(await again.get_record("fresh", "fresh"), payload)] += 1
        changed[fate(await again.get_record("heads", "changed"), payload)] += 1
        deleted[str(await again.get_record("gone", "deleted"))] += 1
        befallen += on.befallen
        before = dict(on.files)
        on.crash()  # what has come through one crash comes through the next
        assert on.files == before
    assert fresh.keys() == {"not there", "empty", "torn", "whole", "zeroed", "other"}
    assert changed.keys() == (fresh.keys() - {"not there"}) | {"old"}
    assert deleted.keys() == {"b'3'", "None"}
    assert min(*fresh.values(), *changed.values(), *deleted.values()) > 10
    assert befallen.keys() >= {
        "deleted file back after a crash",
        "rename undone by a crash",
        "unsynced file gone",
        *(f"unsynced bytes {what}" for what in FATES if what != "whole"),
    }


def fate(found: bytes | None, payload: bytes) -> str:
    if found is None:
        return "not there"
    if found in (b"", b"old"):
        return found.decode() or "empty"
    if len(found) < len(payload):
        assert payload.startswith(found)
        return "torn"
    assert len(found) == len(payload)
    if found == payload:
        return "whole"
    return "zeroed" if payload.startswith(found.rstrip(b"\0")) else "other"


async def test_a_name_and_its_bytes_outlast_a_crash_apart_from_each_other() -> None:
    """Another record of the folder was synced: so is the name, and not what lies under it."""
    for seed in range(20):
        on = disk(seed)
        store = store_on(on)
        await store.put_record("blocks", "loose", b"loose", durable=False)
        await store.put_record("blocks", "synced", b"1")
        await store.delete_record("blocks", "synced")
        await store.settle(["blocks"])
        on.crash()
        assert await store_on(on).record_names("blocks") == ["loose"]


async def test_what_has_been_dirty_for_long_was_written_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for seed in range(20):
        on = disk(seed)
        await store_on(on).put_record("blocks", "fresh", b"payload", durable=False)
        await trio.sleep(WRITTEN_BACK_S + 1)
        on.crash()
        assert await store_on(on).get_record("blocks", "fresh") == b"payload"


async def test_two_writes_under_way_end_in_another_order_than_they_began(
    autojump_clock: trio.testing.MockClock,
) -> None:
    on = disk()
    store, ended = store_on(on), list[str]()

    async def write(name: str) -> None:
        await store.put_record("blocks", name, b"1")
        ended.append(name)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(write, str(number))
            await trio.sleep(1e-5)
    assert sorted(ended) != ended
    assert on.befallen["write overtaken by a later one"]


async def test_a_slow_disk_takes_its_time_for_reading_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    on = disk()
    store, times_s = store_on(on), list[float]()
    for factor in (1, 100, 1):
        heals = [on.slow_down(factor) for _ in range(2)]  # of two, the slower one counts
        start_s = trio.current_time()
        for number in range(50):
            await store.put_record("blocks", str(number), b"1")
        times_s.append(trio.current_time() - start_s)
        await store.get_record("blocks", "0")
        for heal in heals:
            heal()
    assert times_s[0] > 0.1
    assert 50 * times_s[0] < times_s[1] < 500 * times_s[0]
    assert times_s[2] < 2 * times_s[0]


async def test_after_a_failed_sync_readers_see_what_no_later_sync_saves() -> None:
    lost = 0
    for seed in range(30):
        on = disk(seed)
        journal = MemoryJournal(Mount(on))
        await journal.load()
        await journal.append(b"before")
        heal = on.fails_at("failed_sync")
        try:
            await journal.append(b"lost")
        except StorageFailed:
            lost += 1
            heal()
            for promise in (journal.append, journal.write_guard):
                with pytest.raises(StorageFailed, match="written anew"):
                    await promise(b"after")
            assert on.log == [b"before", b"lost"]
            held = on.inodes.get(LOG)
            assert held is not None
            on.sync(held)  # without an error, and for nothing
            on.crash()
            assert on.log == [b"before"]
        heal()
    assert 3 < lost < 20


async def test_a_start_saves_what_an_earlier_process_could_not_sync() -> None:
    saved = 0
    for seed in range(30):
        on = disk(seed)
        journal = MemoryJournal(Mount(on))
        await journal.load()
        heal = on.fails_at("failed_sync")
        try:
            await journal.append(b"word")
        except StorageFailed:
            saved += 1
            heal()
            assert await MemoryJournal(Mount(on)).load() == [b"word"]
            on.crash()
            assert on.log == [b"word"]
        heal()
    assert saved > 3


async def test_a_record_that_cannot_be_synced_or_renamed_is_not_there() -> None:
    failed, befallen = Counter[str](), Counter[str]()
    for seed in range(60):
        for what in ("failed_sync", "failed_rename"):
            on = disk(seed)
            store = store_on(on)
            heal = on.fails_at("failed_sync" if what == "failed_sync" else "failed_rename")
            try:
                await store.put_record("blocks", "new", b"1")
            except StorageFailed:
                failed[what] += 1
                assert await store.get_record("blocks", "new") is None
                heal()
                await store.put_record("blocks", "new", b"1")
            on.crash()
            befallen += on.befallen
            assert await store_on(on).get_record("blocks", "new") == b"1"
    assert min(failed["failed_sync"], failed["failed_rename"]) > 10
    assert befallen.keys() >= {"sync failed", "sync of a folder failed", "rename failed"}


async def test_a_blob_is_durable_where_nothing_failed_and_gone_where_its_sync_did() -> None:
    failed = 0
    for seed in range(60):
        on = disk(seed)
        store = store_on(on)
        await fill(store, durable_blob=False)
        heal = on.fails_at("failed_sync")
        try:
            await store.make_durable("deltas", MANIFEST.root)
        except StorageFailed:
            failed += 1
            if on.befallen["sync failed"]:
                assert await store.blob_roots("deltas") == []
        else:
            on.crash()
            assert bytes(await store_on(on).view_blob("deltas", MANIFEST.root)) == BLOB
        heal()
    assert 10 < failed < 55


async def test_chunks_that_came_before_a_crash_are_looked_through() -> None:
    missing = Counter[int]()
    for seed in range(60):
        on = disk(seed)
        writer = await store_on(on).begin_blob("deltas", MANIFEST)
        await writer.write_chunk(0, BLOB[:10])
        on.crash()
        again = store_on(on)
        writer = await again.begin_blob("deltas", MANIFEST)
        missing[len(writer.missing())] += 1
        for index in writer.missing():
            at, size = MANIFEST.offsets[index], MANIFEST.sizes[index]
            await writer.write_chunk(index, BLOB[at : at + size])
        await writer.commit()
        on.crash()
        assert bytes(await store_on(on).view_blob("deltas", MANIFEST.root)) == BLOB
    assert set(missing) == {1, 2}


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


async def test_a_cut_before_a_records_sync_may_leave_other_bytes_of_its_length(
    autojump_clock: trio.testing.MockClock,
) -> None:
    whole, damaged = 0, 0
    for seed in range(20):
        on = disk(seed)
        on.fates = ("whole", "with other bytes")
        journal = MemoryJournal(Mount(on))
        await journal.load()
        length = len(on.files[LOG])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_loses_power, journal, b"a word of some length")
            while len(on.files[LOG]) == length:
                await trio.sleep(1e-5)
            on.crash()
        assert len(on.files[LOG]) > length + 21
        whole += on.log == [b"a word of some length"]
        damaged += on.log == []
    assert whole + damaged == 20
    assert min(whole, damaged) > 3


async def _loses_power(journal: MemoryJournal, record: bytes) -> None:
    with pytest.raises(StorageFailed, match="down"):
        await journal.append(record)


async def test_a_lying_disk_loses_what_it_said_was_synced() -> None:
    lost = set()
    for seed in range(60):
        on = disk(seed)
        journal = MemoryJournal(Mount(on))
        await journal.load()
        await journal.append(b"true")
        on.lying = True
        await journal.append(b"pretended")
        await journal.write_guard(b"pretended")
        on.crash()
        journal = MemoryJournal(Mount(on))
        assert (await journal.load())[0] == b"true"
        lost.add((len(await journal.load()), await journal.read_guard()))
    assert lost == {(n, g) for n in (1, 2) for g in (None, b"", b"pretended")}


async def test_a_full_disk_ends_inside_a_record_and_takes_again_when_there_is_room() -> None:
    ends = Counter[bool]()
    for seed in range(20):
        on = disk(seed)
        store, journal = store_on(on), MemoryJournal(Mount(on))
        await journal.load()
        room_again = on.fails_at("full")
        records = [bytes([number]) * 1000 for number in range(20)]
        taken = await _taken(journal, records)
        with pytest.raises(StorageFailed, match="no space"):
            await store.put_record("blocks", "a", records[0])
        ends[taken > 0] += 1
        room_again()
        await journal.append(records[-1])
        assert await journal.load() == [*records[:taken], records[-1]]
    assert set(ends) == {True, False}


async def _taken(journal: MemoryJournal, records: list[bytes]) -> int:
    """How many of these the disk takes before it is full."""
    for number, record in enumerate(records):
        try:
            await journal.append(record)
        except StorageFailed:
            return number
    raise AssertionError("it takes everything")


async def test_a_crash_in_the_middle_of_a_write_comes_when_it_is_due() -> None:
    on = disk()
    journal = MemoryJournal(Mount(on))
    await journal.load()
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
