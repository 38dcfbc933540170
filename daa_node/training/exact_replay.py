"""Take somebody's steps again with canonical kernels: every machine comes to the same answer.

What an author's device has rounded otherwise is far under the tolerance; what is beyond it did not
come from these steps. See daa_node.spot_checks.recompute for what makes the bits the same.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from math import inf, isfinite

import numpy as np

from daa_node.errors import NotFinite, TrainerFailed
from daa_node.seams import SegmentCheck, SegmentOrder
from daa_node.spot_checks import recompute
from daa_node.spot_checks.canonical import canonical_inner, canonical_model
from daa_node.tensors import Float32Array
from daa_node.training.batches import batch_plan
from daa_node.training.boundaries import Boundary
from daa_node.training.config import TrainingJob
from daa_node.training.datasets.examples import Examples
from daa_node.training.sealed_claims import Claim, ClaimedSeal, seal_again
from daa_node.updates.grid import Weights, float32_piece

DistanceOf = Callable[[Float32Array, Float32Array, Float32Array], float]

# Of a number: two results of a few operations on equal numbers differ by no more, as L2.
UNIT_ROUNDINGS = 2.0**-23
NOTHING_OFF = SegmentCheck(0.0, 0.0, 0.0, 0.0, None, steps_agree=True)
NOT_NUMBERS = SegmentCheck(inf, inf, inf, inf, None, steps_agree=False)


def _distance(outcome_D: Float32Array, claimed_D: Float32Array, start_D: Float32Array) -> float:
    """As `recompute.distance`, but 0 where nothing is off by more than rounding a number is.

    A step may be as small as that: at the end of a schedule, relative to it rounding is much.
    """
    distance = recompute.distance(outcome_D, claimed_D, start_D)  # of numbers, or it raises
    off_D = outcome_D.astype(np.float64) - claimed_D
    rounded_D = claimed_D.astype(np.float64) * UNIT_ROUNDINGS
    is_rounding = recompute.fold_sum(off_D * off_D) <= recompute.fold_sum(rounded_D * rounded_D)
    return 0.0 if is_rounding else distance


def replay_exactly(
    job: TrainingJob,
    examples: Examples,
    order: SegmentOrder,
    claim: Claim,
    is_cancelled: Callable[[], bool],
    distance_of: DistanceOf = _distance,
) -> SegmentCheck:
    """How far the claimed end is from where `order.steps` canonical steps lead from the start.

    Infinitely far where numbers are none. What error feedback owes is not compared. Raises
    TrainerFailed when cancelled.
    """
    start, end, origin = claim.start, claim.end, claim.origin or claim.start
    if not _may_count(start, order):
        return NOT_NUMBERS
    try:
        *_, state = _states(job, examples, order, start, is_cancelled)
        return SegmentCheck(
            weights=distance_of(state.weights_D, end.weights_D, origin.weights_D),
            first=distance_of(state.first_D, end.first_D, origin.first_D),
            second=distance_of(state.second_D, end.second_D, origin.second_D),
            residual=0.0,
            sealed=None,
            steps_agree=end.adam_steps == state.adam_steps,
        )
    except recompute.NotFinite:
        return NOT_NUMBERS


def step_exactly(
    job: TrainingJob,
    examples: Examples,
    order: SegmentOrder,
    start: Boundary,
    on_boundary: Callable[[Boundary], None],
    is_cancelled: Callable[[], bool],
) -> None:
    """The state after each canonical step but the last; none any more where numbers end.

    Raises TrainerFailed when cancelled.
    """
    if not _may_count(start, order):
        return
    but_the_last = replace(order, steps=order.steps - 1)
    with suppress(recompute.NotFinite):
        for state in _states(job, examples, but_the_last, start, is_cancelled):
            on_boundary(
                replace(
                    start,
                    weights_D=state.weights_D,
                    first_D=state.first_D,
                    second_D=state.second_D,
                    adam_steps=state.adam_steps,
                )
            )


def _may_count(start: Boundary, order: SegmentOrder) -> bool:
    """Whether anybody can have taken so many steps, and a boundary can hold more of them."""
    return 0 <= start.adam_steps <= recompute.ADAM_STEPS_MAX - order.steps


def _states(
    job: TrainingJob,
    examples: Examples,
    order: SegmentOrder,
    start: Boundary,
    is_cancelled: Callable[[], bool],
) -> Iterator[recompute.State]:
    """After each step. Raises NotFinite, and TrainerFailed when cancelled."""

    def matmul(a_GMK: Float32Array, b_GKN: Float32Array) -> Float32Array:
        if is_cancelled():
            raise TrainerFailed("cancelled in the middle of an exact replay")
        return recompute.sequential_matmul(a_GMK, b_GKN)

    model, inner = canonical_model(job.model), canonical_inner(job.inner)
    plan = batch_plan(
        order.seed, order.round, order.author, job.inner.batch_size, examples.train_count
    )
    state = recompute.State(start.weights_D, start.first_D, start.second_D, start.adam_steps)
    for index, indices_B in enumerate(islice(plan, order.step, order.step + order.steps)):
        batch = examples.train(indices_B)
        schedule_step = order.first_step + order.step + index
        shown = recompute.Batch(batch.inputs, batch.targets)
        state = recompute.step(model, inner, state, shown, schedule_step, matmul)
        yield state


def replay_seal_exactly(job: TrainingJob, start: Boundary, sealed: ClaimedSeal) -> SegmentCheck:
    """How far update and residual are from what sealing leads to, from a round's first boundary.

    The steps between are not looked at.
    """
    again = seal_again(job, start, sealed, _exact_norm)
    if again is None:
        return NOT_NUMBERS
    none_D = np.zeros_like(again.update_D)
    residual = 0.0
    try:
        if again.residual_D is not None and again.claimed_residual_D is not None:
            residual = recompute.distance(again.residual_D, again.claimed_residual_D, none_D)
        update = recompute.distance(again.update_D, again.claimed_update_D, none_D)
    except recompute.NotFinite:
        return NOT_NUMBERS
    return replace(NOTHING_OFF, residual=residual, sealed=update)


def _exact_norm(base_D: Weights, trained_D: Float32Array) -> float:
    moved_D = (float32_piece(base_D, 0, base_D.size) - trained_D).astype(np.float64)
    norm = float(np.sqrt(recompute.fold_sum(moved_D * moved_D)))
    if not isfinite(norm):
        raise NotFinite("trained weights", 0)
    return norm
