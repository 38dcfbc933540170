"""A start that reads the summary knows what one that reads the whole chain does."""

from pathlib import Path

import pytest
import trio

from daa_dag.ids import BlockId, digest_of
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.checkpoints import final_path, rows
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import KINDS
from daa_node.checkpoints.recollection import recall
from daa_node.checkpoints.rows import HISTORY, KeptRows
from daa_node.checkpoints.summary import (
    FORMAT,
    SUMMARY,
    Membership,
    Summary,
    decode_summary,
    encode_summary,
)
from daa_node.errors import StorageFailed
from daa_node.packs.format import PACKS
from tests.daa_node.checkpoints.ends import ends_of
from tests.daa_node.checkpoints.filling_disk import filling
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker, delta_of
from tests.daa_node.inline import Inline


async def known(maker: ChainMaker) -> tuple[object, ...]:
    """What a new start finds."""
    chain = ChainStore(maker.store, maker.work, FACTS.limits)
    await chain.open(maker.first, maker.genesis)
    furthest = [await chain.furthest.get(epoch) for epoch in range(6)]
    turns = await ends_of(chain)
    point = await chain.resume_point()
    newest = await chain.newest()
    path = await chain.path_up(maker.genesis.id, 1000)
    assert path is not None
    proved = [block.id in chain.certified or await chain.path.is_certified(block) for block in path]
    heights = [vertex_id async for vertex_id in chain.heights.ids()]
    return heights, proved, path, furthest, chain.final_tip, turns, point, newest


async def known_without(maker: ChainMaker) -> tuple[object, ...]:
    kept = await maker.work.get_record(HISTORY, SUMMARY)
    await maker.work.delete_record(HISTORY, SUMMARY)
    found = await known(maker)
    if kept is not None:
        await maker.work.put_record(HISTORY, SUMMARY, kept, durable=False)
    return found


@pytest.mark.parametrize("asks_turns", [False, True])
def test_it_is_what_the_whole_chain_tells(tmp_path: Path, asks_turns: bool) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        if asks_turns:
            assert await ends_of(maker.chain) == []
        for number in range(1, 11):
            await maker.publish(await maker.make_round(abort=number in (4, 6)))
            if number % 4 == 1:
                assert await maker.chain.pack(KINDS, 1)
            assert await known(maker) == await known_without(maker), f"round {number}"

    trio.run(run)


def test_a_start_from_it_reads_what_is_newer_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        assert await ends_of(maker.chain) == []
        for _ in range(9):
            await maker.publish(await maker.make_round())
        assert await maker.chain.pack(KINDS, 1)
        await maker.publish(await maker.make_round())
        read: list[str] = []
        get = maker.store.get_record

        async def counted(kind: str, name: str) -> bytes | None:
            read.append(kind)
            return await get(kind, name)

        monkeypatch.setattr(maker.store, "get_record", counted)
        chain = ChainStore(maker.store, maker.work, FACTS.limits)
        await chain.open(maker.first, maker.genesis)
        assert len(await ends_of(chain)) == 3
        await chain.resume_point()
        await chain.newest()
        assert read.count("vertices") == 2  # the newest: when it is looked for, and at the end
        assert read.count("blocks") < 12  # of forty
        assert read.count("certificates") == 2

    trio.run(run)


def test_one_that_is_damaged_or_old_is_not_believed(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        for _ in range(2):
            await maker.publish(await maker.make_round())
        assert await maker.chain.pack(KINDS, 1)
        old = await maker.work.get_record(HISTORY, SUMMARY)
        assert old is not None
        await maker.publish(await maker.make_round())
        assert await maker.chain.pack(KINDS, 1)
        await maker.publish(await maker.make_round())
        whole = await known_without(maker)
        good = await maker.work.get_record(HISTORY, SUMMARY)
        assert good is not None
        spoilt = [bytes([*good[:at], good[at] ^ 1, *good[at + 1 :]]) for at in range(0, 400, 41)]
        for summary in (*spoilt, b"", good[:-1], old):  # above the old one there is a gap
            await maker.work.put_record(HISTORY, SUMMARY, summary, durable=False)
            assert await known(maker) == whole

    trio.run(run)


def test_one_of_an_older_work_folder_is_not_believed_over_the_packs(tmp_path: Path) -> None:
    """Nothing lies in files of its own, so no gap would tell."""
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        summaries: list[bytes] = []
        for _ in range(3):
            await maker.publish(await maker.make_round())
            assert await maker.chain.pack(KINDS, 1)
            summary = await maker.work.get_record(HISTORY, SUMMARY)
            assert summary is not None
            summaries.append(summary)
        whole = await known_without(maker)
        for summary in summaries[:-1]:
            await maker.work.put_record(HISTORY, SUMMARY, summary, durable=False)
            assert await known(maker) == whole

    trio.run(run)


def test_one_of_a_chain_that_has_lost_a_pack_is_not_believed(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        packs: list[set[Path]] = [set()]
        for _ in range(3):
            await maker.publish(await maker.make_round())
            assert await maker.chain.pack(KINDS, 1)
            packs.append({*(maker.chain_directory / "packs").iterdir()})
        for pack in packs[2] - packs[1]:  # neither the first nor the newest
            pack.unlink()
        chain = ChainStore(ChainMaker(tmp_path).store, maker.work, FACTS.limits)
        await chain.open(maker.first, maker.genesis)
        assert not chain.heights.is_whole
        assert len(chain.heights) == 3

    trio.run(run)


@pytest.mark.parametrize("what", ["a final block", "a vertex"])
def test_nothing_is_packed_that_the_summary_could_not_name_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    maker = ChainMaker(tmp_path)

    async def nothing(*_: object) -> None:
        pass

    async def run() -> None:
        await maker.open()
        with monkeypatch.context() as patch:
            if what == "a vertex":  # these are about to be called
                patch.setattr(maker.chain.heights, "add", nothing)
            else:
                patch.setattr(maker.chain, "advance", lambda *_: None)
            await maker.publish(await maker.make_round())
            assert await maker.chain.pack(KINDS, 1) == 0
        await maker.open()
        assert await maker.chain.pack(KINDS, 1) > 0

    trio.run(run)


def test_it_comes_back_as_it_was_written() -> None:
    rows = KeptRows((digest_of(b"part"),) * 2, b"rest")
    block_id = BlockId(bytes(32))
    for membership in (None, Membership(block_id, b"record")):
        summary = Summary(block_id, rows, rows, rows, 7, 9, (block_id,), (), membership)
        encoded = encode_summary(summary)
        assert decode_summary(encoded) == summary
        body = encoded[32:].replace(bytes([FORMAT]), bytes([FORMAT + 1]), 1)
        assert decode_summary(digest_of(body) + body) is None


def test_a_pack_of_another_chain_that_makes_up_the_number_is_noticed(tmp_path: Path) -> None:
    makers = [ChainMaker(tmp_path / name) for name in ("one", "other")]
    makers[1].delta_of = lambda round_number: delta_of(round_number + 1000)

    async def grow(maker: ChainMaker) -> Path:
        """The first of two packs."""
        await maker.open()
        for _ in range(4):
            await maker.publish(await maker.make_round())
        await maker.chain.pack(KINDS, 1)
        (first,) = (maker.chain_directory / PACKS).iterdir()
        for _ in range(4):
            await maker.publish(await maker.make_round())
        await maker.chain.pack(KINDS, 1)
        return first

    async def is_known() -> bool:
        store = DiskBlobStore(makers[0].chain_directory, offload=Inline())
        chain = ChainStore(store, makers[0].work, FACTS.limits)
        return await recall(chain, makers[0].first.vertex_id) is not None

    async def run() -> None:
        own, foreign = [await grow(maker) for maker in makers]
        assert await is_known()
        aside = own.rename(tmp_path / "aside")
        copy = own.with_name(foreign.name)
        copy.write_bytes(foreign.read_bytes())
        assert not await is_known()
        copy.unlink()
        aside.rename(own)
        assert await is_known()

    trio.run(run)


def test_one_with_parts_on_the_disk_knows_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PART_ROWS", 4)
    monkeypatch.setattr(final_path, "PART_ROWS", 4)
    monkeypatch.setattr(final_path, "ENDS_RECENT", 1)
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        await ends_of(maker.chain)
        for number in range(1, 17):
            await maker.publish(await maker.make_round(abort=number in (4, 6)))
            if number % 3 == 1:
                assert await maker.chain.pack(KINDS, 1)
            assert await known(maker) == await known_without(maker), f"round {number}"
        parts = await maker.work.record_names(rows.HISTORY)
        assert {name.partition(".")[0] for name in parts} == {
            *("ends", "heights", "path", "packs", SUMMARY)
        }
        whole = await known_without(maker)
        for name in parts:  # lost or damaged: all is read from the chain
            kept = await maker.work.get_record(rows.HISTORY, name)
            assert kept is not None
            await maker.work.put_record(rows.HISTORY, name, kept[:-1] + b"?", durable=False)
            assert await known(maker) == whole
            await maker.work.delete_record(rows.HISTORY, name)
            assert await known(maker) == whole
            await maker.work.put_record(rows.HISTORY, name, kept, durable=False)

    trio.run(run)


def test_a_crash_at_any_step_of_packing_leaves_a_start_that_knows_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PART_ROWS", 4)
    monkeypatch.setattr(final_path, "PART_ROWS", 4)
    monkeypatch.setattr(final_path, "ENDS_RECENT", 1)
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        await ends_of(maker.chain)
        crashes = 0
        for number in range(1, 15):
            await maker.publish(await maker.make_round())
            if number % 3:
                continue
            for room in range(20):  # after so many parts, the summary, and the files that moved
                chain = filling(maker, room + 1)  # one that it may take to repair
                await chain.open(maker.first, maker.genesis)
                await ends_of(chain)
                try:
                    await chain.pack(KINDS, 1)  # nothing, if all but the names of packs was written
                except StorageFailed:
                    crashes += 1
                    assert await known(maker) == await known_without(maker), (number, room)
                    continue
                break
            assert await known(maker) == await known_without(maker), number
        assert crashes > 12

    trio.run(run)
