"""Held-out loss: always the same examples, weighed alike."""

import numpy as np
import pytest

from daa_node.tensors import Int64Array
from daa_node.training.config import EvaluationConfig
from daa_node.training.evaluation import heldout_indices, mean_loss


def test_examples_are_spread_evenly_and_each_is_used_once() -> None:
    indices = heldout_indices(EvaluationConfig(windows=7), 1000)
    assert indices.tolist() == [0, 142, 285, 428, 571, 714, 857]
    few = heldout_indices(EvaluationConfig(windows=50), 20)
    assert few.tolist() == list(range(20))


def test_the_last_short_batch_weighs_no_more_than_its_examples() -> None:
    config = EvaluationConfig(windows=10, batch_windows=4)
    seen: list[int] = []

    def loss_of(indices_B: Int64Array) -> float:
        seen.extend(indices_B.tolist())
        return float(indices_B.mean())

    assert mean_loss(config, 10, loss_of) == pytest.approx(np.arange(10).mean())
    assert seen == list(range(10))
