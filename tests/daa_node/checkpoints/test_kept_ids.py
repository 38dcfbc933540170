"""Lists that a command goes by are of what lies there, whole, or nothing is believed of them."""

import shutil
from collections.abc import Collection
from pathlib import Path

import pytest
import trio

from daa_node.checkpoints import kept_ids, rows
from daa_node.checkpoints.certified import certified_chain
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.layout import KINDS
from daa_node.checkpoints.own_chain import OwnChain, own_chain
from daa_node.checkpoints.rows import HISTORY
from daa_node.checkpoints.summary import SUMMARY
from daa_node.packs.format import PACKS
from tests.daa_node.checkpoints.as_left import PACKED, ROUNDS, agree, grow, kept, told
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker, delta_of, files_under
from tests.daa_node.checkpoints.proofs_alone import follow_members


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PART_ROWS", 4)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    trio.run(grow, ChainMaker(tmp_path / "node"), ROUNDS, *PACKED)
    return tmp_path / "node"


def test_without_its_index_or_with_a_damaged_one_the_whole_chain_is_judged(node: Path) -> None:
    assert agree(node / "chain")
    parts = files_under(node / "work" / HISTORY)
    assert {path.name for path in parts} >= {SUMMARY, "packs", "heights.0"}
    for path in parts:
        payload = path.read_bytes()
        for damaged in (payload[:-1] + bytes([payload[-1] ^ 1]), payload[:-1], b"", None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            is_used = path.name.partition(".")[0] in (SUMMARY, "packs", "heights")
            assert agree(node / "chain") != is_used, path.name
            path.write_bytes(payload)
    assert agree(node / "chain")


def test_an_older_index_and_one_of_another_chain_are_not_believed(tmp_path: Path) -> None:
    one, other = ChainMaker(tmp_path / "one"), ChainMaker(tmp_path / "other")
    summaries = list[bytes]()
    index = one.directory / "work" / HISTORY

    async def run() -> None:
        await grow(other, 5, 5)
        await one.open()
        await follow_members(one.chain)
        for _ in range(3):
            for _ in range(3):
                await one.publish(await one.make_round())
            assert await one.chain.pack(KINDS, 1)
            summaries.append((index / SUMMARY).read_bytes())
            assert agree(one.chain_directory)

    trio.run(run)
    for older in summaries[:-1]:
        (index / SUMMARY).write_bytes(older)
        assert not agree(one.chain_directory)
    shutil.rmtree(index)
    shutil.copytree(other.directory / "work" / HISTORY, index)
    assert not agree(one.chain_directory)


def test_a_pack_of_another_chain_that_makes_up_the_number_is_noticed(tmp_path: Path) -> None:
    makers = [ChainMaker(tmp_path / name) for name in ("one", "other")]
    makers[1].delta_of = lambda round_number: delta_of(round_number + 1000)
    firsts = []
    for maker in makers:
        trio.run(grow, maker, 3, 3)
        firsts += files_under(maker.chain_directory / PACKS)

    async def go_on() -> None:
        for _ in range(2):
            await makers[0].publish(await makers[0].make_round())
        assert await makers[0].chain.pack(KINDS, 1)

    trio.run(go_on)
    files = ChainFiles(makers[0].chain_directory)
    assert kept_ids.kept_ids(files) is not None
    own, foreign = firsts
    own.rename(tmp_path / "aside")
    shutil.copy(foreign, own.with_name(foreign.name))
    assert kept_ids.kept_ids(files) is None


def test_one_without_a_lost_pack_is_not_believed(node: Path) -> None:
    for pack in files_under(node / "chain" / PACKS):
        aside = pack.rename(node / "aside")
        past = own_chain(ChainFiles(node / "chain"), FACTS)
        assert told(past) == told(certified_chain(ChainFiles(node / "chain"), FACTS))
        assert not isinstance(past, OwnChain)
        aside.rename(pack)


def test_of_a_chain_that_is_packed_meanwhile_it_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the summary and the listing, and once more before it is read again."""
    maker = ChainMaker(tmp_path)
    trio.run(grow, maker, 8, 5)
    names = kept(maker.directory)
    listing, packings = ChainFiles.listing, list[int]()

    def packed_meanwhile(files: ChainFiles, loose: Collection[str] | None = None) -> object:
        if not packings:
            packings.append(trio.run(maker.chain.pack, KINDS, 1))
        return listing(files, loose)

    monkeypatch.setattr(ChainFiles, "listing", packed_meanwhile)
    past = own_chain(ChainFiles(maker.chain_directory), FACTS)
    assert packings[0] > 0
    assert isinstance(past, OwnChain)
    assert [f"vertices/{past.at(h).vertex_id.hex()}" for h in range(past.height + 1)] == names


def test_one_that_never_comes_to_rest_is_judged_whole(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_ids, "TRIES_MAX", 0)
    assert not agree(node / "chain")
