"""Packs on a disk that loses power: whatever was durable before is there after, byte for byte."""

import random
from collections import Counter
from contextlib import suppress

import trio
import trio.testing

from daa_dag.ids import digest_of
from daa_node.errors import StorageFailed
from simnet.nodes.virtual.disk import Disk
from simnet.nodes.virtual.disk_mount import Mount
from simnet.nodes.virtual.disk_packs import unpacked
from simnet.nodes.virtual.disk_seams import MemoryStore

KINDS = ("blocks", "certificates")


async def fill(store: MemoryStore, start: int, count: int) -> dict[tuple[str, str], bytes]:
    made: dict[tuple[str, str], bytes] = {}
    for number in range(start, start + count):
        name = digest_of(b"%d" % number).hex()
        made["blocks", name] = b"block %d" % number
        made["certificates", f"{name}.final"] = b"certificate %d" % number
    for (kind, name), payload in made.items():
        await store.put_record(kind, name, payload)
    return made


async def assert_holds(store: MemoryStore, wanted: dict[tuple[str, str], bytes]) -> None:
    for (kind, name), payload in wanted.items():
        assert await store.get_record(kind, name) == payload
    for kind in KINDS:
        assert await store.record_names(kind) == sorted(n for k, n in wanted if k == kind)


async def test_what_is_packed_is_read_as_before(autojump_clock: object) -> None:
    on = Disk(random.Random(0))
    store = MemoryStore(Mount(on), "chain")
    made: dict[tuple[str, str], bytes] = {}
    for start in range(0, 80, 10):
        made |= await fill(store, start, 5)
        assert await store.pack(KINDS, 10) == 10
    assert len(on.files) == 8
    assert await store.merge_packs() == 8
    assert len(on.files) == 1
    await assert_holds(store, made)
    assert len(unpacked(on.files, "chain")) == len(made)
    doomed = next(iter(made))
    del made[doomed]
    await store.delete_record(*doomed)
    await store.settle([doomed[0]])
    await assert_holds(MemoryStore(Mount(on), "chain"), made)


async def test_a_good_file_takes_the_place_of_a_rotten_record(autojump_clock: object) -> None:
    on = Disk(random.Random(0))
    store = MemoryStore(Mount(on), "chain")
    made = await fill(store, 0, 5)
    await store.pack(KINDS, 1)
    (path,) = on.files
    (kind, name), payload = next(iter(made.items()))
    on.put(path, on.files[path].replace(payload, bytes(len(payload)), 1), sync=True)
    await store.delete_record(kind, name)  # though it cannot be read
    store = MemoryStore(Mount(on), "chain")
    await store.put_record(kind, name, payload)
    await store.pack(KINDS, 1)
    assert len(on.files) == 2  # what was good, and what has come
    await assert_holds(store, made)


async def run_until_power_goes(on: Disk, after_s: float) -> dict[tuple[str, str], bytes]:
    """Fill, pack, merge, and delete; what was durable, and not deleted, when the power went."""
    store = MemoryStore(Mount(on), "chain")
    made: dict[tuple[str, str], bytes] = {}

    async def work() -> None:
        for start in range(0, 120, 10):
            made.update(await fill(store, start, 2))
            await store.pack(KINDS, 1)
            await store.merge_packs()

    async with trio.open_nursery() as nursery:

        async def cut() -> None:
            await trio.sleep(after_s)
            on.crash()

        nursery.start_soon(cut)
        with suppress(StorageFailed):
            await work()
        nursery.cancel_scope.cancel()
    return made


async def test_a_power_cut_at_any_step_loses_nothing(autojump_clock: object) -> None:
    """After each the next start packs on, and loses power again."""
    befallen, packs = Counter[str](), Counter[int]()
    for seed in range(150):
        chance = random.Random(seed)
        on = Disk(random.Random(seed))
        durable = await run_until_power_goes(on, chance.uniform(0.01, 0.7))
        for _ in range(2):
            store = MemoryStore(Mount(on), "chain")
            for (kind, name), payload in durable.items():
                assert await store.get_record(kind, name) == payload, f"seed {seed}"
            with trio.move_on_after(chance.uniform(0, 0.1)):
                await store.pack(KINDS, 1)
                await store.merge_packs()
            on.crash()
        packs[sum("/packs/" in path for path in on.files)] += 1
        befallen += on.befallen
    assert befallen["deleted file back after a crash"] > 50
    assert befallen["unsynced file gone"] > 5
    assert len(packs) > 3


async def test_a_disk_whose_syncs_and_renames_fail_loses_nothing(autojump_clock: object) -> None:
    failed = Counter[str]()
    for seed in range(60):
        on = Disk(random.Random(seed))
        store = MemoryStore(Mount(on), "chain")
        made: dict[tuple[str, str], bytes] = {}
        for start in range(0, 100, 10):
            made |= await fill(store, start, 2)
            heal = on.fails_at("failed_sync"), on.fails_at("failed_rename")
            try:
                await store.pack(KINDS, 1)
                await store.merge_packs()
            except StorageFailed as fault:
                failed[str(fault)] += 1
            for one in heal:
                one()
        await assert_holds(store, made)
        on.crash()
        await assert_holds(MemoryStore(Mount(on), "chain"), made)
    assert failed["Input/output error"] > 60
