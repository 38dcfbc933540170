"""Catching up asks whoever claims to hold a checkpoint, last and once, and blames who lies."""

import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import Block
from daa_dag import canonical
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, NodeId, VertexId
from daa_dag.retention import Retention
from daa_node.agreement.wan_bft import WanBft
from daa_node.checkpoints.contents import ChainFacts
from daa_node.checkpoints.page_server import page_after
from daa_node.checkpoints.pages import decode_page, page_value
from daa_node.checkpoints.publish import Page, copy_blob
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.errors import NotHeld, PeerFault, TrainerFailed, Unavailable
from daa_node.identity.validators import Validators
from daa_node.network.requests import ANSWER_TIMEOUT_S
from daa_node.observability.events import EventLog
from daa_node.rounds.catch_up import PATIENCE_S, CatchUp
from daa_node.rounds.config import EndConfig, RoundsConfig
from daa_node.rounds.counted_writer import OnBytes
from daa_node.rounds.job_runner import JobRunner, RunnerParts
from daa_node.rounds.peers import Peers
from daa_node.rounds.plan import RoundRules
from daa_node.seams import Offload, StateRef, Trainer
from tests.daa_node.checkpoints.little_chain import (
    FACTS,
    KEYS,
    ChainMaker,
    Replays,
    make_chain,
    publish,
)
from tests.daa_node.contributors.nobody_known import nobody_known
from tests.daa_node.disputes.no_disputes import no_disputes
from tests.daa_node.spot_checks.no_checks import no_checks

MEMBER, LIAR, STRANGER, US = (NodeId(bytes([n]) * 32) for n in range(1, 5))
ROUNDS_AWAY = 8  # four pages or more: some end where an epoch does


async def nothing(*_: object) -> None: ...


class Replaying(Replays):
    async def evaluate(self, state: StateRef) -> float:
        raise TrainerFailed("nobody asks for the loss")


class Around:
    """Those whom a laggard can ask: only the stranger has what comes next."""

    def __init__(self, others: ChainMaker, laggard: ChainMaker, holders: list[NodeId]) -> None:
        self._others, self._laggard = others, laggard
        self.holders = holders
        self.asked: list[NodeId] = []
        self.wanted: list[list[VertexId]] = []
        self.blamed: list[NodeId] = []
        self.brought: dict[NodeId, Page] = {}  # by somebody, when no member was heard

    def reachable(self) -> set[NodeId]:
        return {MEMBER}

    async def find(self, vertex_ids: Sequence[VertexId]) -> list[NodeId]:
        self.wanted.append(list(vertex_ids))
        return self.holders

    async def ask_page(
        self, node: NodeId, tip: Block, validators: Validators | None = None
    ) -> Page | None:
        self.asked.append(node)
        if node == MEMBER:
            raise Unavailable("busy")
        if node == LIAR:
            raise PeerFault("malformed", "no page")
        page = await page_after(self._others.chain, tip.id)
        return decode_page(canonical.encode(page_value(page)), FACTS.limits)

    async def ask_epochs(self, node: NodeId, tip: Block, validators: Validators) -> list[Page]:
        raise Unavailable("nobody here answers 'epochs'")

    async def fetch_delta(self, root: BlobRoot, node: NodeId) -> None:
        assert node == STRANGER
        manifest = await self._others.store.blob_manifest("deltas", root)
        assert manifest is not None
        await copy_blob(self._others.store, "deltas", self._laggard.work, "updates", manifest)


class SlowAndSure(Around):
    """Two members with the whole chain; whoever is asked first by name takes all its time."""

    def __init__(
        self, others: ChainMaker, laggard: ChainMaker, clock: trio.testing.MockClock
    ) -> None:
        super().__init__(others, laggard, [])
        self._clock = clock

    def reachable(self) -> set[NodeId]:
        return {MEMBER, STRANGER}

    async def ask_page(
        self, node: NodeId, tip: Block, validators: Validators | None = None
    ) -> Page | None:
        self._clock.jump(ANSWER_TIMEOUT_S - 1.0 if node == MEMBER else 0.1)
        self.asked.append(node)
        page = await page_after(self._others.chain, tip.id)
        return decode_page(canonical.encode(page_value(page)), FACTS.limits)

    async def fetch_delta(self, root: BlobRoot, node: NodeId) -> None:
        await super().fetch_delta(root, STRANGER)


class Late(SlowAndSure):
    """Whoever is asked first by name answers as late as it may, the other one has none at first."""

    nays = 0

    async def ask_page(
        self, node: NodeId, tip: Block, validators: Validators | None = None
    ) -> Page | None:
        if node == MEMBER:
            self.asked.append(node)
            await trio.sleep(ANSWER_TIMEOUT_S - 1.0)
        elif self.nays:
            self.nays -= 1
            return None
        return await super().ask_page(STRANGER, tip)


class FarBehind(SlowAndSure):
    """Nobody keeps the deltas; what follows a member's page, the liar answers first, and forged."""

    def reachable(self) -> set[NodeId]:
        return {MEMBER, LIAR}

    async def ask_page(
        self, node: NodeId, tip: Block, validators: Validators | None = None
    ) -> Page | None:
        page = await page_after(self._others.chain, tip.id)
        is_first = tip.id == (await self._laggard.chain.resume_point()).id
        if node == MEMBER:
            self._clock.jump(1.0)
        elif is_first or page is None:
            return None
        else:
            page = replace(page, blocks=page.blocks[1:])
        return page

    async def fetch_delta(self, root: BlobRoot, node: NodeId) -> None:
        raise NotHeld("gone")

    async def fetch_state(
        self, root: BlobRoot, size_bytes: int, node: NodeId, on_bytes: OnBytes
    ) -> None:
        raise NotHeld("gone")


async def runner_among(
    around: Around,
    laggard: ChainMaker,
    is_far: Callable[[Vertex], bool] = lambda _newest: False,
    anchor: VertexId | None = None,
    facts: ChainFacts = FACTS,
    trainer: Replays | None = None,
    told_height: Callable[[], int] = lambda: 0,
) -> tuple[JobRunner, CatchUp]:
    await laggard.open()
    agreement = SimpleNamespace(
        me=US,
        validators=facts.validators(),
        outcomes=SimpleNamespace(resolution=lambda _round: None, resolved_round=0),
        published=nothing,
        caught_up=nothing,
    )
    log = EventLog(lambda: 0)
    parts = RunnerParts(
        laggard.chain,
        cast(Trainer, trainer or Replaying(laggard)),
        cast(WanBft, agreement),
        cast(Offload, None),
        log,
        cast(Peers, around),
        no_checks(),
        no_disputes(),
        nobody_known(),
        lambda node, _fault: around.blamed.append(node),
        lambda: 0,
        told_height,
        anchor,
    )
    snapshots = Snapshots(laggard.chain, 2, Retention(), log)
    newest, end = await laggard.chain.newest(), EndConfig(rounds=10**9)
    rules = cast(RoundRules, SimpleNamespace(rounds=RoundsConfig(), segment_steps=0))
    runner = JobRunner(parts, rules, end, snapshots, newest, 0)
    await runner.restore_state()
    return runner, CatchUp(runner, parts, lambda _tip: around.brought, around.find, is_far)


@pytest.fixture
def chains(tmp_path: Path) -> tuple[ChainMaker, ChainMaker]:
    """The others' chain, and that of a laggard two rounds behind."""
    others = copied(tmp_path)

    async def run() -> None:
        for _ in range(2):
            await others.publish(await others.make_round())

    trio.run(run)
    return others, ChainMaker(tmp_path / "laggard")


def catching_up(
    chains: tuple[ChainMaker, ChainMaker],
    holders: list[NodeId],
    then: Callable[[JobRunner, CatchUp, Around], Awaitable[None]],
) -> None:
    async def run() -> None:
        around = Around(*chains, holders)
        await then(*await runner_among(around, chains[1]), around)

    trio.run(run)


async def test_a_start_makes_the_snapshot_that_a_stop_cut_off_due_again(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path / "stopped")
    await maker.open()
    for _ in range(2):
        made = await maker.make_round()
        await publish(maker.chain, made.headers, made.certified, snapshot_every=1000)
    runner, _ = await runner_among(Around(maker, maker, []), maker)
    assert await maker.chain.snapshot(maker.newest) is None
    await runner.snapshots.store()
    assert await maker.chain.snapshot(maker.newest) is not None


def test_a_stranger_that_holds_the_chain_helps_when_no_member_does(
    chains: tuple[ChainMaker, ChainMaker],
) -> None:
    async def then(runner: JobRunner, catch_up: CatchUp, around: Around) -> None:
        stood = runner.newest.vertex_id
        await catch_up.follow_on()
        assert runner.newest == chains[0].newest
        assert around.asked == [MEMBER, LIAR, STRANGER]
        assert around.wanted == [[stood]]
        assert around.blamed == [LIAR]

    catching_up(chains, [MEMBER, LIAR, STRANGER], then)


def test_a_false_claim_costs_one_ask_and_the_course_stays_where_it_was(
    chains: tuple[ChainMaker, ChainMaker],
) -> None:
    async def then(runner: JobRunner, catch_up: CatchUp, around: Around) -> None:
        stood = runner.newest
        with pytest.raises(Unavailable, match="busy"):
            await catch_up.follow_on()
        assert around.asked == [MEMBER, LIAR]
        assert runner.newest == stood

    catching_up(chains, [LIAR], then)


def test_a_page_that_somebody_brought_is_followed_before_anybody_is_asked(
    chains: tuple[ChainMaker, ChainMaker],
) -> None:
    async def then(runner: JobRunner, catch_up: CatchUp, around: Around) -> None:
        page = await around.ask_page(STRANGER, await chains[1].chain.resume_point())
        assert page is not None
        around.asked.clear()
        around.brought = {LIAR: replace(page, vertices=page.vertices[1:]), STRANGER: page}
        await catch_up.follow_on()
        assert runner.newest == chains[0].newest
        assert around.asked == []
        assert around.blamed == [LIAR]

    catching_up(chains, [], then)


def copied(tmp_path: Path) -> ChainMaker:
    """A chain of one round, of which a laggard has a copy."""
    others = make_chain(tmp_path / "others", 1)
    shutil.copytree(others.directory, tmp_path / "laggard")
    return others


async def go_on(others: ChainMaker) -> None:
    while others.newest.height < 1 + ROUNDS_AWAY:
        await others.publish(await others.make_round())


def test_a_member_that_answers_as_late_as_it_may_leads_for_one_page(
    tmp_path: Path,
) -> None:
    """Rounds take less than its answers: behind it alone nobody would ever arrive."""
    others = copied(tmp_path)
    clock = trio.testing.MockClock()

    async def run() -> None:
        await go_on(others)
        around = SlowAndSure(others, ChainMaker(tmp_path / "laggard"), clock)
        runner, catch_up = await runner_among(around, around._laggard)
        while runner.newest != others.newest:
            await catch_up.follow_on()
        assert around.asked[0] == MEMBER
        assert around.asked[1:] == [STRANGER] * (len(around.asked) - 1)
        assert len(around.asked) >= 4

    trio.run(run, clock=clock)


@pytest.mark.parametrize("nays", [0, 2])
def test_who_lets_us_wait_for_a_page_is_not_waited_for_alone(nays: int, tmp_path: Path) -> None:
    """Nor while others have none yet: they are asked again meanwhile."""
    others = copied(tmp_path)
    clock = trio.testing.MockClock()

    async def run() -> None:
        await go_on(others)
        around = Late(others, ChainMaker(tmp_path / "laggard"), clock)
        around.nays = nays
        runner, catch_up = await runner_among(around, around._laggard)
        clock.autojump_threshold = 0.0
        began_s = trio.current_time()
        while runner.newest != others.newest:
            await catch_up.follow_on()
        assert trio.current_time() - began_s < (2 + 3 * bool(nays)) * PATIENCE_S
        assert around.asked.count(MEMBER) == 1 + bool(nays)

    trio.run(run, clock=clock)


class Elusive(SlowAndSure):
    """One member helps; `here` says who else is connected at each look, and lets us wait."""

    def __init__(
        self,
        others: ChainMaker,
        laggard: ChainMaker,
        clock: trio.testing.MockClock,
        here: Callable[[int], set[NodeId]],
    ) -> None:
        super().__init__(others, laggard, clock)
        self._here = here
        self._looks = 0

    def reachable(self) -> set[NodeId]:
        self._looks += 1
        return {HELPER, *self._here(self._looks)}

    async def ask_page(
        self, node: NodeId, tip: Block, validators: Validators | None = None
    ) -> Page | None:
        if node == HELPER:
            return await super().ask_page(node, tip, validators)
        self.asked.append(node)
        self._clock.jump(ANSWER_TIMEOUT_S)
        raise Unavailable("it has hung up")


HELPER, STALLER = (keys.node_id for keys in KEYS[:2])
ELUSIVE = {
    # A look finds it gone, the next one finds it back.
    "a member that comes and goes": lambda look: {STALLER} if look % 2 else set(),
    # A member sponsors one Join at a time, and whoever waits to join is written to as a member.
    "ever new ones that wait to join": lambda look: {NodeId(b"newcomer %023d" % look)},
}


@pytest.mark.parametrize("name", ELUSIVE)
def test_who_lets_us_wait_is_not_asked_again_for_having_been_away(
    name: str, tmp_path: Path
) -> None:
    others = copied(tmp_path)
    clock = trio.testing.MockClock()

    async def run() -> None:
        while others.newest.height < 1 + 2 * ROUNDS_AWAY:
            await others.publish(await others.make_round())
        around = Elusive(others, ChainMaker(tmp_path / "laggard"), clock, ELUSIVE[name])
        runner, catch_up = await runner_among(around, around._laggard)
        while runner.newest != others.newest:
            await catch_up.follow_on()
        assert around.asked.count(HELPER) >= 5
        assert len(around.asked) - around.asked.count(HELPER) <= 1

    trio.run(run, clock=clock)


def test_who_brought_the_first_page_is_not_blamed_for_the_next_one(tmp_path: Path) -> None:
    others = copied(tmp_path)
    clock = trio.testing.MockClock()

    async def run() -> None:
        await go_on(others)
        around = FarBehind(others, ChainMaker(tmp_path / "laggard"), clock)
        runner, catch_up = await runner_among(around, around._laggard)
        with pytest.raises(Unavailable, match="nobody reachable has the deltas"):
            await catch_up.follow_on()
        assert set(around.blamed) == {LIAR}
        assert runner.newest.height == 1

    trio.run(run, clock=clock)


def test_many_that_look_on_do_not_all_ask_the_same_member_first() -> None:
    members = {NodeId(bytes([n]) * 32) for n in range(20)}
    first: Counter[NodeId] = Counter()
    for number in range(480):
        parts = SimpleNamespace(
            peers=SimpleNamespace(reachable=lambda: members),
            agreement=SimpleNamespace(
                me=NodeId(number.to_bytes(32)), validators=FACTS.validators()
            ),
        )
        asks = CatchUp(cast(JobRunner, None), cast(RunnerParts, parts), lambda _tip: {}, nobody)
        first[asks._members()[0]] += 1
    assert first.keys() == members
    assert max(first.values()) < 3 * 480 / 20


async def nobody(_: object) -> list[NodeId]:
    return []


class BusyAndFree(Around):
    """Two members with the whole chain; whoever is asked first by name serves nobody."""

    def reachable(self) -> set[NodeId]:
        return {MEMBER, STRANGER}


def test_a_member_that_refuses_at_once_is_asked_once(tmp_path: Path) -> None:
    """Its refusal is quick: by time alone it would be asked first for every page."""
    others = copied(tmp_path)

    async def run() -> None:
        await go_on(others)
        around = BusyAndFree(others, ChainMaker(tmp_path / "laggard"), [])
        runner, catch_up = await runner_among(around, around._laggard)
        while runner.newest != others.newest:
            await catch_up.follow_on()
        assert around.asked[0] == MEMBER
        assert around.asked[1:] == [STRANGER] * (len(around.asked) - 1)
        assert len(around.asked) >= 4

    trio.run(run)
