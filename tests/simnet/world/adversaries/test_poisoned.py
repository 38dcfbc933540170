"""Poisoners and free riders in rounds that really learn: one of eight is averaged away.

The worker's own core trains and seals, the agreed outer step merges; no network lies in between.
Poisoners are in league and see every honest update that was sealed before theirs: of the round, or
of the one before for those who are first. What they offer passes the checks of every receiver.
"""

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
import torch

from daa_dag.ids import BlobRoot, Digest, NodeId, digest_of
from daa_node.seams import StateRef, TrainOrder
from daa_node.tensors import Float32Array, UInt8Array
from daa_node.training.config import TrainingJob
from daa_node.training.core import Core
from daa_node.training.datasets.examples import Examples
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import DIGIT_CLASSES
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.codec import codec_named, decode, encode
from daa_node.updates.grid import to_float32
from daa_node.updates.outer_step import (
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
)
from simnet.nodes.virtual.inline_trainer import shared_examples
from simnet.world.adversaries.lying_trainer import Mislabelled, Sight, poisoned_blob, whisper
from simnet.world.job import job_of
from simnet.world.scenario import Poison, Scenario

# Of seven and of eight nodes the trimmed mean holds off two. Loss of chance: ln 10 = 2.30 nats.
HARMLESS_NATS = 0.03
TWO_OF_SEVEN_NATS = 0.06
ROUNDS, STEPS = 10, 30
SCENARIO = Scenario.model_validate(
    {"name": "poisoned", "fidelity": "light", "work": {"kind": "training", "rounds": ROUNDS}}
)
POISONS: list[Poison] = [
    "sign_flip",
    "little",
    "inner_product",
    "noise",
    "label_flip",
    "zeros",
    "huge",
]
RIDES = "rides"  # in the place of a poison: offers what it has not trained


def training_job() -> TrainingJob:
    job = job_of(SCENARIO)
    return TrainingJob(
        model=job.model, data=job.data, inner=job.inner, updates=job.updates, seed=job.seed
    )


JOB = training_job()
CODEC = codec_named(JOB.updates.codec)
SIZE = JOB.model.parameter_count()


class Rounds:
    """`count` nodes of one job; those of `liars` offer something else."""

    def __init__(self, count: int, liars: Mapping[int, str]) -> None:
        self._liars = liars
        self._poisoners = sum(lie != RIDES for lie in liars.values())
        examples = shared_examples(JOB)
        self._cores = [self._core(examples, liars.get(node)) for node in range(count)]
        weights_D = genesis_weights(JOB.model, JOB.seed)
        self.state = OuterState(weights_D, np.zeros_like(weights_D))
        self._chance = np.random.default_rng(7)
        self._seen: list[Float32Array] = []  # honest updates of this round
        self._seen_before: list[Float32Array] = []

    def _core(self, examples: Examples, lie: str | None) -> Core:
        seen = Mislabelled(examples, DIGIT_CLASSES) if lie == "label_flip" else examples
        return Core(JOB, seen, torch.device("cpu"), lambda: 0.0)

    def walk(self, number: int) -> None:
        blobs = [self._offer(node, number) for node in range(len(self._cores))]
        contributions = [Contribution(blob, CODEC.name, 1) for blob in blobs]
        updates = JOB.updates
        out = OuterState(np.empty_like(self.state.weights_D), np.empty_like(self.state.momentum_D))
        aggregate_and_step(
            self.state,
            contributions,
            rule_named(updates.rule),
            updates.f_agg_among(len(blobs)),
            OuterRates(updates.outer_lr, updates.outer_momentum),
            out,
            updates.delta_format,
        )
        self.state = out
        self._seen_before, self._seen = self._seen, []

    def _offer(self, node: int, number: int) -> UInt8Array:
        lie = self._liars.get(node)
        if lie == RIDES:
            like_D = self._seen[-1] if self._seen else np.zeros(SIZE, np.float32)
            return encode(CODEC, whisper(like_D, self._chance))
        blob = self._cores[node].train_and_seal(_order(node, number), self.state.weights_D).blob
        own_D = to_float32(decode(CODEC, blob, 0, SIZE, SIZE))
        if lie is None:
            self._seen.append(own_D)
            return blob
        known = self._seen if len(self._seen) > 1 else self._seen_before or [own_D]
        sight = Sight(own_D, np.stack(known), self._poisoners, self._chance)
        poison: Poison = lie  # type: ignore[assignment]
        return poisoned_blob(poison, sight, CODEC)

    def loss_nats(self) -> float:
        return self._cores[-1].evaluate(self.state.weights_D)


def _order(node: int, number: int) -> TrainOrder:
    return TrainOrder(
        base=StateRef(BlobRoot(bytes(32)), BlobRoot(bytes(32))),
        seed=Digest(digest_of(b"round %d" % number)),
        round=number,
        author=NodeId(digest_of(b"node %d" % node)),
        steps_max=STEPS,
        stop_after_s=1e9,
        codec=CODEC.name,
        first_step=(number - 1) * STEPS,
        merged_round=number - 1,
    )


@cache
def trained(*liars: tuple[int, str], count: int = 8) -> tuple[float, Digest]:
    """Loss on held-out pictures after ten rounds, and the model's digest."""
    rounds = Rounds(count, dict(liars))
    for number in range(1, ROUNDS + 1):
        rounds.walk(number)
    return rounds.loss_nats(), digest_of(rounds.state.weights_D.data.cast("B"))


@pytest.mark.long
@pytest.mark.parametrize("poison", POISONS)
def test_one_poisoner_of_eight_changes_the_model_and_harms_nobody(poison: Poison) -> None:
    clean_nats, clean = trained()
    loss_nats, model = trained((0, poison))
    assert model != clean
    assert loss_nats < clean_nats + HARMLESS_NATS


@pytest.mark.long
@pytest.mark.parametrize("poison", POISONS)
def test_as_many_poisoners_of_seven_as_consensus_survives_harm_nobody(poison: Poison) -> None:
    loss_nats, _ = trained((0, poison), (1, poison), count=7)
    assert loss_nats < trained(count=7)[0] + TWO_OF_SEVEN_NATS


@pytest.mark.parametrize("poison", ["sign_flip", "huge"])
def test_three_of_eight_are_more_than_the_rule_was_told_of_and_ruin_the_model(
    poison: Poison,
) -> None:
    assert trained((0, poison), (1, poison), (2, poison))[0] > 10


def test_a_free_rider_is_carried_along() -> None:
    loss_nats, model = trained((3, RIDES))
    assert model != trained()[1]
    assert loss_nats < trained()[0] + HARMLESS_NATS
