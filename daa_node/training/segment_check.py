"""Train somebody's segment again from where its author says that it began, and see how far off.

And seal again what it says that its round ended with: else an update could be anything, as long as
no last segment is drawn. What error feedback owes stays the same until then, so that the residual
before the seal is the segment's own.

Distances are relative L2, infinite where a number is not finite or nothing should differ and does:
the weights' and the moments' over how far they are said to have moved, the residual's and the
update's over their own length. Floats of two machines differ, so that a distance proves nothing by
itself: what is too far is calibrated elsewhere, and only an exact replay convicts. D parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from math import inf, isfinite

import numpy as np
import torch

from daa_node.errors import NotFinite
from daa_node.seams import SegmentCheck, SegmentOrder
from daa_node.tensors import Float32Array, Int32Array, UInt8Array
from daa_node.training.batches import batch_plan
from daa_node.training.boundaries import Boundary
from daa_node.training.config import TrainingJob
from daa_node.training.datasets.examples import Examples
from daa_node.training.inner_loop import InnerLoop, Moments, Optimiser, StepLimits
from daa_node.updates.compression.codec import codec_named, decode
from daa_node.updates.grid import to_float32
from daa_node.updates.pipeline import seal


@dataclass(frozen=True, slots=True)
class ClaimedSeal:
    """The update that the end of a round is said to have been sealed into."""

    base_D: Int32Array
    last: Boundary
    blob: UInt8Array
    codec: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The two boundaries of a segment, and how the round ended."""

    start: Boundary
    end: Boundary
    sealed: ClaimedSeal | None


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
    optimiser = Optimiser(start.weights_D.size, loop.device)
    optimiser.set_moments(Moments(start.first_D, start.second_D, start.adam_steps))
    batches = batch_plan(
        order.seed, order.round, order.author, job.inner.batch_size, examples.train_count
    )
    limits = StepLimits(order.steps, inf, 0.0, lambda: 0.0, is_cancelled)
    first_step = order.first_step + order.step
    trained = loop.train(
        start.weights_D, islice(batches, order.step, None), first_step, limits, optimiser
    )
    found = optimiser.moments()
    residual, sealed = _check_residual(start, end), None
    if claim.sealed is not None:
        residual, sealed = _check_seal(job, start.residual_D, claim.sealed)
    return SegmentCheck(
        weights=distance(trained.values_D, end.weights_D, start.weights_D),
        first=distance(found.first_D, end.first_D, start.first_D),
        second=distance(found.second_D, end.second_D, start.second_D),
        residual=residual,
        sealed=sealed,
        steps_agree=end.adam_steps == start.adam_steps + order.steps,
    )


def distance(
    found_D: Float32Array, claimed_D: Float32Array, start_D: Float32Array | None = None
) -> float:
    """|found - claimed| over |claimed - start|, or over |claimed| without a start."""
    with np.errstate(all="ignore"):  # what others claim may be anything
        off = _norm(found_D - claimed_D)
        moved = _norm(claimed_D if start_D is None else claimed_D - start_D)
    if off == 0 and isfinite(moved):
        return 0.0
    return off / moved if isfinite(off) and 0 < moved < inf else inf


def _check_residual(start: Boundary, end: Boundary) -> float:
    if start.residual_D is None or end.residual_D is None:
        return 0.0
    return distance(start.residual_D, end.residual_D)


def _check_seal(
    job: TrainingJob, owed_D: Float32Array | None, sealed: ClaimedSeal
) -> tuple[float, float]:
    """How far off the residual is that sealing left, and the update."""
    last, codec, updates = sealed.last, codec_named(sealed.codec), job.updates
    codec.check(sealed.blob, last.weights_D.size, None)
    if not (np.isfinite(last.weights_D).all() and _is_finite(owed_D)):
        return inf, inf
    base_D = to_float32(sealed.base_D)
    try:
        again = seal(base_D, last.weights_D, owed_D, codec, updates.clip_norm)
    except NotFinite:
        return inf, inf
    count = base_D.size
    ours_D, theirs_D = (
        to_float32(decode(codec, blob, 0, count, count)) for blob in (again.blob, sealed.blob)
    )
    residual = 0.0
    if again.residual_D is not None and last.residual_D is not None:
        residual = distance(again.residual_D, last.residual_D)
    return residual, distance(ours_D, theirs_D)


def _is_finite(vector_D: Float32Array | None) -> bool:
    return vector_D is None or bool(np.isfinite(vector_D).all())


def _norm(vector_D: Float32Array) -> float:
    return float(torch.linalg.vector_norm(torch.from_numpy(vector_D), dtype=torch.float64))
