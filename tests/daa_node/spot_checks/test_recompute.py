"""The canonical kernels against torch, closed forms, and what they must refuse."""

from dataclasses import replace
from math import cos, isinf, pi
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from daa_node.spot_checks import recompute
from daa_node.spot_checks.canonical import canonical_inner, canonical_model
from daa_node.spot_checks.recompute import Batch, NotFinite, State
from daa_node.tensors import Float32Array, Int64Array, parameter_count_of
from daa_node.training.config import InnerConfig
from daa_node.training.core import loss_of
from daa_node.training.datasets.examples import Batch as TrainingBatch
from daa_node.training.engine import Moments, OneDevice, Optimiser
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.inner_loop import InnerLoop, StepLimits, learning_rate
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.parameters import FlatParameters
from daa_node.updates.grid import to_float32

GRADIENT_OFF_MAX = 1e-5  # relative L2
STEP_OFF_MAX = 1e-4
ULP = 2.0**-23
GPT = ModelConfig(depth=2, width=32, heads=4, context=24)
MLP = ModelConfig(kind="mlp", depth=2, width=24)
CNN = ModelConfig(kind="cnn", depth=2, width=8, picture_side=7, picture_channels=3, classes=5)
MODELS = [
    GPT,
    ModelConfig(depth=1, width=8, heads=1, context=5),
    ModelConfig(depth=3, width=48, heads=6, context=33, vocabulary=300),
    MLP,
    ModelConfig(kind="mlp", depth=1, width=9),
    CNN,
    ModelConfig(kind="cnn", depth=3, width=8, picture_side=28),
]


def random_weights(config: ModelConfig, seed: int) -> Float32Array:
    """As the genesis makes them, and then noise: biases and a head of zeros would hide mistakes."""
    start_D = to_float32(genesis_weights(config, seed))
    noise_D = np.random.default_rng(seed).normal(scale=0.02, size=start_D.size)
    return start_D + noise_D.astype(np.float32)


def random_batch(config: ModelConfig, seed: int, size: int, tokens: int) -> Batch:
    rng = np.random.default_rng(seed)
    if config.kind != "byte_gpt":
        features = config.picture_channels * config.picture_side**2
        inputs = rng.normal(size=(size, features)).astype(np.float32)
        return Batch(inputs, rng.integers(0, config.classes, size))
    windows = rng.integers(0, config.vocabulary, (size, tokens + 1))
    return Batch(windows[:, :-1], windows[:, 1:])


def torch_gradient(
    config: ModelConfig, weights_D: Float32Array, batch: Batch
) -> tuple[float, Float32Array]:
    parameters = FlatParameters(config.tensors(), torch.device("cpu"))
    parameters.load(torch.from_numpy(weights_D))
    inputs, targets = torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets)
    loss = loss_of(config)(parameters.views, inputs, targets)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), parameters.gradient_D.numpy()


def relative_l2(a_D: Float32Array, b_D: Float32Array) -> float:
    off_D = a_D.astype(np.float64) - b_D
    return float(np.linalg.norm(off_D) / np.linalg.norm(b_D.astype(np.float64)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("config", MODELS, ids=lambda c: f"{c.kind}-{c.depth}-{c.width}")
@pytest.mark.parametrize("size", [1, 4])
def test_the_gradient_is_torchs(config: ModelConfig, seed: int, size: int) -> None:
    tokens = config.context - seed  # also windows shorter than the context
    weights_D = random_weights(config, seed)
    batch = random_batch(config, seed, size, tokens)
    loss, gradient_D = recompute.loss_and_gradient(
        canonical_model(config), weights_D, batch.inputs, batch.targets
    )
    expected_loss, expected_D = torch_gradient(config, weights_D, batch)
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    assert relative_l2(gradient_D, expected_D) < GRADIENT_OFF_MAX


class OneBatch:
    """Examples that are one batch, whatever is asked for."""

    train_count = heldout_count = tokens_each = 1

    def __init__(self, batch: Batch) -> None:
        self._batch = TrainingBatch(batch.inputs, batch.targets)

    def train(self, indices_B: Int64Array) -> TrainingBatch:
        return self._batch

    heldout = train


def torch_step(
    config: ModelConfig, inner: InnerConfig, state: State, batch: Batch, schedule_step: int
) -> State:
    """One step of the very loop that workers run."""
    examples = OneBatch(batch)
    engine = OneDevice(inner, config.tensors(), loss_of(config), torch.device("cpu"))
    loop = InnerLoop(inner, examples, engine)
    optimiser = Optimiser(state.weights_D.size, loop.memory_device)
    optimiser.set_moments(Moments(state.first_D, state.second_D, state.adam_steps))
    limits, batches = StepLimits(1, 1e9, 0.0, lambda: 0.0, lambda: False), [np.zeros(1, np.int64)]
    trained = loop.train(state.weights_D, iter(batches), schedule_step, limits, optimiser)
    after = optimiser.moments()
    return State(trained.values_D, after.first_D, after.second_D, after.steps)


def cold(config: ModelConfig) -> State:
    zeros_D = np.zeros(config.parameter_count(), np.float32)
    return State(random_weights(config, 1), zeros_D, zeros_D, 0)


@pytest.mark.parametrize("config", [GPT, MLP, CNN], ids=["byte_gpt", "mlp", "cnn"])
@pytest.mark.parametrize(
    "inner",
    [
        InnerConfig(),
        InnerConfig(lr=0.02, grad_clip=0.01, weight_decay=0.5, warmup_steps=0, total_steps=3),
        InnerConfig(weight_decay=0.0, grad_clip=1e6, beta1=0.0, beta2=0.999),
    ],
    ids=["default", "clipped", "free"],
)
def test_each_step_from_the_same_state_is_that_of_the_inner_loop(
    config: ModelConfig, inner: InnerConfig
) -> None:
    model, settings, state = canonical_model(config), canonical_inner(inner), cold(config)
    for number in range(5):  # from zero moments to warm ones
        batch = random_batch(config, number, 4, config.context)
        ours = recompute.step(model, settings, state, batch, 2 * number)
        theirs = torch_step(config, inner, state, batch, 2 * number)
        off = recompute.distance(ours.weights_D, theirs.weights_D, state.weights_D)
        assert off < STEP_OFF_MAX
        assert relative_l2(ours.first_D, theirs.first_D) < STEP_OFF_MAX
        assert relative_l2(ours.second_D, theirs.second_D) < STEP_OFF_MAX
        assert ours.adam_steps == theirs.adam_steps == number + 1
        state = theirs


@settings(max_examples=12, deadline=None)
@given(
    depth=st.integers(1, 2),
    heads=st.integers(1, 3),
    head_size=st.integers(8, 17),
    tokens=st.integers(1, 20),
    size=st.integers(1, 3),
    seed=st.integers(0, 2**31),
)
def test_any_shape_of_gpt_has_torchs_gradient(
    depth: int, heads: int, head_size: int, tokens: int, size: int, seed: int
) -> None:
    config = ModelConfig(depth=depth, width=heads * head_size, heads=heads, context=20)
    weights_D, batch = random_weights(config, seed), random_batch(config, seed, size, tokens)
    _, gradient_D = recompute.loss_and_gradient(
        canonical_model(config), weights_D, batch.inputs, batch.targets
    )
    assert relative_l2(gradient_D, torch_gradient(config, weights_D, batch)[1]) < GRADIENT_OFF_MAX


def test_powers_and_logarithms_are_right_to_two_units_in_the_last_place() -> None:
    x = np.concatenate([-np.logspace(-12, np.log10(87), 100_000), [0, -87]]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(recompute.exp(x) / exact - 1).max() < 2 * ULP
    beneath = np.array([-87.0001, -1e30, -np.inf], np.float32)
    assert recompute.exp(beneath).tolist() == [0, 0, 0]
    y = np.concatenate([1 + np.logspace(-7, 0, 50_000), np.logspace(0, 38, 50_000), [1]])
    y = y.astype(np.float32)
    exact, found = np.log(y.astype(np.float64)), recompute.log(y)
    assert np.abs(found - exact).max() < 2 * ULP * max(1, exact.max())
    assert (np.abs(found - exact) <= 2 * ULP * exact).all()


def test_sums_fold_the_second_half_onto_the_first() -> None:
    x = np.array([[1e8, 3, 5, -1e8, 0.5]], np.float32)
    first = np.float32(np.float32(1e8) + np.float32(-1e8)) + np.float32(5)
    assert recompute.fold_sum(x).tolist() == [first + np.float32(3.5)]
    assert x[0, 0] == np.float32(1e8)  # its argument stays as it is


def test_the_learning_rate_is_that_of_the_inner_loop() -> None:
    for inner in (InnerConfig(), InnerConfig(lr=1, warmup_steps=0, total_steps=777)):
        for step in range(900):
            ours = recompute.learning_rate(canonical_inner(inner), step)
            assert ours == pytest.approx(learning_rate(inner, step), rel=1e-12, abs=0)
    grid = [i / 9973 for i in range(9974)]
    assert max(abs(recompute.half_turn_cosine(x) - cos(pi * x)) for x in grid) < 1e-15


def test_numbers_that_are_not_finite_are_refused() -> None:
    model, state = canonical_model(MLP), cold(MLP)
    inner, batch = canonical_inner(InnerConfig()), random_batch(MLP, 0, 4, 0)
    for bad in (np.nan, np.inf, -np.inf):
        broken_D = state.weights_D.copy()
        broken_D[7] = bad
        for wrong in (
            replace(state, weights_D=broken_D),
            replace(state, first_D=broken_D),
            replace(state, second_D=broken_D),
        ):
            with pytest.raises(NotFinite):
                recompute.step(model, inner, wrong, batch, 0)
        with pytest.raises(NotFinite):
            recompute.distance(state.weights_D, broken_D, state.weights_D)
        pictures = batch.inputs.copy()
        pictures[0, 0] = bad
        with pytest.raises(NotFinite):
            recompute.step(model, inner, state, Batch(pictures, batch.targets), 0)


def test_a_result_that_is_not_finite_is_refused_without_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    for config, tensors in ((MLP, len(MLP.tensors())), (GPT, 2)):  # of the GPT the last block's MLP
        state, batch = cold(config), random_batch(config, 0, 4, 8)
        huge_D = state.weights_D.copy()
        huge_D[-parameter_count_of(config.tensors()[-tensors:]) :] *= np.float32(1e30)
        model, inner = canonical_model(config), canonical_inner(InnerConfig())
        with pytest.raises(NotFinite):
            recompute.step(model, inner, replace(state, weights_D=huge_D), batch, 0)
    assert not recwarn.list


def test_a_batch_or_vector_that_does_not_fit_is_refused() -> None:
    model, weights_D = canonical_model(GPT), random_weights(GPT, 1)
    good = random_batch(GPT, 1, 2, 8)
    high, low = good.inputs.copy(), good.targets.copy()
    high[1, 3], low[0, 0] = 256, -1
    long = random_batch(GPT, 1, 2, GPT.context + 1)
    wrongs: tuple[tuple[Any, Any, Any], ...] = (
        (weights_D[1:], good.inputs, good.targets),
        (weights_D.astype(np.float64), good.inputs, good.targets),
        (weights_D, high, good.targets),
        (weights_D, good.inputs, low),
        (weights_D, good.inputs.astype(np.float32), good.targets),
        (weights_D, good.inputs, good.targets[:1]),
        (weights_D, long.inputs, long.targets),
    )
    for wrong_D, inputs, targets in wrongs:
        with pytest.raises(ValueError, match="not fp32|integers below|tokens a window"):
            recompute.loss_and_gradient(model, wrong_D, inputs, targets)


def test_a_thread_that_flushes_subnormals_is_refused() -> None:
    weights_D, batch = random_weights(MLP, 0), random_batch(MLP, 0, 2, 0)
    assert torch.set_flush_denormal(True)
    try:
        with pytest.raises(ArithmeticError, match="subnormal"):
            recompute.loss_and_gradient(
                canonical_model(MLP), weights_D, batch.inputs, batch.targets
            )
    finally:
        torch.set_flush_denormal(False)


def test_the_distance_is_what_is_off_over_the_way_that_was_claimed() -> None:
    start_D, claimed_D = np.zeros(4, np.float32), np.array([3, 0, 4, 0], np.float32)
    outcome_D = claimed_D + np.array([0, 0, 0, 0.5], np.float32)
    assert recompute.distance(outcome_D, claimed_D, start_D) == 0.1
    assert recompute.distance(start_D, start_D, start_D) == 0
    assert isinf(recompute.distance(claimed_D, start_D, start_D))
