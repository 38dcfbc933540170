"""Packing goes on beside the rounds: none of them waits for it."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest
import trio

from daa_dag.retention import Retention
from daa_node.checkpoints import packing, thinning
from daa_node.checkpoints.layout import CERTIFICATES, KINDS
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.errors import StorageFailed
from daa_node.observability.events import EventLog
from tests.daa_node.checkpoints.little_chain import EPOCH_ROUNDS, SNAPSHOT_EVERY, ChainMaker


async def test_rounds_are_published_while_a_merge_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "LOOSE_FILES_MAX", 1)
    maker, merging = ChainMaker(tmp_path), trio.Event()
    merge = maker.store.merge_packs

    async def merge_for_ever() -> int:
        merging.set()
        await trio.sleep_forever()
        return await merge()

    monkeypatch.setattr(maker.store, "merge_packs", merge_for_ever)
    log = EventLog(lambda: 0)
    snapshots = Snapshots(maker.chain, SNAPSHOT_EVERY, Retention(), log)
    await maker.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(snapshots.packing.keep)
        await maker.publish(await maker.make_round())
        with trio.fail_after(60):
            await snapshots.store()  # a round ends with it
            await merging.wait()
            await maker.publish(await maker.make_round())
            await snapshots.store()
        assert (await maker.chain.newest()).height == 2
        assert (maker.chain_directory / "packs").is_dir()
        nursery.cancel_scope.cancel()


async def test_it_looks_again_whenever_it_is_woken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "LOOSE_FILES_MAX", 1)
    maker, told = ChainMaker(tmp_path), trio.Event()
    log = EventLog(lambda: 0, lambda _event: told.set())
    snapshots = Snapshots(maker.chain, SNAPSHOT_EVERY, Retention(), log)
    await maker.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(snapshots.packing.keep)
        for _ in range(3):
            await maker.publish(await maker.make_round())
            await snapshots.store()
            with trio.fail_after(60):
                while await maker.store.record_names("vertices", packed=False):
                    await told.wait()
                    told = trio.Event()
        nursery.cancel_scope.cancel()


async def test_what_a_job_that_has_ended_has_left_is_packed_and_thinned_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No round wakes it any more: it looks once, and goes on as long as something has moved."""
    monkeypatch.setattr(packing, "LOOSE_FILES_MAX", 1)
    monkeypatch.setattr(thinning, "EPOCHS_AT_ONCE", 1)
    maker, events = ChainMaker(tmp_path), list[str]()
    told, policy = trio.Event(), Retention(epochs_whole=1)

    def note(event: Mapping[str, object]) -> None:
        events.append(str(event["name"]))
        if events.count("history_thinned") == 3 and "data_packed" in events:
            told.set()

    await maker.open()
    for _ in range(4 * EPOCH_ROUNDS + 1):
        await maker.publish(await maker.make_round())
    snapshots = Snapshots(maker.chain, SNAPSHOT_EVERY, policy, EventLog(lambda: 0, note))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(snapshots.packing.keep)
        with trio.fail_after(60):
            await told.wait()
        assert await maker.store.record_names("vertices", packed=False) == []
        assert maker.chain.path.light_below == 3
        nursery.cancel_scope.cancel()


def test_what_is_published_as_packing_ends_is_packed_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that the chain forgot would keep all that follow from being packed."""
    maker = ChainMaker(tmp_path)
    pack, names, has_moved = maker.store.pack, maker.store.record_names, list[bool]()

    async def packed(kinds: Sequence[str], files_min: int, but: Collection[str] = ()) -> int:
        has_moved.append(True)
        return await pack(kinds, files_min, but)

    async def listed(kind: str, packed: bool = True) -> list[str]:
        found = await names(kind, packed)
        if has_moved and kind == CERTIFICATES:
            has_moved.clear()
            await maker.publish(await maker.make_round())
        return found

    async def run() -> None:
        await maker.open()
        await maker.publish(await maker.make_round())
        monkeypatch.setattr(maker.store, "pack", packed)
        monkeypatch.setattr(maker.store, "record_names", listed)
        assert await maker.chain.pack(KINDS, 1)
        assert await maker.chain.pack(KINDS, 1)

    trio.run(run)


async def test_a_disk_that_fails_again_later_is_told_of_again_and_tried_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, told = ChainMaker(tmp_path), list[str]()
    await maker.open()
    has_room = [False, False, True, False, False]

    async def pack(_kinds: Sequence[str], _files_min: int, _apart: bool = False) -> int:
        if not has_room.pop(0):
            raise StorageFailed("no space left on device")
        return 1

    monkeypatch.setattr(maker.chain, "pack", pack)
    log = EventLog(lambda: 0, lambda event: told.append(event["name"]))
    packing_ = Snapshots(maker.chain, SNAPSHOT_EVERY, Retention(), log).packing
    rounds = 0
    while has_room:
        await packing_.run()
        rounds += 1
    assert told == ["storage_failed", "data_packed", "storage_failed"]
    assert rounds == 5 + 1 + 2 + 1  # one is let go by after a failure, and two after the next
