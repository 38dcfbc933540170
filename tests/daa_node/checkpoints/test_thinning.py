"""Of old epochs one certificate stays: the chain holds, is told exactly, and survives any cut."""

from itertools import pairwise
from pathlib import Path

import pytest
import trio

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_consensus.votes import Certificate
from daa_dag.ids import BlockId
from daa_dag.retention import Retention
from daa_node.checkpoints import scrub, thinning
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.layout import CERTIFICATES, KINDS, exec_name, final_name
from daa_node.checkpoints.listing import view_chain
from daa_node.checkpoints.page_server import page_after
from daa_node.checkpoints.pages import check_page
from daa_node.checkpoints.rows import HISTORY
from daa_node.checkpoints.scrub import Scrub
from daa_node.checkpoints.shown_proofs import shown_final
from daa_node.checkpoints.summary import SUMMARY
from daa_node.checkpoints.thinning import thin
from daa_node.cli.checkpoint_log import signed
from daa_node.cli.checkpoint_tags import check_certified
from daa_node.errors import StorageFailed, UserError
from daa_node.observability.events import Event, EventLog
from tests.daa_node.checkpoints.filling_disk import filling
from tests.daa_node.checkpoints.little_chain import (
    EPOCH_ROUNDS,
    FACTS,
    ChainMaker,
    Headers,
    publish,
)
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


def test_what_was_let_go_is_listed_and_tagged_as_certified(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await grown(maker, is_packed=False)
        await thinned(maker.chain)

    trio.run(run)
    rows = view_chain(maker.chain_directory).rows
    light = [row for row in rows if row.vertex.height and not row.certified_by]
    assert len(light) == 4 * EPOCH_ROUNDS - 2
    for row in light:
        assert (row.is_certified, signed(row)) == (True, "certified from above")
        check_certified(row)
    newest = rows[-1]
    assert signed(newest) == "signed by 3"
    (maker.chain_directory / CERTIFICATES / exec_name(newest.vertex_id)).unlink()
    newest = view_chain(maker.chain_directory).rows[-1]  # nothing stands on it
    assert (newest.is_certified, signed(newest)) == (False, "not certified")
    with pytest.raises(UserError, match="has no certificate here"):
        check_certified(newest)


def test_what_is_lost_of_it_is_named(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> tuple[str, str, str]:
        await grown(maker, is_packed=False)
        await thinned(maker.chain)
        end = await maker.chain.furthest.get(0)
        newest = await maker.chain.newest()
        last = await maker.chain.vertex(newest.parents[0])  # of its epoch, which is over
        assert end is not None
        assert last is not None
        return final_name(end.block_id), exec_name(last.parents[0]), exec_name(last.vertex_id)

    end_name, proof_name, last_name = trio.run(run)
    lit = verify(maker.chain_directory).light
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
    last_proof = maker.chain_directory / CERTIFICATES / last_name  # the epoch's end stands for it
    payload = last_proof.read_bytes()
    last_proof.unlink()
    report = verify(maker.chain_directory)
    assert (report.ok, report.light) == (True, lit + 1)
    last_proof.write_bytes(payload)
    vertex = sorted((maker.chain_directory / "vertices").iterdir())[0]
    payload = vertex.read_bytes()
    vertex.write_bytes(payload[:-1] + bytes([payload[-1] ^ 1]))
    assert f"vertices/{vertex.name}" in named(verify(maker.chain_directory))


def test_pages_of_light_epochs_reach_their_ends_and_scrubbing_misses_nothing(
    tmp_path: Path,
) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await grown(maker)
        path = await maker.chain.path_up(maker.genesis.id, 1000)
        assert path is not None
        await thinned(maker.chain)
        for chain in (maker.chain, await reopened(maker), await reopened(maker, knows=False)):
            newest, validators = maker.first, FACTS.validators()
            for block, above in pairwise((maker.genesis, *path)):
                page = await page_after(chain, block.id)
                assert page is not None
                results = [b for b in page.blocks if is_result(b)]
                assert len(page.vertices) == len(results)
                is_light = above.epoch < 4
                assert all((proof is None) == is_light for _, proof in page.vertices)
                assert not is_light or page.certificate.statement.domain.epoch == above.epoch
                if block == maker.genesis or block.height % EPOCH_ROUNDS == 0 and closes(block):
                    check_page(page, block, newest, validators)
                    newest = page.vertices[-1][0] if page.vertices else newest
                    if not is_light:
                        break
        scrub = Scrub(await reopened(maker), EventLog(lambda: 0))
        assert await scrub.once() == []
        end = await maker.chain.furthest.get(1)
        assert end is not None
        await maker.store.delete_record(CERTIFICATES, final_name(end.block_id))
        await maker.store.settle([CERTIFICATES])
        assert len(await scrub.once()) == 1

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def end_proved_from_above(maker: ChainMaker, rounds: int) -> None:
    """The second epoch's last round becomes final by the third epoch's first one alone."""
    await maker.open()
    last = 2 * EPOCH_ROUNDS
    while maker.round < rounds:
        made = await maker.make_round()
        if maker.round == last:
            above = await maker.make_round()
            headers = (*made.headers.blocks, *above.headers.blocks)
            proof = Headers(headers, (), above.headers.certificate)
            await publish(maker.chain, proof, made.certified, above.certified)
        else:
            await maker.publish(made)


def test_an_epoch_that_its_own_proof_does_not_end_stays_whole_and_can_be_followed(
    tmp_path: Path,
) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await end_proved_from_above(maker, ROUNDS)
        before = certificates_in(maker)
        assert await thinned(maker.chain) == 4
        proofs = before - certificates_in(maker)
        # all but one of the first epoch and of the fourth, and nothing of those between
        assert len(proofs) == 2 * (2 * EPOCH_ROUNDS - 1)
        tip, newest, validators = maker.genesis, maker.first, FACTS.validators()
        while tip.height < 4 * EPOCH_ROUNDS:
            page = await page_after(maker.chain, tip.id)
            assert page is not None
            check_page(page, tip, newest, validators)
            tip = [block for block in page.blocks if closes(block)][-1]
            newest = page.vertices[-1][0]
        assert await Scrub(maker.chain, EventLog(lambda: 0)).once() == []

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    report = verify(maker.chain_directory)
    assert report.ok, report.problems
    assert report.light == 2 * EPOCH_ROUNDS


def closes(block: Block) -> bool:
    return isinstance(block.payload, ResultPayload | AbortPayload)


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


def test_what_goes_while_it_is_read_is_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, told = ChainMaker(tmp_path), list[Event]()

    async def shown_late(chain: ChainStore, block_id: BlockId) -> Certificate | None:
        block = await chain.block(block_id)
        if block is not None and await chain.path.is_certified(block):
            await thinned(chain)
        return await shown_final(chain, block_id)

    async def run() -> None:
        await grown(maker)
        monkeypatch.setattr(scrub, "shown_final", shown_late)
        assert await Scrub(maker.chain, EventLog(lambda: 0, told.append)).once() == []

    monkeypatch.setattr(scrub, "BYTES_PER_S", 2**40)
    trio.run(run)
    assert [event["name"] for event in told] == ["chain_scrubbed"]
