"""An alarm is raised by a step that spoils the model, and by no honest one."""

from dataclasses import replace
from typing import cast

import pytest
import trio

from daa_dag.checkpoint import COUNT_MAX, Vertex
from daa_dag.ids import VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.heights import Heights
from daa_node.observability import events
from daa_node.observability.events import EventLog
from daa_node.rounds.history import (
    JUMP_FACTOR,
    JUMP_NATS,
    ROUNDS_LISTED_MAX,
    History,
    LossWatch,
)
from daa_node.seams import StateRef, Trainer
from tests.daa_node.agreement.memory_disk import work_store
from tests.daa_node.rounds.test_end import with_losses


class ShortChain:
    """Vertices one upon the other, each with what its contributors measured of the one below."""

    def __init__(self, *measured: tuple[int, ...]) -> None:
        self.heights = Heights(work_store(), self._height_of)
        self._vertices: dict[bytes, Vertex] = {}
        below: Vertex | None = None
        for height, micronats in enumerate(measured):
            parents = () if below is None else (below.vertex_id,)
            below = replace(with_losses(*micronats), height=height, parents=parents)
            self._vertices[below.vertex_id] = below
            trio.run(self.heights.add, below)
        assert below is not None
        self.newest = below
        self.proofs_read = 0

    async def _height_of(self, vertex_id: bytes) -> int | None:
        return self._vertices[vertex_id].height

    async def vertex(self, vertex_id: bytes) -> Vertex | None:
        return self._vertices.get(vertex_id)

    async def exec_certificate(self, vertex_id: bytes) -> None:
        self.proofs_read += 1


def recalled(*measured: tuple[int, ...]) -> History:
    """Of a node that has just read such a chain."""
    chain = cast(ChainStore, ShortChain(*measured))
    history = History(chain, cast(Trainer, None), EventLog(lambda: 0))
    trio.run(history.recall)
    return history


def test_a_jump_is_told_once_and_stays_until_the_loss_is_back() -> None:
    watch = LossWatch()
    assert [watch.look(loss) for loss in (5.6, 2.4, 2.6, 2.3)] == [False] * 4
    assert watch.alarm is None
    assert [watch.look(loss) for loss in (33.0, 40.0)] == [True, False]
    assert "held-out loss 40.000 nats, it was 2.300" in str(watch.alarm)
    assert not watch.look(2.4)
    assert watch.alarm is None
    assert watch.look(9.0)


def test_the_limit_is_a_factor_and_a_floor() -> None:
    for lowest in (0.001, 0.23, 2.3):
        limit = JUMP_FACTOR * lowest + JUMP_NATS
        for loss, jumped in ((limit - 1e-6, False), (limit + 1e-6, True)):
            watch = LossWatch()
            watch.look(lowest)
            assert watch.look(loss) is jumped


def test_a_loss_that_creeps_up_is_held_against_the_lowest() -> None:
    watch = LossWatch()
    assert [watch.look(loss) for loss in (1.0, 1.5, 2.2)] == [False, False, True]


def test_a_jump_is_written_to_the_log_once() -> None:
    class Measured:
        losses = iter((2.4, 33.0, 40.0))

        async def evaluate(self, _state: StateRef) -> float:
            return next(self.losses)

    log = EventLog(lambda: 0)
    history = History(cast(ChainStore, None), cast(Trainer, Measured()), log)

    async def measure() -> None:
        for height in range(3):
            await history.measure(cast(StateRef, None), height)

    trio.run(measure)
    told = [event for event in log.tail(9) if event["name"] == events.LOSS_JUMPED]
    assert [(event["height"], event["loss_nats"]) for event in told] == [(1, 33.0)]


def test_what_others_told_is_what_the_next_loss_is_held_against() -> None:
    history = History(cast(ChainStore, None), cast(Trainer, None), EventLog(lambda: 0))
    history.told(with_losses(2_000_000, 2_000_000, 2_400_000))
    assert history.loss_nats == 2.0
    assert history.loss_watch.look(3.2)
    history.told(with_losses(0, 0, 2_400_000))  # most could not measure
    assert history.loss_nats is None


def test_what_is_no_number_is_a_jump() -> None:
    for loss in (float("nan"), float("inf")):
        watch = LossWatch()
        assert watch.look(loss)
        assert watch.alarm is not None


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (None, 0),
        (2.4, 2_400_000),
        (-0.5, 0),
        (float("nan"), 0),
        (float("inf"), 0),
        (1e300, COUNT_MAX),
        (1e305, 0),
    ],
)
def test_a_spoilt_model_is_trained_on_with_a_loss_that_a_contribution_can_say(
    loss: float | None, said: int
) -> None:
    history = History(cast(ChainStore, None), cast(Trainer, None), EventLog(lambda: 0))
    history.loss_nats = loss
    assert history.loss_micronats == said


def test_who_comes_back_to_a_spoilt_model_is_warned() -> None:
    watch = LossWatch()
    watch.look_back([2.5, None, 2.3, float("nan")])
    assert watch.alarm is None
    assert watch.look(33.0)


@pytest.mark.parametrize(
    "told",
    [(0, 2_400_000), (0, 0, 2_400_000), (1, 2_400_000, 2_500_000), (0, 1, 2_400_000)],
    ids=["one measured nothing", "two measured nothing", "a liar", "a liar, and one with nothing"],
)
def test_no_minority_that_tells_of_a_low_loss_makes_every_later_one_a_jump(
    told: tuple[int, ...],
) -> None:
    history = recalled((), (2_500_000, 2_500_000, 2_500_000), told, (2_300_000,) * 3)
    assert not history.loss_watch.look(2.4)
    assert history.loss_watch.alarm is None
    assert history.loss_watch.look(33.0)


def test_of_a_long_chain_no_more_is_read_than_is_listed() -> None:
    chain = ShortChain(*[(1_000_000,)] * (ROUNDS_LISTED_MAX + 50))
    history = History(cast(ChainStore, chain), cast(Trainer, None), EventLog(lambda: 0))
    trio.run(history.recall)
    heights = [record.height for record in history.records]
    assert heights == list(range(50, ROUNDS_LISTED_MAX + 50))
    assert chain.proofs_read == ROUNDS_LISTED_MAX


def test_what_the_next_set_tells_stands_for_what_was_not_measured_here() -> None:
    history = recalled((), (2_500_000,) * 3)
    assert [record.loss_nats for record in history.records] == [2.5, None]
    below = history.records[-1]
    parents = (VertexId(bytes.fromhex(below.vertex_id)),)
    told = replace(with_losses(2_400_000, 2_400_000, 0), height=2, parents=parents)
    history.add(told, None)
    assert [record.loss_nats for record in history.records] == [2.5, 2.4, None]
    stranger = replace(with_losses(9_000_000, 9_000_000, 9_000_000), height=3, parents=parents)
    history.add(stranger, None)
    assert [record.loss_nats for record in history.records] == [2.5, 2.4, None, None]
