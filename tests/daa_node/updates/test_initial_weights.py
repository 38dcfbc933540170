"""First weights: a pure function of the seed, near normal, one stream a tensor."""

import numpy as np
import pytest
from blake3 import blake3

from daa_dag import canonical
from daa_node.tensors import TensorSpec
from daa_node.updates.grid import CHUNK_PARAMETERS, GRID_ONE
from daa_node.updates.initial_weights import STD_MAX, TensorInit, initial_weights

SEED = bytes(range(32))
STD = GRID_ONE // 50


def tensor(name: str, size: int, std: int = STD, fill: int = 0) -> TensorInit:
    return TensorInit(TensorSpec(name, (size,)), std, fill)


def test_each_weight_follows_the_words_of_the_recipe() -> None:
    size = CHUNK_PARAMETERS + 5
    weights_D = initial_weights(SEED, [tensor("w", size, STD, 7)])
    stream = blake3(canonical.encode(["daa/v1/initial weights", SEED, "w"])).digest(8 * size)
    for index in (0, 1, CHUNK_PARAMETERS - 1, CHUNK_PARAMETERS, size - 1):
        words = np.frombuffer(stream[8 * index : 8 * index + 8], "<u2").tolist()
        noise = ((sum(words) - 131070) * STD * 908097 + 2**34) >> 35
        assert weights_D[index] == noise + 7


def test_the_noise_has_the_mean_deviation_and_tails_of_a_normal() -> None:
    weights_D = initial_weights(SEED, [tensor("w", 400_000)]) / STD
    assert abs(weights_D.mean()) < 0.01
    assert weights_D.std() == pytest.approx(1, abs=0.01)
    assert np.mean(np.abs(weights_D) < 1) == pytest.approx(0.683, abs=0.02)
    assert 2.5 < np.abs(weights_D).max() <= 3.47


def test_a_tensor_keeps_its_weights_whatever_stands_before_it() -> None:
    alone = initial_weights(SEED, [tensor("b", 100)])
    after = initial_weights(SEED, [tensor("a", 33), tensor("b", 100)])
    assert np.array_equal(after[33:], alone)
    assert not np.array_equal(after[:33], alone[:33])


def test_another_seed_gives_other_weights() -> None:
    first = initial_weights(SEED, [tensor("a", 100)])
    assert not np.array_equal(first, initial_weights(bytes(32), [tensor("a", 100)]))


def test_no_deviation_means_a_constant() -> None:
    weights_D = initial_weights(SEED, [tensor("g", 5, 0, GRID_ONE), tensor("z", 3, 0)])
    assert weights_D.tolist() == [GRID_ONE] * 5 + [0] * 3


def test_the_largest_deviation_does_not_overflow() -> None:
    weights_D = initial_weights(SEED, [tensor("w", 100_000, STD_MAX)])
    assert weights_D.std() == pytest.approx(STD_MAX, rel=0.02)
