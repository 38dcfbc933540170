"""Held-out loss on always the same examples, so that any two evaluations can be compared."""

from collections.abc import Callable

import numpy as np

from daa_node.tensors import Int64Array
from daa_node.training.config import EvaluationConfig


def heldout_indices(config: EvaluationConfig, heldout_count: int) -> Int64Array:
    """Evenly spread over the held-out examples; all of them if there are no more than asked for."""
    count = min(config.windows, heldout_count)
    return np.arange(count, dtype=np.int64) * heldout_count // count


def mean_loss(
    config: EvaluationConfig, heldout_count: int, loss_of: Callable[[Int64Array], float]
) -> float:
    """Nats a prediction, the mean over the fixed held-out examples, summed in fp64."""
    indices = heldout_indices(config, heldout_count)
    total = 0.0
    for start in range(0, len(indices), config.batch_windows):
        batch = indices[start : start + config.batch_windows]
        total += loss_of(batch) * len(batch)
    return total / len(indices)
