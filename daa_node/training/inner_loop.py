"""The inner optimiser: AdamW with clipping and a warmed-up cosine, on one worker's own batches.

DiLoCo (Douillard et al. 2023): H local steps from the shared weights; the two moments stay with the
worker from round to round, the weights are replaced by the agreed ones every time. Which moments
training goes on from is the caller's to say; what takes a step is an Engine.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import cos, pi

import torch

from daa_node.errors import TrainerFailed
from daa_node.tensors import Float32Array, Int64Array
from daa_node.training.config import InnerConfig
from daa_node.training.datasets.examples import Examples
from daa_node.training.engine import Engine, Optimiser
from daa_node.training.steps_in_time import is_room_for_step
from daa_node.updates.grid import Weights


@dataclass(frozen=True, slots=True)
class StepLimits:
    """How far one round's training goes; whichever comes first, yet one step at least."""

    steps_max: int
    stop_after_s: float  # counted from `started_s` on the clock `now_s`
    started_s: float
    now_s: Callable[[], float]
    is_cancelled: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Trained:
    """What a round's inner steps made of the base weights."""

    values_D: Float32Array  # good until the loop trains or evaluates again
    steps: int
    tokens: int
    us_per_step: int
    loss_nats: float  # mean over the steps


def learning_rate(config: InnerConfig, step: int) -> float:
    """The rate of the author's `step`-th inner step since the genesis: linear warm-up, cosine."""
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    progress = min(1.0, step / config.total_steps)
    low = config.lr_final_fraction
    return config.lr * warm * (low + (1 - low) * 0.5 * (1 + cos(pi * progress)))


class InnerLoop:
    """One worker's model on what trains it."""

    def __init__(self, config: InnerConfig, examples: Examples, engine: Engine) -> None:
        self._config = config
        self._examples = examples
        self._engine = engine

    @property
    def memory_device(self) -> torch.device:
        """Of the optimisers that it goes on from."""
        return self._engine.memory_device

    def train(
        self,
        base_D: Weights,
        batches: Iterator[Int64Array],
        first_step: int,
        limits: StepLimits,
        optimiser: Optimiser,
        between: Callable[[int], None] = lambda _steps: None,
    ) -> Trained:
        """Steps away from `base_D`. Raises TrainerFailed when cancelled.

        `first_step` is how many inner steps this author took before, for the learning rate.
        `between` hears how many steps are done, after each but the last; for where they have led it
        asks `gather`.
        """
        engine = self._engine
        engine.begin(base_D, optimiser)
        losses: list[torch.Tensor] = []
        loop_started_s = limits.now_s()
        while True:
            lr = learning_rate(self._config, first_step + len(losses))
            losses.append(engine.step(self._examples.train(next(batches)), lr))
            steps = len(losses)
            now_s = limits.now_s()
            step_s = (now_s - loop_started_s) / steps
            if limits.is_cancelled():
                raise TrainerFailed(f"cancelled after {steps} inner steps")
            passed_s = now_s - limits.started_s
            if steps >= limits.steps_max or not is_room_for_step(
                passed_s, step_s, limits.stop_after_s
            ):
                break
            between(steps)
        engine.gather()
        loss_nats = float(torch.stack(losses).cpu().double().mean())
        tokens = steps * self._config.batch_size * self._examples.tokens_each
        return Trained(self.values(), steps, tokens, max(1, round(step_s * 1e6)), loss_nats)

    def resume(self, values_D: Float32Array, optimiser: Optimiser) -> None:
        """Steps go on from these weights, and change this memory: see `step_on`."""
        self._engine.begin(values_D, optimiser)

    def step_on(self, indices_B: Int64Array, step: int) -> float:
        """One step more from where the loop stands, the author's `step`-th; its loss in nats."""
        lr = learning_rate(self._config, step)
        return float(self._engine.step(self._examples.train(indices_B), lr).item())

    def gather(self) -> Float32Array:
        """The weights and, in the optimiser, the moments as they are in the middle of training."""
        self._engine.gather()
        return self.values()

    def values(self) -> Float32Array:
        """The weights as they are: the loop's own memory where that is the CPU's, else a copy."""
        return self._engine.values()

    def load(self, values_D: Weights) -> None:
        """The weights that `heldout_loss` judges, until the next load or training."""
        self._engine.load(values_D)

    def heldout_loss(self, indices_B: Int64Array) -> float:
        """Mean loss in nats of the loaded weights on the given held-out examples."""
        return self._engine.loss(self._examples.heldout(indices_B))
