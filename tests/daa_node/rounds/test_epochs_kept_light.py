"""A pruned node serves newcomers, and these serve others: each chain holds, read in any way."""

from pathlib import Path

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import Block
from daa_dag.ids import BlobRoot, NodeId
from daa_dag.retention import Retention
from daa_node.checkpoints import scrub, thinning
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.intake import carry_out, plan_intake
from daa_node.checkpoints.layout import KINDS, VERTICES
from daa_node.checkpoints.publish import Page
from daa_node.checkpoints.scrub import Scrub
from daa_node.checkpoints.thinning import thin
from daa_node.identity.validators import Validators
from daa_node.observability.events import EventLog
from tests.daa_node.checkpoints.little_chain import EPOCH_ROUNDS, FACTS, ChainMaker, make_chain
from tests.daa_node.checkpoints.verified import verify
from tests.daa_node.rounds.test_asking_holders import STRANGER, runner_among
from tests.daa_node.rounds.test_epochs import FarBehind, follow, shown

ROUNDS = 5 * EPOCH_ROUNDS + 1
LIGHT = 4  # epochs
POLICY = Retention(epochs_whole=1)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "EPOCHS_AT_ONCE", 2)
    monkeypatch.setattr(scrub, "BYTES_PER_S", 10**12)


@pytest.fixture
def pruned(tmp_path: Path) -> ChainMaker:
    maker = make_chain(tmp_path / "pruned", ROUNDS, aborted=[EPOCH_ROUNDS + 2])
    trio.run(thinned, maker.chain)
    return maker


async def thinned(chain: ChainStore) -> None:
    await chain.pack(KINDS, 1)
    lowest = chain.path.light_below
    while (above := await thin(chain, POLICY, lowest)) is not None:
        lowest = above
    assert chain.path.light_below == LIGHT


async def damaged(maker: ChainMaker) -> list[str]:
    """As a process that has just started reads it."""
    await maker.open()
    return await Scrub(maker.chain, EventLog(lambda: 0)).once()


async def joined(pruned: ChainMaker, directory: Path, asks_epochs: bool) -> ChainMaker:
    newcomer = ChainMaker(directory)
    around = ByEpochs(pruned, newcomer) if asks_epochs else ByPages(pruned, newcomer)
    _, catch_up = await runner_among(around, newcomer, lambda vertex: vertex.height < 12)
    await catch_up.follow_on()
    assert (await newcomer.chain.newest()).height == ROUNDS - 1
    newcomer.newest = await newcomer.chain.newest()
    assert not around.blamed
    return newcomer


class ByEpochs(FarBehind):
    """Either of two members has the deltas as well."""

    async def fetch_delta(self, root: BlobRoot, node: NodeId) -> None:
        await super().fetch_delta(root, STRANGER)


class ByPages(ByEpochs):
    """Who answers knows nothing of epochs."""

    def reachable(self) -> set[NodeId]:
        return {STRANGER}

    async def ask_epochs(self, node: NodeId, tip: Block, validators: Validators) -> list[Page]:
        return []


@pytest.mark.parametrize("asks_epochs", [True, False])
def test_who_joins_by_a_pruned_node_serves_the_next_and_its_chain_holds(
    pruned: ChainMaker, tmp_path: Path, asks_epochs: bool
) -> None:
    async def run() -> None:
        newcomer = await joined(pruned, tmp_path / "newcomer", asks_epochs)
        _, newest, _ = follow(newcomer, await shown(newcomer))
        assert newest.height >= 12
        await thinned(newcomer.chain)  # which has little to let go
        third = await joined(newcomer, tmp_path / "third", asks_epochs)
        assert third.newest == pruned.newest

    trio.run(run, clock=trio.testing.MockClock())  # nobody is late
    for name in ("newcomer", "third"):
        assert trio.run(damaged, ChainMaker(tmp_path / name)) == []
    for name in ("pruned", "newcomer", "third"):
        report = verify(tmp_path / name / "chain")  # in both ways
        assert report.ok, report.problems
        assert report.light >= LIGHT * EPOCH_ROUNDS - 1
        assert report.tip == pruned.newest.vertex_id


def test_a_pruned_chain_is_taken_over_and_shown_again(pruned: ChainMaker, tmp_path: Path) -> None:
    taker = ChainMaker(tmp_path / "taker")

    async def run() -> None:
        plan = plan_intake(ChainFiles(pruned.chain_directory), None, FACTS)
        await carry_out(plan, taker.store, taker.work)
        await taker.open()
        _, newest, _ = follow(taker, await shown(taker))
        assert newest.height >= 12
        assert await Scrub(taker.chain, EventLog(lambda: 0)).once() == []

    trio.run(run)
    assert verify(taker.chain_directory).ok


def test_an_epoch_of_which_a_vertex_is_not_here_is_shown_to_nobody(tmp_path: Path) -> None:
    maker = make_chain(tmp_path / "whole", 2 * EPOCH_ROUNDS + 1)

    async def run() -> None:
        assert len(await shown(maker)) == 2
        vertex_id = await maker.chain.heights.at(EPOCH_ROUNDS + 2)
        assert vertex_id is not None
        await maker.store.delete_record(VERTICES, vertex_id.hex())
        assert len(await shown(maker, None)) == 1

    trio.run(run)


def test_that_all_certificates_of_an_epoch_are_gone_is_noticed(tmp_path: Path) -> None:
    """A later proof of the same committee stands for the vertices, and for no trailing block."""
    maker = make_chain(tmp_path / "whole", 3 * EPOCH_ROUNDS + 1)

    async def names() -> set[str]:
        await maker.chain.look_up()
        found = {f"{b.hex()}.final" for b, _ in await maker.chain.path.of_epoch(1)}
        end = await maker.chain.furthest.get(1)
        assert end is not None
        ids = [await maker.chain.heights.at(EPOCH_ROUNDS + n) for n in (1, 2, 3)]
        return found | {f"{i.hex()}.exec" for i in ids if i} | {f"{end.block_id.hex()}.final"}

    for name in trio.run(names):
        (maker.chain_directory / "certificates" / name).unlink(missing_ok=True)
    problem, *more = verify(maker.chain_directory).problems
    assert "no finalization certificate covers this block" in problem.what  # what carried the end
    assert not more

    async def read_again() -> list[str]:
        return await Scrub(maker.chain, EventLog(lambda: 0)).once()

    assert trio.run(read_again)  # the daemon knew them
