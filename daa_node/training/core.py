"""What a worker does with numbers: train and seal, and the held-out loss.

Arrays in, arrays out; it opens no blob and knows no process, so that a simulation calls it inline
with its own clock. Merging updates needs none of this: see updates.outer_step.

What a round leaves to the next one, moments and residual, takes effect only when a later order says
that its update was merged (`merged_round`). An update that was not merged is dropped whole, and the
next round starts from what the newest merged one left:

    settled --train, seal--> tried --its round was merged--> settled
                               `---- it was not: room for the next try

Sending a lost pseudo-gradient again would add a step from stale weights at double length, which a
robust rule rightly takes for an outlier; and anybody can tell where a round must have started, from
what the author committed to before. Whoever has lost what the newest merged round left starts from
zeros: nobody could tell what came in between.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from itertools import count
from math import isfinite
from pathlib import Path
from platform import machine
from typing import assert_never

import numpy as np
import torch

from daa_node.errors import PeerFault, TrainerFailed, UserError
from daa_node.seams import CanaryStep, SegmentCheck, SegmentOrder, TrainOrder
from daa_node.tensors import Float32Array, Int32Array, UInt8Array
from daa_node.training.ahead import Ahead
from daa_node.training.batches import batch_plan
from daa_node.training.boundaries import Boundary
from daa_node.training.canary import take_canary
from daa_node.training.config import TrainingJob
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.examples import Examples
from daa_node.training.engine import Engine, OneDevice, Optimiser
from daa_node.training.evaluation import mean_loss
from daa_node.training.exact_replay import (
    NOT_NUMBERS,
    replay_exactly,
    replay_seal_exactly,
    step_exactly,
)
from daa_node.training.inner_loop import InnerLoop, StepLimits, Trained
from daa_node.training.inner_state import InnerState
from daa_node.training.memories import two_memories
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.byte_gpt import gpt_loss
from daa_node.training.models.cnn import cnn_loss
from daa_node.training.models.mlp import mlp_loss
from daa_node.training.models.module import ModuleLoss
from daa_node.training.models.opening import open_model
from daa_node.training.models.parameters import LossFunction
from daa_node.training.module_source import NO_MODULES, ModuleAccess
from daa_node.training.revealed import RevealedExamples
from daa_node.training.sealed_claims import Claim
from daa_node.training.segment_check import check_segment, open_segment
from daa_node.updates.compression.codec import codec_named
from daa_node.updates.grid import CHUNK_PARAMETERS, all_finite, float32_piece, to_float32
from daa_node.updates.pipeline import seal

NO_ROUND = -1
DEVICE_CHARS_MAX = 80

OnBoundary = Callable[[Boundary], None]  # its arrays are good until this returns


@dataclass(frozen=True, slots=True)
class SealedTraining:
    """One round's work: the blob to offer and what was measured on the way to it."""

    blob: UInt8Array
    trained: Trained
    trained_at_s: float  # on the clock that measures steps
    end: Boundary  # the round's last; its arrays are good until the core trains or evaluates again


class Core:
    """One author's model, and its memory."""

    def __init__(
        self,
        job: TrainingJob,
        examples: Examples,
        device: torch.device,
        now_s: Callable[[], float],
        modules: ModuleAccess = NO_MODULES,
        engine: Engine | None = None,
        memories: Path | None = None,
    ) -> None:
        """`engine` is what trains where that is not `device` alone; `memories`: see memory_files.

        Raises UserError where the model is code that `modules` does not let run here.
        """
        self.device = device
        self._job = job
        self._examples = examples
        self._now_s = now_s
        if engine is None:
            loss = loss_of(job.model, job.seed, modules)
            engine = OneDevice(job.inner, job.model.tensors(), loss, device)
        self._ranks = engine.ranks
        self._revealed: RevealedExamples | None = None
        if job.data.reveal:
            batch_size = job.inner.batch_size
            self._revealed = RevealedExamples(examples, job.data, job.model, batch_size)
            self._examples = examples = self._revealed
        self._loop = InnerLoop(job.inner, examples, engine)
        # Buffers for good: fresh ones would be faulted in page by page, every round.
        parameter_count = job.model.parameter_count()
        self._base_D: Float32Array | None = None  # of jobs whose boundaries are kept alone
        owes, lies_on = job.updates.error_feedback, engine.memory_device
        self._settled, self._tried = two_memories(parameter_count, lies_on, owes, memories)
        self._settled_round = NO_ROUND  # the newest merged one as of the last order
        self._sealed_round = NO_ROUND  # of what was tried; none if there is nothing to settle
        self._memory_ids = count()
        self._ahead: Ahead | None = None

    def train_and_seal(
        self,
        order: TrainOrder,
        base_D: Int32Array,
        is_cancelled: Callable[[], bool] = lambda: False,
        on_boundary: OnBoundary = lambda _boundary: None,
    ) -> SealedTraining:
        """Inner steps from the grid weights `base_D`, then the blob. Raises TrainerFailed.

        `on_boundary` gets every boundary but the last, as training comes to it.
        """
        started_s = self._now_s()
        ahead = self.take_ahead()
        if not self._settle(order.merged_round):
            ahead = None
        try:
            codec = codec_named(order.codec)
        except PeerFault as fault:
            raise TrainerFailed(f"order of round {order.round}: {fault.detail}") from None
        base_D = base_D.view(np.ndarray)  # slicing a memmap makes a memmap, ten times slower
        start_D = base_D if ahead is None else _moved(base_D, ahead)
        taken = 0 if ahead is None else ahead.steps
        batches = batch_plan(
            order.seed,
            order.round,
            order.author,
            self._job.inner.batch_size,
            self._examples.train_count,
        )
        steps_max = max(1, order.steps_max - taken)
        limits = StepLimits(steps_max, order.stop_after_s, started_s, self._now_s, is_cancelled)
        settled, tried, updates = self._settled, self._tried, self._job.updates
        tried.go_on_from(settled)
        owed_D = settled.residual_D if updates.error_feedback else None

        def pass_by(steps: int) -> None:
            if order.segment_steps and steps % order.segment_steps == 0:
                passed = self._boundary(self._loop.gather(), tried.optimiser, owed_D)
                on_boundary(replace(passed, revealed=self._noted(order)))

        schedule_step = order.first_step + taken
        with nullcontext() if self._revealed is None else self._revealed.noting():
            if order.segment_steps:
                first = self._boundary(
                    self._in_float32(base_D), settled.optimiser, owed_D, settled.id
                )
                on_boundary(replace(first, revealed=self._noted(order)))
            trained = self._loop.train(
                start_D, batches, schedule_step, limits, tried.optimiser, pass_by
            )
            ended = self._noted(order)
        trained_at_s = self._now_s()
        if ahead is not None:
            trained = self._with_ahead(trained, ahead, order.steps_max)
        self._check_finite(trained)
        room_D = tried.residual_D
        sealed = seal(base_D, trained.values_D, owed_D, codec, updates.clip_norm, room_D)
        self._sealed_round = order.round
        tried.id = next(self._memory_ids)
        end = self._boundary(trained.values_D, tried.optimiser, sealed.residual_D, tried.id)
        if updates.train_on:
            next_step, more = order.first_step + trained.steps, order.ahead_max
            self._ahead = Ahead(order.round, trained.values_D.copy(), batches, next_step, more)
        return SealedTraining(sealed.blob, trained, trained_at_s, replace(end, revealed=ended))

    def train_on(self) -> bool:
        """A step of the next round before its order; False if none is left to take.

        What training goes on from may be lost with it: that is of an update not merged yet.
        """
        ahead, tried = self._ahead, self._tried
        if ahead is None or not ahead.steps_left:
            return False
        tried.id = None
        if ahead.values_D is not None:
            self._loop.resume(ahead.values_D, tried.optimiser)
            ahead.values_D = None
        step = ahead.schedule_step + ahead.steps
        ahead.loss_sum += self._loop.step_on(next(ahead.batches), step)
        ahead.steps += 1
        return True

    def take_ahead(self) -> Ahead | None:
        """What was trained since the newest seal, in arrays of its own; it is the caller's now."""
        self._set_aside()
        ahead, self._ahead = self._ahead, None
        return ahead

    def set_ahead(self, ahead: Ahead | None) -> None:
        """Go on from there; `inner_state` is the one that it was taken beside."""
        self._ahead = ahead

    def check_segment(
        self,
        order: SegmentOrder,
        claim: Claim,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> SegmentCheck:
        """Beside our own training: what that goes on from stays as it is. Raises TrainerFailed."""
        self._set_aside()
        if order.exact and claim.sealed is not None:
            return replay_seal_exactly(self._job, claim.start, claim.sealed)
        if order.exact:
            self._check_canonical()
            return replay_exactly(self._job, self._examples, order, claim, is_cancelled)
        with ExitStack() as shown:
            if self._revealed is not None:
                assert claim.end.revealed is not None, "opened as one of this job"
                try:
                    shown.enter_context(self._revealed.showing(claim.end.revealed, order.steps))
                except ValueError:
                    return NOT_NUMBERS
            return check_segment(self._job, self._examples, self._loop, order, claim, is_cancelled)

    def open_segment(
        self,
        order: SegmentOrder,
        start: Boundary,
        on_boundary: OnBoundary,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """The state after each step of a segment but the last. Raises TrainerFailed.

        Of exact steps fewer, where one leads to what are no numbers.
        """
        self._set_aside()
        if order.exact:
            self._check_canonical()
            step_exactly(self._job, self._examples, order, start, on_boundary, is_cancelled)
            return
        open_segment(self._job, self._examples, self._loop, order, start, on_boundary, is_cancelled)

    def canary(self, step: int, is_cancelled: Callable[[], bool] = lambda: False) -> CanaryStep:
        """Beside our own training, too. Raises TrainerFailed when cancelled."""
        self._check_canonical()
        self._set_aside()
        found, repeats = take_canary(self._job, self._examples, self._loop, step, is_cancelled)
        distance = max(found.weights, found.first, found.second)
        return CanaryStep(kind_of(self.device, self._ranks), distance, repeats)

    def evaluate(self, weights_D: Int32Array) -> float:
        """Mean held-out loss in nats a byte (or a picture); the same every time."""
        self._set_aside()
        self._loop.load(weights_D.view(np.ndarray))
        return mean_loss(
            self._job.evaluation, self._examples.heldout_count, self._loop.heldout_loss
        )

    def inner_state(self) -> InnerState:
        """What the next round needs of this one, in arrays that are good until it begins."""
        return InnerState(
            settled=self._settled.carried(),
            tried=self._tried.carried(),
            settled_round=self._settled_round,
            sealed_round=self._sealed_round,
        )

    def set_inner_state(self, state: InnerState) -> None:
        if state.settled.file is not None and state.settled.file == self._tried.file:
            self._settled, self._tried = self._tried, self._settled
        self._settled.set(state.settled)
        self._tried.set(state.tried)
        self._settled_round, self._sealed_round = state.settled_round, state.sealed_round

    def forget(self) -> None:
        """Whatever earlier rounds have left, as in files of before."""
        self._settled.forget()
        self._tried.forget()

    def _in_float32(self, base_D: Int32Array) -> Float32Array:
        if self._base_D is None:
            self._base_D = np.empty(base_D.shape, np.float32)
        return to_float32(base_D, self._base_D)

    def _noted(self, order: TrainOrder) -> UInt8Array | None:
        return None if self._revealed is None else self._revealed.noted(order.segment_steps)

    def _check_canonical(self) -> None:
        if not self._job.model.is_canonical:
            raise TrainerFailed(f"no canonical kernels take steps of {self._job.model.label}")

    def _set_aside(self) -> None:
        """Keep the weights that the loop has got to: somebody else needs the loop."""
        if self._ahead is not None and self._ahead.values_D is None:
            self._ahead.values_D = self._loop.gather().copy()

    def _with_ahead(self, trained: Trained, ahead: Ahead, steps_max: int) -> Trained:
        """With the steps before the order; more than were planned are not claimed."""
        steps = trained.steps + ahead.steps
        loss_sum = trained.loss_nats * trained.steps + ahead.loss_sum
        claimed = min(steps, steps_max)
        tokens = trained.tokens // trained.steps * claimed
        return replace(trained, steps=claimed, tokens=tokens, loss_nats=loss_sum / steps)

    def _settle(self, merged_round: int) -> bool:
        """The newest merged update is of that round: what it left is where the next one starts.

        Returns whether it is the newest that was sealed.
        """
        is_sealed = self._sealed_round != NO_ROUND and merged_round == self._sealed_round
        if is_sealed:
            self._settled, self._tried = self._tried, self._settled
        elif merged_round != self._settled_round:
            self._settled.forget()  # what it left went with another process
        self._settled_round, self._sealed_round = merged_round, NO_ROUND
        return is_sealed

    def _check_finite(self, trained: Trained) -> None:
        if not isfinite(trained.loss_nats) or not all_finite(trained.values_D):
            self._settled.forget()  # it may be what led there
            raise TrainerFailed(
                f"training diverged: mean loss {trained.loss_nats} after {trained.steps} steps; "
                "the inner optimiser starts afresh"
            )

    def _boundary(
        self,
        weights_D: Float32Array,
        optimiser: Optimiser,
        residual_D: Float32Array | None,
        memory_id: int | None = None,
    ) -> Boundary:
        moments = optimiser.moments()
        vectors = weights_D, moments.first_D, moments.second_D, residual_D
        return Boundary(*vectors, moments.steps, memory_id)


def _moved(base_D: Int32Array, ahead: Ahead) -> Float32Array:
    """The base, as far from where it was as training has got from where it was sealed."""
    assert ahead.values_D is not None
    moved_D: Float32Array = ahead.values_D - ahead.sealed_D
    for start in range(0, moved_D.size, CHUNK_PARAMETERS):
        stop = min(start + CHUNK_PARAMETERS, moved_D.size)
        moved_D[start:stop] += float32_piece(base_D, start, stop)
    return moved_D


def open_core(
    job: TrainingJob,
    device: torch.device,
    cache_dir: Path,
    now_s: Callable[[], float],
    modules: ModuleAccess = NO_MODULES,
    engine: Engine | None = None,
    memories: Path | None = None,
) -> Core:
    """A Core on mapped data; `now_s` measures steps, `engine` takes them if not `device` alone.

    `memories` is where its optimisers' memory lies in files, if not in memory.

    Raises UserError for unusable data, and for a model that this host may not run or does not have.
    """
    examples = open_examples(job.data, job.model, cache_dir, job.own, modules)
    return Core(job, examples, device, now_s, modules, engine, memories)


def choose_device(name: str) -> torch.device:
    """The device named, or for `auto` the best there is.

    Raises UserError if it is not there, or if nothing can be computed on it.
    """
    if name == "cpu":
        return torch.device(name)  # whatever is wrong with a GPU beside it
    try:
        device = torch.device(device_among(_devices_here(), name))
        torch.zeros(1, device=device).item()
    except RuntimeError as fault:  # another process holds it alone, or its driver is another one
        why = str(fault).partition("\n")[0]
        raise UserError(
            f"trainer.device is {name}, and what torch finds cannot be used: {why}. Take another "
            "device, as cpu"
        ) from None
    return device


def device_among(found: Mapping[str, str], name: str) -> str:
    """What torch calls the device `name`. `found`: their names and makes, best first.

    Raises UserError if it is none of them.
    """
    kinds = dict.fromkeys(device.partition(":")[0] for device in found)
    if name == "auto":
        return next(iter(kinds))
    if name not in found and name not in kinds:
        there = ", ".join(
            f"{device} ({make})" if make else device for device, make in found.items()
        )
        raise UserError(f"trainer.device is {name}, and torch finds only: {there}; or use auto")
    return name


def _devices_here() -> dict[str, str]:
    """Best first, each with its make where torch knows it."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = {f"cuda:{index}": torch.cuda.get_device_name(index) for index in range(count)}
    return gpus | ({"mps": ""} if torch.backends.mps.is_available() else {}) | {"cpu": ""}


def multiply_in_full() -> None:
    """Have this process multiply fp32 numbers in all of their bits. Call it before a GPU is used.

    Left alone, torch convolves in TF32 on a GPU, and images of containers ask for it in products,
    too: ten bits of 24. A segment trained again on a CPU is 1.5e-2 away then, beyond what a check
    tolerates; in full it is 2e-5 away.
    """
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # read by cuBLAS and cuDNN, whoever calls them
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


def kind_of(device: torch.device, ranks: int = 1) -> str:
    """What numbers of equal devices have in common, in words; of so many that share each step."""
    release = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    if device.type == "cuda":
        made = torch.cuda.get_device_name(device)
    elif device.type == "cpu":
        made = f"{machine()} {torch.backends.cpu.get_cpu_capability()}"
    else:
        made = machine()
    together = f"{ranks} x " if ranks > 1 else ""
    return f"{together}{device.type} {made}, torch {release}"[:DEVICE_CHARS_MAX]


def loss_of(model: ModelConfig, seed: int = 0, modules: ModuleAccess = NO_MODULES) -> LossFunction:
    """The loss that a model is trained by; `seed` and `modules` are for one of somebody's own."""
    match model.kind:
        case "byte_gpt":
            return gpt_loss(model)
        case "mlp":
            return mlp_loss(model)
        case "cnn":
            return cnn_loss(model)
        case "module" | "hf_causal_lm":
            return ModuleLoss(open_model(model, seed, modules))
        case _:
            assert_never(model.kind)
