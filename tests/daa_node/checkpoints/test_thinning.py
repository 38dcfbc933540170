"""Of old epochs one certificate stays: the chain holds, is told exactly, and survives any cut."""

from itertools import pairwise
from pathlib import Path

import pytest
import trio

from daa_consensus.bft.messages import Block, ResultPayload
from daa_dag.retention import Retention
from daa_node.checkpoints import thinning
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.layout import CERTIFICATES, KINDS, exec_name, final_name
from daa_node.checkpoints.page_server import page_after
from daa_node.checkpoints.rows import HISTORY
from daa_node.checkpoints.scrub import Scrub
from daa_node.checkpoints.summary import SUMMARY
from daa_node.checkpoints.thinning import thin
from daa_node.errors import StorageFailed
from daa_node.observability.events import EventLog
from tests.daa_node.checkpoints.filling_disk import filling
from tests.daa_node.checkpoints.little_chain import EPOCH_ROUNDS, FACTS, ChainMaker
from tests.daa_node.checkpoints.verified import named, verify

POLICY = Retention(epochs_whole=1)
ROUNDS = 6 * EPOCH_ROUNDS + 1  # six epochs are over; of these five may be light


@pytest.fixture(autouse=True)
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "EPOCHS_AT_ONCE", 2)


async def grown(maker: ChainMaker, is_packed: bool = True) -> None:
    await maker.open()
    for number in range(1, ROUNDS + 1):
        await maker.publish(await maker.make_round(abort=number in (2, 9)))
        if is_packed and number % 5 == 0:
            assert await maker.chain.pack(KINDS, 1)


async def thinned(chain: ChainStore) -> int:
    lowest = 0
    while (above := await thin(chain, POLICY, lowest)) is not None:
        lowest = above
    return lowest


def certificates_in(maker: ChainMaker) -> set[str]:
    return {*ChainFiles(maker.chain_directory).listing().names(CERTIFICATES)}


@pytest.mark.parametrize("is_packed", [False, True])
def test_old_epochs_keep_one_certificate_and_the_chain_holds(
    tmp_path: Path, is_packed: bool
) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await grown(maker, is_packed)
        before = certificates_in(maker)
        assert await thinned(maker.chain) == 4
        ends = [await maker.chain.furthest.get(epoch) for epoch in range(4)]
        kept = {f"{CERTIFICATES}/{final_name(end.block_id)}" for end in ends if end is not None}
        assert len(kept) == 4
        gone = before - certificates_in(maker)
        assert not gone & kept
        young = ROUNDS - 4 * EPOCH_ROUNDS
        assert len(before) - len(gone) == 4 + 2 * young  # a proof a round, and one of its page
        assert await thinned(maker.chain) == 4  # again finds nothing
        await maker.publish(await maker.make_round())

    trio.run(run)
    report = verify(maker.chain_directory)
    assert report.ok, report.problems
    assert report.light == 4 * EPOCH_ROUNDS - 2
    assert report.heights == ROUNDS + 1 - 2


def test_what_is_lost_of_it_is_named(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> tuple[str, str]:
        await grown(maker, is_packed=False)
        await thinned(maker.chain)
        end = await maker.chain.furthest.get(0)
        newest = await maker.chain.newest()
        below = await maker.chain.vertex(newest.parents[0])
        assert end is not None
        assert below is not None
        return final_name(end.block_id), exec_name(below.vertex_id)

    end_name, proof_name = trio.run(run)
    for name in (end_name, proof_name):
        path = maker.chain_directory / CERTIFICATES / name
        payload = path.read_bytes()
        path.unlink()
        if name == proof_name:
            assert named(verify(maker.chain_directory)) == {f"{CERTIFICATES}/{name}"}
        path.write_bytes(payload[:-1] + bytes([payload[-1] ^ 1]))
        assert f"{CERTIFICATES}/{name}" in named(verify(maker.chain_directory))
        path.write_bytes(payload)
    assert verify(maker.chain_directory).ok
    vertex = sorted((maker.chain_directory / "vertices").iterdir())[0]
    payload = vertex.read_bytes()
    vertex.write_bytes(payload[:-1] + bytes([payload[-1] ^ 1]))
    assert f"vertices/{vertex.name}" in named(verify(maker.chain_directory))


def test_pages_end_where_proofs_do_and_scrubbing_misses_nothing(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await grown(maker)
        path = await maker.chain.path_up(maker.genesis.id, 1000)
        assert path is not None
        assert await page_after(maker.chain, maker.genesis.id) is not None
        await thinned(maker.chain)
        for chain in (maker.chain, await reopened(maker), await reopened(maker, knows=False)):
            for block, above in pairwise(path):
                page = await page_after(chain, block.id)
                if above.epoch < 4 and chain.path.light_below:
                    assert page is None
                results = [b for b in page.blocks if is_result(b)] if page else []
                assert page is None or len(page.vertices) == len(results)
                assert (above.epoch >= 4) <= (page is not None)
        scrub = Scrub(await reopened(maker), EventLog(lambda: 0))
        assert await scrub.once() == []
        end = await maker.chain.furthest.get(1)
        assert end is not None
        await maker.store.delete_record(CERTIFICATES, final_name(end.block_id))
        await maker.store.settle([CERTIFICATES])
        assert len(await scrub.once()) == 1

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def is_result(block: Block) -> bool:
    return isinstance(block.payload, ResultPayload)


async def reopened(maker: ChainMaker, knows: bool = True) -> ChainStore:
    """By a new process, with the summary or without."""
    kept = await maker.work.get_record(HISTORY, SUMMARY)
    assert kept is not None
    if not knows:
        await maker.work.delete_record(HISTORY, SUMMARY)
    chain = ChainStore(maker.store, maker.work, FACTS.limits)
    await chain.open(maker.first, maker.genesis)
    assert (chain.path.light_below == 4) == knows
    await chain.look_up()
    await maker.work.put_record(HISTORY, SUMMARY, kept)
    return chain


def test_cut_off_anywhere_it_loses_nothing(tmp_path: Path) -> None:
    async def run() -> int:
        room, cuts = 0, 0
        maker = ChainMaker(tmp_path)
        await grown(maker)
        newest = maker.newest.vertex_id
        while True:
            cut = filling(maker, room)
            try:
                await cut.open(maker.first, maker.genesis)
                await thinned(cut)
                return cuts
            except StorageFailed:
                room, cuts = room + 3, cuts + 1
            report = verify(maker.chain_directory)
            assert report.ok, (room, report.problems)
            assert report.tip == newest

    assert trio.run(run) > 5
