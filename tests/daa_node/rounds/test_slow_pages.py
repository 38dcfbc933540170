"""Pages that take long all come: few copies share a link, and no liar ends what is under way."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import Block
from daa_dag.ids import BlobRoot, NodeId, VertexId
from daa_node.checkpoints.publish import Page, copy_blob
from daa_node.errors import NotHeld, Unavailable, UserError
from daa_node.identity.validators import Validators
from daa_node.network.requests import ANSWER_TIMEOUT_S
from daa_node.rounds.catch_up import PATIENCE_S, CatchUp
from daa_node.rounds.counted_writer import OnBytes
from daa_node.rounds.job_runner import JobRunner
from tests.daa_node.checkpoints.little_chain import ChainMaker, make_chain
from tests.daa_node.rounds.test_asking_holders import (
    LIAR,
    MEMBER,
    ROUNDS_AWAY,
    STRANGER,
    Around,
    runner_among,
)

STEP_S = 0.5


class Slow(Around):
    """All have the whole chain, and send it over one link of the laggard's."""

    page_s = 10.0  # a page alone
    members: frozenset[NodeId] = frozenset({MEMBER, LIAR, STRANGER})
    under_way = 0
    loaded_s = 0.0
    pages = 0

    def reachable(self) -> set[NodeId]:
        return set(self.members)

    async def ask_page(
        self, node: NodeId, tip: Block, validators: Validators | None = None
    ) -> Page | None:
        self.asked.append(node)
        self.under_way += 1
        loaded_s = 0.0
        try:
            with trio.fail_after(ANSWER_TIMEOUT_S):
                while loaded_s < self.page_s:
                    await trio.sleep(STEP_S)
                    loaded_s += STEP_S / self.under_way
        except trio.TooSlowError:
            raise Unavailable("no answer") from None
        finally:
            self.under_way -= 1
            self.loaded_s += loaded_s
        return await self.page_after(tip)

    async def page_after(self, tip: Block) -> Page | None:
        self.pages += 1
        return await super().ask_page(STRANGER, tip)

    async def fetch_delta(self, root: BlobRoot, node: NodeId) -> None:
        await super().fetch_delta(root, STRANGER)


class FarAway(Slow):
    """Nobody keeps deltas, and only the newest state; what one answers is not in another's way."""

    async def ask_page(
        self, node: NodeId, tip: Block, validators: Validators | None = None
    ) -> Page | None:
        self.asked.append(node)
        if node == LIAR:
            return None
        await trio.sleep(self.page_s)
        return await self.page_after(tip)

    async def fetch_delta(self, root: BlobRoot, node: NodeId) -> None:
        raise NotHeld("gone")

    async def fetch_state(
        self, root: BlobRoot, size_bytes: int, node: NodeId, on_bytes: OnBytes
    ) -> None:
        newest, states = self._others.newest, "states"
        manifest = await self._others.work.blob_manifest(states, root)
        if manifest is None or root not in (newest.model_root, newest.outer_state_root):
            raise NotHeld("gone")
        await copy_blob(self._others.work, states, self._laggard.work, states, manifest)
        on_bytes(size_bytes)


class NothingMore(FarAway):
    """Who brought the first page says at once that it was the last, and others say nothing."""

    async def ask_page(
        self, node: NodeId, tip: Block, validators: Validators | None = None
    ) -> Page | None:
        if node != MEMBER:
            await trio.sleep(ANSWER_TIMEOUT_S)
            raise Unavailable("no answer")
        return await self.page_after(tip)


class Twins(Around):
    """Both bring a page at the same moment; what is followed first lacks its deltas."""

    refused: NodeId | None = None

    def reachable(self) -> set[NodeId]:
        return {MEMBER, STRANGER}

    async def ask_page(
        self, node: NodeId, tip: Block, validators: Validators | None = None
    ) -> Page | None:
        await trio.sleep_until(2 * PATIENCE_S)
        return await super().ask_page(STRANGER, tip)

    async def fetch_delta(self, root: BlobRoot, node: NodeId) -> None:
        self.refused = self.refused or node
        if node == self.refused:
            raise Unavailable("busy")
        await super().fetch_delta(root, STRANGER)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> ChainMaker:
    return make_chain(tmp_path_factory.mktemp("chains") / "others", 2 + ROUNDS_AWAY)


@pytest.fixture
def laggard(tmp_path: Path) -> ChainMaker:
    make_chain(tmp_path / "laggard", 1)
    return ChainMaker(tmp_path / "laggard")


def catching_up(around: Around, then: Callable[[JobRunner, CatchUp], Awaitable[None]]) -> float:
    """How long it took."""
    clock = trio.testing.MockClock()

    async def run() -> float:
        runner, catch_up = await runner_among(around, around._laggard)
        clock.autojump_threshold = 0.0
        began_s = trio.current_time()
        await then(runner, catch_up)
        return trio.current_time() - began_s

    return trio.run(run, clock=clock)


async def until_there(around: Around, runner: JobRunner, catch_up: CatchUp) -> None:
    while runner.newest != around._others.newest:
        assert trio.current_time() < 600.0
        try:
            await catch_up.follow_on()
        except Unavailable:
            await trio.sleep(1.0)


@pytest.mark.parametrize("count", [3, 20])
@pytest.mark.parametrize("page_s", [6.0, 16.0, 25.0])
def test_few_copies_of_a_page_share_a_narrow_link(
    page_s: float, count: int, others: ChainMaker, laggard: ChainMaker
) -> None:
    around = Slow(others, laggard, [])
    around.page_s = page_s
    around.members = frozenset(NodeId(bytes([n]) * 32) for n in range(10, 10 + count))
    took_s = catching_up(around, partial(until_there, around))
    alone_s = 6 * page_s
    assert around.pages == 6
    assert took_s < 1.7 * alone_s
    assert around.loaded_s < 1.7 * alone_s


@pytest.mark.parametrize("page_s", [2.0, 10.0, 20.0])
def test_who_says_that_there_is_no_more_keeps_nobody_from_slow_pages(
    page_s: float, others: ChainMaker, laggard: ChainMaker
) -> None:
    around = FarAway(others, laggard, [])
    around.page_s = page_s
    took_s = catching_up(around, partial(until_there, around))
    assert took_s < 1.5 * 6 * page_s


def test_one_that_says_that_there_is_no_more_is_enough_to_fetch_a_state(
    others: ChainMaker, laggard: ChainMaker
) -> None:
    around = NothingMore(others, laggard, [])
    assert catching_up(around, partial(until_there, around)) < 3 * PATIENCE_S


def test_a_page_that_came_with_another_one_is_followed_when_that_one_cannot_be(
    others: ChainMaker, laggard: ChainMaker
) -> None:
    around = Twins(others, laggard, [])

    async def then(runner: JobRunner, catch_up: CatchUp) -> None:
        await catch_up.follow_on()
        assert runner.newest.height > 1
        assert around.refused is not None

    catching_up(around, then)


class Whole(FarAway):
    """Deltas are kept as well, and somebody counts how many are asked for."""

    deltas = 0
    lacks_states = False

    async def fetch_delta(self, root: BlobRoot, node: NodeId) -> None:
        self.deltas += 1
        await Slow.fetch_delta(self, root, node)

    async def fetch_state(
        self, root: BlobRoot, size_bytes: int, node: NodeId, on_bytes: OnBytes
    ) -> None:
        if self.lacks_states:
            raise NotHeld("gone")
        await super().fetch_state(root, size_bytes, node, on_bytes)


def test_who_needs_no_old_deltas_takes_the_newest_state_and_none_of_them(
    others: ChainMaker, laggard: ChainMaker
) -> None:
    around = Whole(others, laggard, [])
    around.page_s = 0.1

    async def run() -> None:
        runner, catch_up = await runner_among(around, laggard, is_far=lambda _newest: True)
        await catch_up.follow_on()
        assert runner.newest == others.newest
        assert around.deltas == 0

    trio.run(run)


def test_where_no_state_is_to_be_had_deltas_lead_on(
    others: ChainMaker, laggard: ChainMaker
) -> None:
    around = Whole(others, laggard, [])
    around.page_s, around.lacks_states = 0.1, True

    async def run() -> None:
        runner, catch_up = await runner_among(around, laggard, is_far=lambda _newest: True)
        await catch_up.follow_on()
        assert runner.newest.height > 1
        assert around.deltas > 0

    trio.run(run)


async def test_no_round_is_walked_on_a_past_without_the_trusted_vertex(
    others: ChainMaker, laggard: ChainMaker
) -> None:
    anchor = VertexId(b"?" * 32)
    runner, _ = await runner_among(Around(others, laggard, []), laggard, anchor=anchor)
    with pytest.raises(UserError, match="This node takes part in nothing"):
        await runner.run_round(None, lambda *_: None)
