"""Train somebody's segment again from where its author says that it began, and see how far off.

What error feedback owes stays the same until the seal (see sealed_claims), so that the residual
before it is the segment's own.

Distances are relative L2, infinite where a number is not finite or nothing should differ and does:
the weights' and the moments' over how far they are said to have moved, the residual's and the
update's over their own length. Floats of two machines differ, so that a distance proves nothing by
itself: what is too far is calibrated elsewhere, and only an exact replay convicts. D parameters.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from math import inf, isfinite, sqrt

import numpy as np

from daa_node.seams import SegmentCheck, SegmentOrder
from daa_node.tensors import Float32Array
from daa_node.training.batches import batch_plan
from daa_node.training.boundaries import Boundary
from daa_node.training.config import TrainingJob
from daa_node.training.datasets.examples import Examples
from daa_node.training.engine import Moments, Optimiser
from daa_node.training.inner_loop import InnerLoop, StepLimits, Trained
from daa_node.training.sealed_claims import Claim, ClaimedSeal, seal_again
from daa_node.updates.grid import CHUNK_PARAMETERS
from daa_node.updates.privacy.clip import squared_norm


def check_segment(
    job: TrainingJob,
    examples: Examples,
    loop: InnerLoop,
    order: SegmentOrder,
    claim: Claim,
    is_cancelled: Callable[[], bool],
) -> SegmentCheck:
    """Raises TrainerFailed when cancelled, PeerFault for an update that no codec makes.

    What `loop` trained before is gone from it, as from any training.
    """
    start, end = claim.start, claim.end
    optimiser = optimiser_of(start, loop)
    trained = train_again(job, examples, loop, order, start, optimiser, is_cancelled)
    found = optimiser.moments()
    residual, sealed = _check_residual(start, end), None
    if claim.sealed is not None:
        residual, sealed = _check_seal(job, start, claim.sealed)
    return SegmentCheck(
        weights=distance(trained.values_D, end.weights_D, start.weights_D),
        first=distance(found.first_D, end.first_D, start.first_D),
        second=distance(found.second_D, end.second_D, start.second_D),
        residual=residual,
        sealed=sealed,
        steps_agree=end.adam_steps == start.adam_steps + order.steps,
    )


def open_segment(
    job: TrainingJob,
    examples: Examples,
    loop: InnerLoop,
    order: SegmentOrder,
    start: Boundary,
    on_boundary: Callable[[Boundary], None],
    is_cancelled: Callable[[], bool],
) -> None:
    """Take our own steps again, and show the state after each but the last.

    Its arrays are good until `on_boundary` returns. Raises TrainerFailed when cancelled.
    """
    optimiser = optimiser_of(start, loop)

    def pass_by(_steps: int) -> None:
        weights_D, moments = loop.gather(), optimiser.moments()
        passed = replace(
            start,
            weights_D=weights_D,
            first_D=moments.first_D,
            second_D=moments.second_D,
            adam_steps=moments.steps,
        )
        on_boundary(passed)

    train_again(job, examples, loop, order, start, optimiser, is_cancelled, pass_by)


def optimiser_of(start: Boundary, loop: InnerLoop) -> Optimiser:
    """What a boundary remembers."""
    optimiser = Optimiser(start.weights_D.size, loop.memory_device)
    optimiser.set_moments(Moments(start.first_D, start.second_D, start.adam_steps))
    return optimiser


def train_again(
    job: TrainingJob,
    examples: Examples,
    loop: InnerLoop,
    order: SegmentOrder,
    start: Boundary,
    optimiser: Optimiser,
    is_cancelled: Callable[[], bool],
    between: Callable[[int], None] = lambda _steps: None,
) -> Trained:
    """The order's steps from `start`, in the loop's memory. Raises TrainerFailed when cancelled."""
    batches = batch_plan(
        order.seed, order.round, order.author, job.inner.batch_size, examples.train_count
    )
    limits = StepLimits(order.steps, inf, 0.0, lambda: 0.0, is_cancelled)
    first_step = order.first_step + order.step
    begun = islice(batches, order.step, None)
    return loop.train(start.weights_D, begun, first_step, limits, optimiser, between)


def distance(
    found_D: Float32Array, claimed_D: Float32Array, start_D: Float32Array | None = None
) -> float:
    """|found - claimed| over |claimed - start|, or over |claimed| without a start."""
    off_squared = moved_squared = 0.0
    with np.errstate(all="ignore"):  # what others claim may be anything
        for at in range(0, claimed_D.size, CHUNK_PARAMETERS):
            part = slice(at, at + CHUNK_PARAMETERS)
            claimed_C = claimed_D[part]
            off_squared += squared_norm(found_D[part] - claimed_C)
            moved_squared += squared_norm(
                claimed_C if start_D is None else claimed_C - start_D[part]
            )
    off, moved = sqrt(off_squared), sqrt(moved_squared)
    if off == 0 and isfinite(moved):
        return 0.0
    return off / moved if isfinite(off) and 0 < moved < inf else inf


def _check_residual(start: Boundary, end: Boundary) -> float:
    if start.residual_D is None or end.residual_D is None:
        return 0.0
    return distance(start.residual_D, end.residual_D)


def _check_seal(job: TrainingJob, start: Boundary, sealed: ClaimedSeal) -> tuple[float, float]:
    """How far off the residual is that sealing left, and the update."""
    again = seal_again(job, start, sealed)
    if again is None:
        return inf, inf
    residual = 0.0
    if again.residual_D is not None and again.claimed_residual_D is not None:
        residual = distance(again.residual_D, again.claimed_residual_D)
    return residual, distance(again.update_D, again.claimed_update_D)
