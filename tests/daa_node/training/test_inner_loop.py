"""The inner optimiser against torch's own, and when it stops."""

from collections.abc import Callable
from math import cos, pi

import numpy as np
import pytest
import torch

from daa_dag.ids import Digest, NodeId
from daa_node.errors import TrainerFailed
from daa_node.training.batches import batch_indices, batch_plan
from daa_node.training.config import InnerConfig
from daa_node.training.datasets.digits import Digits
from daa_node.training.engine import OneDevice, Optimiser
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.inner_loop import (
    InnerLoop,
    StepLimits,
    Trained,
    learning_rate,
)
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.mlp import mlp_loss
from daa_node.training.models.parameters import FlatParameters
from daa_node.updates.grid import to_float32

CPU = torch.device("cpu")
MODEL = ModelConfig(kind="mlp", depth=1, width=16)
CONFIG = InnerConfig(lr=0.01, warmup_steps=3, total_steps=20, batch_size=8, grad_clip=0.5)
DIGITS = Digits(10, 1)
SEED, AUTHOR = Digest(b"s" * 32), NodeId(b"a" * 32)
BASE_D = to_float32(genesis_weights(MODEL, 1))


def loop(config: InnerConfig = CONFIG) -> InnerLoop:
    return InnerLoop(config, DIGITS, OneDevice(config, MODEL.tensors(), mlp_loss(MODEL), CPU))


def limits(
    steps_max: int,
    stop_after_s: float = 1e9,
    now_s: Callable[[], float] = lambda: 0.0,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> StepLimits:
    return StepLimits(steps_max, stop_after_s, 0.0, now_s, is_cancelled)


def optimiser() -> Optimiser:
    return Optimiser(BASE_D.size, CPU)


def train(
    inner: InnerLoop,
    bounds: StepLimits,
    memory: Optimiser | None = None,
    between: Callable[[int], None] = lambda _steps: None,
) -> Trained:
    plan = batch_plan(SEED, 1, AUTHOR, CONFIG.batch_size, DIGITS.train_count)
    return inner.train(BASE_D, plan, 0, bounds, memory or optimiser(), between)


def weights_after(steps: int, memory: Optimiser | None = None) -> bytes:
    return train(loop(), limits(steps), memory).values_D.tobytes()


def test_steps_are_those_of_torchs_adamw_with_clipping_and_schedule() -> None:
    trained = train(loop(), limits(12))
    parameters = FlatParameters(MODEL.tensors(), torch.device("cpu"))
    parameters.load(torch.from_numpy(BASE_D))
    views = list(parameters.views.values())
    twin = torch.optim.AdamW(
        views, betas=(CONFIG.beta1, CONFIG.beta2), weight_decay=CONFIG.weight_decay, fused=False
    )
    losses = []
    for step in range(12):
        batch = DIGITS.train(batch_indices(SEED, 1, AUTHOR, step, 8, DIGITS.train_count))
        twin.zero_grad(set_to_none=True)
        loss = mlp_loss(MODEL)(
            parameters.views, torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets)
        )
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(views, CONFIG.grad_clip)
        twin.param_groups[0]["lr"] = learning_rate(CONFIG, step)
        twin.step()
        losses.append(loss.item())
    np.testing.assert_allclose(trained.values_D, parameters.values_D.numpy(), atol=2e-6)
    assert trained.loss_nats == pytest.approx(np.mean(losses), rel=1e-5)
    assert (trained.steps, trained.tokens) == (12, 12 * 8)


def test_the_learning_rate_warms_up_then_follows_half_a_cosine() -> None:
    rates = [learning_rate(CONFIG, step) for step in range(40)]
    assert rates[0] == pytest.approx(0.01 / 3, rel=0.01)
    middle = 0.01 * (0.1 + 0.9 * 0.5 * (1 + cos(pi * 0.5)))
    assert rates[10] == pytest.approx(middle)
    assert rates[20] == rates[39] == pytest.approx(0.001)
    assert rates[3:21] == sorted(rates[3:21], reverse=True)


def test_it_stops_at_the_step_before_time_runs_out() -> None:
    clock = iter(range(1000))  # each look takes a second: one step, one second
    trained = train(loop(), limits(50, stop_after_s=6.0, now_s=lambda: float(next(clock))))
    assert trained.steps == 6  # a seventh would end at 7 s
    assert trained.us_per_step == 1_000_000


def test_one_step_is_taken_even_with_no_time_at_all() -> None:
    clock = iter(range(1000))
    trained = train(loop(), limits(50, stop_after_s=0.0, now_s=lambda: float(next(clock))))
    assert trained.steps == 1


def test_whoever_looks_on_between_two_steps_sees_the_weights_as_they_are() -> None:
    inner, seen = loop(), dict[int, bytes]()

    def look(steps: int) -> None:
        seen[steps] = inner.values().tobytes()

    train(inner, limits(4), between=look)
    assert seen == {steps: weights_after(steps) for steps in (1, 2, 3)}


def test_the_same_steps_give_the_same_bits() -> None:
    assert weights_after(6) == weights_after(6) != weights_after(5)


def test_moments_carry_over_from_round_to_round_and_through_a_copy() -> None:
    first, second, third = optimiser(), optimiser(), optimiser()
    fresh = weights_after(5, first)
    second.set_moments(first.moments())
    third.copy_from(first)
    again = weights_after(5, first)
    assert weights_after(5, second) == weights_after(5, third) == again != fresh
    assert first.moments().steps == second.moments().steps == third.moments().steps == 10
    first.forget()
    assert weights_after(5, first) == fresh


def test_cancelling_ends_at_the_next_step() -> None:
    looks = iter([False, False, True])
    with pytest.raises(TrainerFailed, match="cancelled after 3 inner steps"):
        train(loop(), limits(50, is_cancelled=lambda: next(looks)))
