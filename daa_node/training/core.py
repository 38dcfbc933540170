"""What a worker does with numbers: train and seal, and the held-out loss.

Arrays in, arrays out; it opens no blob and knows no process, so that a simulation calls it inline
with its own clock. Merging updates needs none of this: see updates.outer_step.

Error feedback across rounds: the residual that a sealed update leaves takes effect only when a
later order says that the update was merged (`merged_round`). An update that was not merged is
dropped whole and the residual from before it stays. Sending the lost pseudo-gradient again would
add a step from stale weights at double length, which a robust rule rightly takes for an outlier.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from daa_node.errors import PeerFault, TrainerFailed, UserError
from daa_node.seams import TrainOrder
from daa_node.tensors import Int32Array, UInt8Array
from daa_node.training.batches import batch_plan
from daa_node.training.config import ModelConfig, TrainingJob
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.examples import Examples
from daa_node.training.evaluation import mean_loss
from daa_node.training.inner_loop import InnerLoop, Moments, StepLimits, Trained
from daa_node.training.inner_state import InnerState
from daa_node.training.models.byte_gpt import gpt_loss
from daa_node.training.models.mlp import mlp_loss
from daa_node.training.models.parameters import LossFunction
from daa_node.updates.compression.codec import codec_named
from daa_node.updates.grid import to_float32
from daa_node.updates.pipeline import seal

NO_ROUND = -1


@dataclass(frozen=True, slots=True)
class SealedTraining:
    """One round's work: the blob to offer and what was measured on the way to it."""

    blob: UInt8Array
    trained: Trained
    trained_at_s: float  # on the clock that measures steps


class Core:
    """One author's model, optimiser and residual."""

    def __init__(
        self,
        job: TrainingJob,
        examples: Examples,
        device: torch.device,
        now_s: Callable[[], float],
    ) -> None:
        self.device = device
        self._job = job
        self._examples = examples
        self._now_s = now_s
        self._loop = InnerLoop(
            job.inner, job.model.tensors(), _loss_of(job.model), examples, device
        )
        # Buffers for good: fresh ones would be faulted in page by page, every round.
        parameter_count = job.model.parameter_count()
        self._base_D = np.zeros(parameter_count, np.float32)
        self._residual_D = np.zeros(parameter_count, np.float32)
        self._residual_after_D = np.zeros(parameter_count, np.float32)
        self._sealed_round = NO_ROUND

    def train_and_seal(
        self,
        order: TrainOrder,
        base_D: Int32Array,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> SealedTraining:
        """Inner steps from the grid weights `base_D`, then the blob. Raises TrainerFailed."""
        started_s = self._now_s()
        self._settle(order.merged_round)
        try:
            codec = codec_named(order.codec)
        except PeerFault as fault:
            raise TrainerFailed(f"order of round {order.round}: {fault.detail}") from None
        base_fp32_D = to_float32(base_D, self._base_D)
        batches = batch_plan(
            order.seed,
            order.round,
            order.author,
            self._job.inner.batch_size,
            self._examples.train_count,
        )
        limits = StepLimits(
            order.steps_max, order.stop_after_s, started_s, self._now_s, is_cancelled
        )
        trained = self._loop.train(base_fp32_D, batches, order.first_step, limits)
        trained_at_s = self._now_s()
        updates = self._job.updates
        owed_D = self._residual_D if updates.error_feedback else None
        room_D = self._residual_after_D
        sealed = seal(base_fp32_D, trained.values_D, owed_D, codec, updates.clip_norm, room_D)
        self._sealed_round = order.round
        return SealedTraining(sealed.blob, trained, trained_at_s)

    def evaluate(self, weights_D: Int32Array) -> float:
        """Mean held-out loss in nats a byte (or a picture); the same every time."""
        self._loop.load(to_float32(weights_D, self._base_D))
        return mean_loss(
            self._job.evaluation, self._examples.heldout_count, self._loop.heldout_loss
        )

    def inner_state(self) -> InnerState:
        """What the next round needs of this one, in arrays that are good until it begins."""
        moments = self._loop.moments()
        return InnerState(
            first_D=moments.first_D,
            second_D=moments.second_D,
            adam_steps=moments.steps,
            residual_D=self._residual_D,
            residual_after_D=self._residual_after_D,
            sealed_round=self._sealed_round,
        )

    def set_inner_state(self, state: InnerState) -> None:
        self._loop.set_moments(Moments(state.first_D, state.second_D, state.adam_steps))
        np.copyto(self._residual_D, state.residual_D)
        np.copyto(self._residual_after_D, state.residual_after_D)
        self._sealed_round = state.sealed_round

    def _settle(self, merged_round: int) -> None:
        if self._sealed_round != NO_ROUND and merged_round == self._sealed_round:
            self._residual_D, self._residual_after_D = self._residual_after_D, self._residual_D
        self._sealed_round = NO_ROUND  # and what would have followed it is room for the next one


def open_core(
    job: TrainingJob, device: torch.device, cache_dir: Path, now_s: Callable[[], float]
) -> Core:
    """A Core on mapped data; `now_s` measures steps. Raises UserError for unusable data."""
    return Core(job, open_examples(job.data, job.model, cache_dir), device, now_s)


def choose_device(name: str) -> torch.device:
    """The device named, or for `auto` the best there is. Raises UserError if it is not there."""
    found = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, is_there in found.items() if is_there)
    if not found[name]:
        there = ", ".join(kind for kind, is_there in found.items() if is_there)
        raise UserError(f"trainer.device is {name}, and torch finds only: {there}; use auto")
    return torch.device(name)


def _loss_of(model: ModelConfig) -> LossFunction:
    return gpt_loss(model) if model.kind == "byte_gpt" else mlp_loss(model)
