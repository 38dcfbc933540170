"""Steps from the genesis on that every node takes: by its own device, and by canonical kernels.

What they see is a pure function of the genesis, and so is where canonical kernels lead. How far off
a device ends is how it rounds, which is what a check of its work has to tolerate.
"""

from collections.abc import Callable

import numpy as np

from daa_dag.ids import BlobRoot, Digest, NodeId, tagged_digest
from daa_node.seams import SegmentCheck, SegmentOrder
from daa_node.spot_checks import recompute
from daa_node.training.boundaries import Boundary
from daa_node.training.config import TrainingJob
from daa_node.training.datasets.examples import Examples
from daa_node.training.exact_replay import replay_exactly
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.inner_loop import InnerLoop
from daa_node.training.sealed_claims import Claim
from daa_node.training.segment_check import optimiser_of, train_again
from daa_node.updates.grid import to_float32

NOBODY = NodeId(bytes(32))  # takes them: batches are those of an author
NO_ROOT = BlobRoot(bytes(32))


def first_boundary(job: TrainingJob) -> Boundary:
    """Where the first step begins."""
    weights_D = to_float32(genesis_weights(job.model, job.seed))
    none_D = np.zeros_like(weights_D)
    return Boundary(weights_D, none_D, none_D.copy(), None, 0)


def canary_order(job: TrainingJob, step: int, steps: int) -> SegmentOrder:
    """So many steps, from the one of that index."""
    seed = Digest(tagged_digest("canary", [job.seed]))
    return SegmentOrder(seed, 0, NOBODY, 0, step, steps, NO_ROOT, NO_ROOT, None)


def take_canary(
    job: TrainingJob,
    examples: Examples,
    loop: InnerLoop,
    step: int,
    is_cancelled: Callable[[], bool],
) -> tuple[SegmentCheck, bool]:
    """How far our device's step is from the canonical one, and whether it comes out so again.

    The steps before it are taken by our device. Raises TrainerFailed when cancelled.
    """

    def taken(start: Boundary, first: int, steps: int) -> Boundary:
        optimiser = optimiser_of(start, loop)
        order = canary_order(job, first, steps)
        values_D = train_again(job, examples, loop, order, start, optimiser, is_cancelled).values_D
        moments = optimiser.moments()
        first_D, second_D = moments.first_D.copy(), moments.second_D.copy()
        return Boundary(values_D.copy(), first_D, second_D, None, moments.steps)

    start = first_boundary(job)
    if step:
        start = taken(start, 0, step)
    end, again = taken(start, step, 1), taken(start, step, 1)
    repeats = all(
        np.array_equal(ours_D, theirs_D)
        for ours_D, theirs_D in (
            (end.weights_D, again.weights_D),
            (end.first_D, again.first_D),
            (end.second_D, again.second_D),
        )
    )
    # with what is rounding alone: checks look at that, too
    found = replay_exactly(
        *(job, examples, canary_order(job, step, 1), Claim(start, end, None), is_cancelled),
        distance_of=recompute.distance,
    )
    return found, repeats
