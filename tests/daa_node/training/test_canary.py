"""Steps that every node takes: how far a device comes out from canonical kernels."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from daa_node.errors import TrainerFailed
from daa_node.tensors import Float32Array
from daa_node.training.canary import take_canary
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.core import Core
from daa_node.training.data_config import DataConfig
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.engine import OneDevice
from daa_node.training.inner_loop import InnerLoop, Trained
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.byte_gpt import gpt_loss
from tests.daa_node.training.cheats import Stage

GPT = TrainingJob(
    model=ModelConfig(width=32, depth=1, context=16),
    inner=InnerConfig(lr=0.006, warmup_steps=5, total_steps=100, batch_size=4),
)
Meddle = Callable[[Float32Array], Float32Array]
DIGITS = DataConfig(kind="digits")
MLP = GPT.model_copy(update={"model": ModelConfig(kind="mlp", depth=1, width=32), "data": DIGITS})


def core_of(job: TrainingJob, directory: Path) -> Core:
    return Stage(job, directory, steps=4, segment_steps=1).core()


@pytest.mark.parametrize("job", [GPT, MLP])
def test_an_honest_device_is_near_the_kernels_and_comes_out_again(
    job: TrainingJob, tmp_path: Path
) -> None:
    core = core_of(job, tmp_path)
    taken = [core.canary(step) for step in range(3)]
    assert all(0 < step.distance < 5e-4 and step.repeats for step in taken)
    assert len({step.distance for step in taken}) == 3  # another step each
    assert taken == [core_of(job, tmp_path).canary(step) for step in range(3)]
    assert {step.device for step in taken} == {taken[0].device}
    assert taken[0].device.startswith("cpu ")
    assert ", torch 2." in taken[0].device


class Meddled:
    """An inner loop whose device does something to the weights where a training ends."""

    def __init__(self, job: TrainingJob, directory: Path, meddle: Meddle) -> None:
        self.examples = open_examples(job.data, job.model, directory)
        self.memory_device = torch.device("cpu")
        self._meddle = meddle
        model = job.model
        engine = OneDevice(job.inner, model.tensors(), gpt_loss(model), self.memory_device)
        self._inner = InnerLoop(job.inner, self.examples, engine)

    def train(self, *arguments: Any) -> Trained:
        trained = self._inner.train(*arguments)
        return replace(trained, values_D=self._meddle(trained.values_D))


def canary_of(job: TrainingJob, directory: Path, meddle: Meddle) -> tuple[float, bool]:
    loop = Meddled(job, directory, meddle)
    found, repeats = take_canary(job, loop.examples, cast(InnerLoop, loop), 1, lambda: False)
    return found.weights, repeats


def test_a_device_that_rounds_is_as_far_off(tmp_path: Path) -> None:
    def to_bf16(values_D: Float32Array) -> Float32Array:
        rounded: Float32Array = torch.from_numpy(values_D).to(torch.bfloat16).float().numpy()
        return rounded

    assert canary_of(GPT, tmp_path, lambda values_D: values_D)[0] < 5e-4
    distance, repeats = canary_of(GPT, tmp_path, to_bf16)
    assert distance > 1e-2
    assert repeats


def test_a_device_that_comes_out_otherwise_each_time_is_told(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)

    def unsteady(values_D: Float32Array) -> Float32Array:
        noise_D = chance.standard_normal(values_D.size, np.float32)
        return values_D + np.float32(1e-7) * noise_D

    assert not canary_of(GPT, tmp_path, unsteady)[1]


def test_it_leaves_no_trace_in_our_own_training(tmp_path: Path) -> None:
    stage = Stage(GPT, tmp_path, steps=4, segment_steps=1)
    alone, beside = stage.core(), stage.core()
    weights_D, order = stage.base_D(0), stage.order()
    beside.canary(2)
    expected = alone.train_and_seal(order, weights_D)
    assert beside.train_and_seal(order, weights_D).blob.tobytes() == expected.blob.tobytes()


def test_it_ends_when_cancelled(tmp_path: Path) -> None:
    with pytest.raises(TrainerFailed):
        core_of(GPT, tmp_path).canary(0, lambda: True)
