"""What takes inner steps: the one device of a worker, or the several of a site.

    begin --step, step, ...--> gather: `values` and the optimiser say where the steps have led

Between two gathers they may lie elsewhere, in the shares of several processes.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from daa_node.tensors import Float32Array, TensorSpec
from daa_node.training.config import InnerConfig
from daa_node.training.datasets.examples import Batch
from daa_node.training.memory_files import MemoryFile
from daa_node.training.models.parameters import FlatParameters, LossFunction
from daa_node.updates.grid import Weights

ADAM_EPSILON = 1e-8
NORM_EPSILON = 1e-6  # a zero gradient must not divide by zero


@dataclass(frozen=True, slots=True)
class Moments:
    """First and second moment (D,) and how many steps are in them, on the CPU."""

    first_D: Float32Array
    second_D: Float32Array
    steps: int


class Optimiser:
    """AdamW's memory, on the device that trains."""

    def __init__(
        self, parameter_count: int, device: torch.device, room: MemoryFile | None = None
    ) -> None:
        """`room` is a mapped file that the moments lie in, if it is not the device's memory."""
        if room is None:
            self.first_D = torch.zeros(parameter_count, dtype=torch.float32, device=device)
            self.second_D = torch.zeros_like(self.first_D)
        else:
            self.first_D = torch.from_numpy(room.first_D)
            self.second_D = torch.from_numpy(room.second_D)
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


class Engine(Protocol):
    """A model on what trains it."""

    @property
    def device(self) -> torch.device:
        """Of whoever calls; the others of a site are like it."""

    @property
    def ranks(self) -> int:
        """How many devices share each step."""

    @property
    def memory_device(self) -> torch.device:
        """Where the optimisers lie that it goes on from."""

    def begin(self, base_D: Weights, optimiser: Optimiser) -> None:
        """Steps go on from these weights, and change this memory."""

    def step(self, batch: Batch, lr: float) -> Tensor:
        """The mean loss of the batch before the step, a scalar."""

    def gather(self) -> None:
        """Have `values` and the optimiser of `begin` tell where the steps have led."""

    def values(self) -> Float32Array:
        """The weights, as of the newest `load` or `gather`; good until the next."""

    def load(self, values_D: Weights) -> None:
        """The weights that `loss` judges."""

    def loss(self, batch: Batch) -> float:
        """The mean loss of the batch, in nats; no step is taken."""


def adamw(
    config: InnerConfig,
    lr: float,
    values: list[Tensor],
    gradients: list[Tensor],
    memory: tuple[list[Tensor], list[Tensor], list[Tensor]],  # first, second, steps
) -> None:
    """One step on clipped gradients, in place."""
    first, second, steps = memory
    torch._fused_adamw_(
        values,
        gradients,
        first,
        second,
        [],
        steps,
        lr=lr,
        beta1=config.beta1,
        beta2=config.beta2,
        weight_decay=config.weight_decay,
        eps=ADAM_EPSILON,
        amsgrad=False,
        maximize=False,
    )


class OneDevice:
    """An Engine: model, gradient and memory on one device."""

    ranks = 1

    def __init__(
        self,
        config: InnerConfig,
        specs: tuple[TensorSpec, ...],
        loss: LossFunction,
        device: torch.device,
    ) -> None:
        self._config = config
        self._loss = loss
        self.device = self.memory_device = device
        self._parameters = FlatParameters(specs, device)
        self._optimiser: Optimiser | None = None

    def begin(self, base_D: Weights, optimiser: Optimiser) -> None:
        self._parameters.load_pieces(base_D)
        self._optimiser = optimiser

    def step(self, batch: Batch, lr: float) -> Tensor:
        parameters, optimiser = self._parameters, self._optimiser
        assert optimiser is not None, "steps begin somewhere"
        parameters.gradient_D.zero_()
        loss = self._loss_of(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            norm = parameters.gradient_D.norm()
            clip = self._config.grad_clip
            parameters.gradient_D.mul_((clip / (norm + NORM_EPSILON)).clamp(max=1.0))
            optimiser.steps += 1
            memory = [optimiser.first_D], [optimiser.second_D], [optimiser.steps]
            values, gradients = [parameters.values_D], [parameters.gradient_D]
            adamw(self._config, lr, values, gradients, memory)
        if self.device.type != "cpu":
            loss.item()  # wait for the device, or the clock would see nothing
        return loss.detach()

    def gather(self) -> None:
        """They are where they are asked for."""

    def values(self) -> Float32Array:
        return self._parameters.values_D.cpu().numpy()

    def load(self, values_D: Weights) -> None:
        self._parameters.load_pieces(values_D)

    def loss(self, batch: Batch) -> float:
        with torch.inference_mode():
            return float(self._loss_of(batch).item())

    def _loss_of(self, batch: Batch) -> Tensor:
        inputs = torch.from_numpy(batch.inputs).to(self.device)
        targets = torch.from_numpy(batch.targets).to(self.device)
        return self._loss(self._parameters.views, inputs, targets)
