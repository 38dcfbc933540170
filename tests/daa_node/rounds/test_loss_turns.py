"""A node looks at its loss when nothing is to be followed, and never so that it stays behind."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from daa_node.rounds.loss_turns import REST, SETTLE_S, LossTurns
from daa_node.seams import StateRef
from tests.daa_node.checkpoints.little_chain import ChainMaker, Replays, make_chain
from tests.daa_node.rounds.test_asking_holders import SlowAndSure, copied, go_on, runner_among

LOOK_S = 20.0
OWN_NATS, TOLD_NATS = 1.25, 3.0


async def test_who_starts_sees_to_its_first_contribution_before_it_looks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns, patient = LossTurns(), LossTurns()
    assert not turns.may_look(is_behind=False)
    turns.contributed()
    assert turns.may_look(is_behind=False)
    assert not turns.may_look(is_behind=True)
    await trio.sleep(SETTLE_S - 0.01)
    assert not patient.may_look(is_behind=False)
    await trio.sleep(0.01)
    assert patient.may_look(is_behind=False)


async def test_who_is_left_behind_by_looking_rests(autojump_clock: trio.testing.MockClock) -> None:
    turns = LossTurns()
    turns.contributed()
    turns.looked(LOOK_S, is_behind=False)
    assert turns.may_look(is_behind=False)
    turns.looked(LOOK_S, is_behind=True)
    turns.contributed()
    await trio.sleep(REST * LOOK_S - 0.01)
    assert not turns.may_look(is_behind=False)
    await trio.sleep(0.01)
    assert turns.may_look(is_behind=False)


class Looking(Replays):
    """Notes what it is asked to evaluate, and takes its time."""

    def __init__(self, laggard: ChainMaker) -> None:
        super().__init__(laggard)
        self.looked_at: list[StateRef] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def evaluate(self, state: StateRef) -> float:
        self.looked_at.append(state)
        await trio.sleep(LOOK_S)
        self.meanwhile()
        return OWN_NATS


class Scene:
    """A laggard, ROUNDS_AWAY rounds behind, at work since the others said so."""

    def __init__(self, others: ChainMaker, directory: Path, clock: trio.testing.MockClock) -> None:
        self.others, self.laggard = others, ChainMaker(directory)
        self.trainer = Looking(self.laggard)
        self._around = SlowAndSure(others, self.laggard, clock)
        self.gone_on_by = 0  # what they tell besides

    async def begin(self) -> None:
        await go_on(self.others)
        self.runner, self._catch_up = await runner_among(
            self._around,
            self.laggard,
            trainer=self.trainer,
            told_height=lambda: self.others.newest.height + self.gone_on_by,
        )

    async def be_level(self) -> None:
        while self.runner.newest != self.others.newest:
            await self._catch_up.follow_on()

    async def one_more(self) -> None:
        await self.others.publish(await self.others.make_round())
        await self.be_level()


def played(others: ChainMaker, directory: Path, play: Callable[[Scene], Awaitable[None]]) -> None:
    clock = trio.testing.MockClock(autojump_threshold=0)

    async def run() -> None:
        scene = Scene(others, directory, clock)
        await scene.begin()
        await play(scene)

    trio.run(run, clock=clock)


@pytest.mark.parametrize("heads_come", [True, False])
def test_nothing_is_looked_at_while_there_is_more_to_follow(
    heads_come: bool, tmp_path: Path
) -> None:
    async def play(scene: Scene) -> None:
        runner, looked_at = scene.runner, scene.trainer.looked_at
        if not heads_come:  # what is final is seen before anybody tells a head
            scene.gone_on_by = -scene.others.newest.height
            outcomes = cast(SimpleNamespace, runner._parts.agreement.outcomes)
            outcomes.resolved_round = scene.others.round
        assert looked_at == [runner.state]  # as it starts
        await trio.sleep(SETTLE_S)
        await scene.be_level()
        assert looked_at[1:] == [runner.state]
        assert runner.history.loss_nats == OWN_NATS
        assert runner.history.loss_micronats == OWN_NATS * 1e6

    played(copied(tmp_path), tmp_path / "laggard", play)


def test_a_newcomer_looks_at_nothing_before_it_has_had_time_to_contribute(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        began_s = trio.current_time()
        await scene.be_level()
        assert scene.trainer.looked_at == []
        assert scene.runner.history.loss_micronats == 0  # it says that it has not measured
        await trio.sleep(began_s + SETTLE_S - trio.current_time())
        await scene.one_more()
        assert scene.trainer.looked_at == [scene.runner.state]

    played(make_chain(tmp_path / "others", 0), tmp_path / "newcomer", play)


def test_of_what_was_passed_over_the_sets_above_tell_the_loss(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.be_level()
        *below, newest = scene.runner.history.records
        assert {record.loss_nats for record in below} == {TOLD_NATS}
        assert newest.loss_nats is None  # no set lies above it

    played(copied(tmp_path), tmp_path / "laggard", play)


def test_a_page_of_an_aborted_round_alone_has_no_loss_to_look_at(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await trio.sleep(SETTLE_S)
        await scene.be_level()
        looks = len(scene.trainer.looked_at)
        await scene.others.publish(await scene.others.make_round(abort=True))
        await scene._catch_up.follow_on()
        assert scene.runner.round == scene.others.round
        assert len(scene.trainer.looked_at) == looks

    played(copied(tmp_path), tmp_path / "laggard", play)


def test_who_stays_behind_by_looking_follows_first_and_looks_later(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        looked_at = scene.trainer.looked_at
        await trio.sleep(SETTLE_S)
        scene.trainer.meanwhile = lambda: setattr(scene, "gone_on_by", 1)
        await scene.be_level()
        assert len(looked_at) == 2
        scene.gone_on_by = 0
        await scene.one_more()
        assert len(looked_at) == 2
        await trio.sleep(REST * LOOK_S)
        await scene.one_more()
        assert looked_at[2:] == [scene.runner.state]

    played(copied(tmp_path), tmp_path / "laggard", play)
