"""The inner optimiser: AdamW with clipping and a warmed-up cosine, on one worker's own batches.

DiLoCo (Douillard et al. 2023): H local steps from the shared weights; the two moments stay with the
worker from round to round, the weights are replaced by the agreed ones every time. Which moments
training goes on from is the caller's to say: see Optimiser.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import cos, pi

import torch

from daa_node.errors import TrainerFailed
from daa_node.tensors import Float32Array, Int64Array, TensorSpec
from daa_node.training.config import InnerConfig
from daa_node.training.datasets.examples import Examples
from daa_node.training.models.parameters import FlatParameters, LossFunction

ADAM_EPSILON = 1e-8
NORM_EPSILON = 1e-6  # a zero gradient must not divide by zero


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


@dataclass(frozen=True, slots=True)
class Moments:
    """First and second moment (D,) and how many steps are in them, on the CPU."""

    first_D: Float32Array
    second_D: Float32Array
    steps: int


class Optimiser:
    """AdamW's memory, on the device that trains."""

    def __init__(self, parameter_count: int, device: torch.device) -> None:
        self.first_D = torch.zeros(parameter_count, dtype=torch.float32, device=device)
        self.second_D = torch.zeros_like(self.first_D)
        self.steps = torch.zeros((), dtype=torch.float32, device=device)

    def moments(self) -> Moments:
        """Its own memory where that is the CPU's, good until it changes; else a copy."""
        first_D, second_D = self.first_D.cpu().numpy(), self.second_D.cpu().numpy()
        return Moments(first_D, second_D, int(self.steps.item()))

    def set_moments(self, moments: Moments) -> None:
        self.first_D.copy_(torch.from_numpy(moments.first_D))
        self.second_D.copy_(torch.from_numpy(moments.second_D))
        self.steps.fill_(moments.steps)

    def copy_from(self, other: "Optimiser") -> None:
        self.first_D.copy_(other.first_D)
        self.second_D.copy_(other.second_D)
        self.steps.copy_(other.steps)

    def forget(self) -> None:
        self.first_D.zero_()
        self.second_D.zero_()
        self.steps.zero_()


def learning_rate(config: InnerConfig, step: int) -> float:
    """The rate of the author's `step`-th inner step since the genesis: linear warm-up, cosine."""
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    progress = min(1.0, step / config.total_steps)
    low = config.lr_final_fraction
    return config.lr * warm * (low + (1 - low) * 0.5 * (1 + cos(pi * progress)))


class InnerLoop:
    """One worker's model on one device."""

    def __init__(
        self,
        config: InnerConfig,
        specs: tuple[TensorSpec, ...],
        loss: LossFunction,
        examples: Examples,
        device: torch.device,
    ) -> None:
        self._config = config
        self._loss = loss
        self._examples = examples
        self.device = device
        self._parameters = FlatParameters(specs, device)

    def train(
        self,
        base_D: Float32Array,
        batches: Iterator[Int64Array],
        first_step: int,
        limits: StepLimits,
        optimiser: Optimiser,
        between: Callable[[int], None] = lambda _steps: None,
    ) -> Trained:
        """Steps away from `base_D`. Raises TrainerFailed when cancelled.

        `first_step` is how many inner steps this author took before, for the learning rate.
        `between` hears how many steps are done, after each but the last.
        """
        self._parameters.load(torch.from_numpy(base_D))
        losses: list[torch.Tensor] = []
        loop_started_s = limits.now_s()
        while True:
            lr = learning_rate(self._config, first_step + len(losses))
            losses.append(self._step(next(batches), lr, optimiser))
            steps = len(losses)
            if self.device.type != "cpu":
                losses[-1].item()  # wait for the device, or the clock would see nothing
            now_s = limits.now_s()
            step_s = (now_s - loop_started_s) / steps
            if limits.is_cancelled():
                raise TrainerFailed(f"cancelled after {steps} inner steps")
            out_of_time = now_s - limits.started_s + step_s > limits.stop_after_s
            if steps >= limits.steps_max or out_of_time:
                break
            between(steps)
        loss_nats = float(torch.stack(losses).cpu().double().mean())
        tokens = steps * self._config.batch_size * self._examples.tokens_each
        return Trained(self.values(), steps, tokens, max(1, round(step_s * 1e6)), loss_nats)

    def _step(self, indices_B: Int64Array, lr: float, optimiser: Optimiser) -> torch.Tensor:
        parameters, config = self._parameters, self._config
        batch = self._examples.train(indices_B)
        inputs = torch.from_numpy(batch.inputs).to(self.device)
        targets = torch.from_numpy(batch.targets).to(self.device)
        parameters.gradient_D.zero_()
        loss = self._loss(parameters.views, inputs, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            norm = parameters.gradient_D.norm()
            parameters.gradient_D.mul_((config.grad_clip / (norm + NORM_EPSILON)).clamp(max=1.0))
            optimiser.steps += 1
            torch._fused_adamw_(
                [parameters.values_D],
                [parameters.gradient_D],
                [optimiser.first_D],
                [optimiser.second_D],
                [],
                [optimiser.steps],
                lr=lr,
                beta1=config.beta1,
                beta2=config.beta2,
                weight_decay=config.weight_decay,
                eps=ADAM_EPSILON,
                amsgrad=False,
                maximize=False,
            )
        return loss.detach()

    def values(self) -> Float32Array:
        """The weights as they are: the loop's own memory where that is the CPU's, else a copy."""
        return self._parameters.values_D.cpu().numpy()

    def load(self, values_D: Float32Array) -> None:
        """The weights that `heldout_loss` judges, until the next load or training."""
        self._parameters.load(torch.from_numpy(values_D))

    def heldout_loss(self, indices_B: Int64Array) -> float:
        """Mean loss in nats of the loaded weights on the given held-out examples."""
        batch = self._examples.heldout(indices_B)
        with torch.inference_mode():
            inputs = torch.from_numpy(batch.inputs).to(self.device)
            targets = torch.from_numpy(batch.targets).to(self.device)
            return float(self._loss(self._parameters.views, inputs, targets).item())
