"""A model of which only the size counts: what it weighs, and small real numbers in its place.

Everything that a daemon does with updates it does with small real ones: seal, offer, fetch, check,
merge, replay, publish. What they weigh is reckoned here, and only here: the world charges its links
and its trainers for the nominal model. A daemon weighs rates against sizes, never either alone, and
both of them are as many times too small, so it decides what it would decide about the large model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isinf

import numpy as np

from daa_dag.chunking import CHUNK_BYTES_MAX, CHUNKS_MAX
from daa_node.seams import CanaryStep, SegmentCheck, SegmentOrder, TrainOrder
from daa_node.tensors import GRID_DTYPE, Float32Array, Int32Array
from daa_node.training.ahead import Ahead
from daa_node.training.boundaries import Boundary, Carried, boundary_steps
from daa_node.training.config import TrainingJob
from daa_node.training.core import NO_ROUND, OnBoundary, SealedTraining
from daa_node.training.inner_loop import Trained
from daa_node.training.inner_state import InnerState
from daa_node.training.sealed_claims import Claim
from daa_node.training.steps_in_time import is_room_for_step
from daa_node.updates.compression.codec import codec_named, sizes_of
from daa_node.updates.compression.delta import DENSE
from daa_node.updates.grid import to_float32
from daa_node.updates.pipeline import seal
from simnet.world.scenario import Scenario

CHANGE = 1e-3  # of a parameter in a round: a number like another
LOSS_NATS = 0.0  # a model that holds nothing has none


@dataclass(frozen=True, slots=True)
class Nominal:
    """Sizes of the large model by those of the small one, in bytes."""

    blocks: int  # of one parameter, where the codec is dense
    real_blocks: int
    _bytes_by_real: Mapping[int, int]  # of whole updates, deltas and states: blocks round sizes up

    @classmethod
    def of(cls, job: TrainingJob, parameters: int) -> "Nominal":
        real = job.model.parameter_count()
        codecs = job.updates.codecs
        small, large = sizes_of(codecs, real), sizes_of(codecs, parameters)
        by_real = {small[codec]: large[codec] for codec in codecs}
        # A dense delta has one size; of a sparse one this is the most, and it has any up to it:
        # as many bytes a block as the small one has.
        most = job.updates.delta_format.size_bytes_max
        state = {GRID_DTYPE.itemsize * real: GRID_DTYPE.itemsize * parameters}
        is_dense = job.updates.delta_format is DENSE
        block = 1 if is_dense else codec_named(job.updates.codec).block_parameters
        blocks, real_blocks = -(-parameters // block), -(-real // block)
        return cls(blocks, real_blocks, {most(real): most(parameters)} | state | by_real)

    def weigh(self, real_bytes: int) -> int:
        """What so many bytes of an answer stand for."""
        known = self._bytes_by_real.get(real_bytes)
        return self.weigh_part(real_bytes) if known is None else known

    def weigh_part(self, real_bytes: int) -> int:
        return real_bytes * self.blocks // self.real_blocks


class NominalCore:
    """In the place of a worker's Core: steps that take their time, and a change by chance."""

    def __init__(
        self, job: TrainingJob, now_s: Callable[[], float], on_step: Callable[[], None]
    ) -> None:
        """`on_step` lets a step's time pass, which `now_s` then tells."""
        self._job = job
        self._now_s = now_s
        self._on_step = on_step
        self._ahead: Ahead | None = None

    def train_and_seal(
        self,
        order: TrainOrder,
        base_D: Int32Array,
        is_cancelled: Callable[[], bool] = lambda: False,
        on_boundary: OnBoundary = lambda _boundary: None,
    ) -> SealedTraining:
        """As many steps as a worker's inner loop would take; the same order, the same update."""
        ahead = self.take_ahead()
        is_merged = ahead is not None and ahead.round == order.merged_round
        before = ahead.steps if ahead is not None and is_merged else 0
        started_s, steps, step_s = self._now_s(), 0, 0.0
        while steps < max(1, order.steps_max - before):
            if steps and not isinf(order.stop_after_s):
                passed_s = self._now_s() - started_s
                if not is_room_for_step(passed_s, step_s, order.stop_after_s):
                    break
            self._on_step()
            steps += 1
            step_s = (self._now_s() - started_s) / steps
        before_D = to_float32(base_D)
        words = np.frombuffer(order.seed + order.author, np.uint32)
        chance = np.random.default_rng([*words.tolist(), order.round])
        after_D = before_D - CHANGE * chance.standard_normal(before_D.size, np.float32)
        clip_norm = self._job.updates.clip_norm
        blob = seal(before_D, after_D, None, codec_named(order.codec), clip_norm).blob
        if self._job.updates.train_on:
            nothing_D = np.empty(0, np.float32)
            self._ahead = Ahead(order.round, nothing_D, iter(()), 0, order.ahead_max)
        steps = min(order.steps_max, before + steps)
        tokens = steps * self._job.inner.batch_size
        us_per_step = max(1, round(step_s * 1e6))
        trained = Trained(after_D, steps, tokens, us_per_step, LOSS_NATS)
        for _ in boundary_steps(steps, order.segment_steps)[:-1]:
            on_boundary(self._boundary(before_D))
        return SealedTraining(blob, trained, self._now_s(), self._boundary(after_D))

    def train_on(self) -> bool:
        """A step of the next round; False if none is left to take."""
        if self._ahead is None or not self._ahead.steps_left:
            return False
        self._on_step()
        self._ahead.steps += 1
        return True

    def take_ahead(self) -> Ahead | None:
        ahead, self._ahead = self._ahead, None
        return ahead

    def set_ahead(self, ahead: Ahead | None) -> None:
        self._ahead = ahead

    def check_segment(
        self,
        order: SegmentOrder,
        claim: Claim,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> SegmentCheck:
        """As many steps as the segment has; they lead wherever the author says."""
        for _ in range(order.steps):
            self._on_step()
        return SegmentCheck(0.0, 0.0, 0.0, 0.0, None if claim.sealed is None else 0.0, True)

    def open_segment(
        self,
        order: SegmentOrder,
        start: Boundary,
        on_boundary: OnBoundary,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """As many states as there are steps between."""
        for step in range(order.steps):
            self._on_step()
            if step:
                on_boundary(replace(start, adam_steps=start.adam_steps + step))

    def canary(self, step: int, is_cancelled: Callable[[], bool] = lambda: False) -> CanaryStep:
        """It comes out as everywhere."""
        self._on_step()
        return CanaryStep("virtual", 0.0, repeats=True)

    def evaluate(self, weights_D: Int32Array) -> float:
        return LOSS_NATS

    def inner_state(self) -> InnerState:
        """Nothing: this optimiser has no moments."""
        empty_D = np.empty(0, np.float32)
        nothing = Carried(empty_D, empty_D, empty_D, 0)
        return InnerState(nothing, nothing, NO_ROUND, NO_ROUND)

    def set_inner_state(self, state: InnerState) -> None:
        pass

    def _boundary(self, weights_D: Float32Array) -> Boundary:
        none_D = np.zeros_like(weights_D)
        owed_D = none_D if self._job.updates.error_feedback else None
        return Boundary(weights_D, none_D, none_D, owed_D, 0)


def beyond_limits(scenario: Scenario) -> list[str]:
    """Which limits of today's protocol the large model is beyond."""
    work, blob_max = scenario.work, CHUNK_BYTES_MAX * CHUNKS_MAX
    sizes = sizes_of(work.updates.codecs, work.parameters)
    largest = max(work.updates.delta_format.size_bytes_max(work.parameters), *sizes.values())
    return [f"blobs of {largest} bytes, today at most {blob_max}"] if largest > blob_max else []
