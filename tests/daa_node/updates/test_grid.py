"""Rounding on the grid against Python's integers, at the extremes and in between."""

import random
from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daa_node.updates.grid import (
    CHUNK_PARAMETERS,
    GRID_MAX,
    RATE_TERM_MAX,
    block_count_of,
    round_div,
    to_float32,
)

# |R(mu v) + g| is at most this before the learning rate multiplies it.
STEP_MAX = 2**32
# A weighted sum of int32 under the cap on the weights.
SUM_MAX = 2**51


def rounded(values: list[int], numerator: int, denominator: int) -> list[int]:
    values_C = np.array(values, np.float64)
    return [int(v) for v in round_div(values_C, numerator, denominator, values_C)]


def plain(value: int, numerator: int, denominator: int) -> int:
    return floor(Fraction(value * numerator, denominator) + Fraction(1, 2))


def around(centre: int) -> list[int]:
    return list(range(centre - 25, centre + 26))


def test_rounding_agrees_with_fractions_at_every_extreme() -> None:
    ratios = [(7, 10), (6, 10), (0, 1), (1, 1), (4, 1), (9, 10), (99, 100)]
    ratios += [(RATE_TERM_MAX, RATE_TERM_MAX // 4), (RATE_TERM_MAX - 1, RATE_TERM_MAX)]
    ratios += [(1, RATE_TERM_MAX - 1), (4091, 4093)]
    values = [v for c in (0, GRID_MAX, 2**24, STEP_MAX) for s in (1, -1) for v in around(s * c)]
    for n, d in ratios:
        assert rounded(values, n, d) == [plain(v, n, d) for v in values], (n, d)


def test_sums_just_beside_a_half_of_the_largest_divisor_round_as_integers_do() -> None:
    rng = random.Random(5)
    for divisor in (2**20, 2**20 - 1, 3, 2):
        wholes = [rng.randrange(-SUM_MAX // divisor, SUM_MAX // divisor) for _ in range(300)]
        values = [k * divisor + divisor // 2 + nudge for k in wholes for nudge in (-1, 0, 1)]
        assert rounded(values, 1, divisor) == [plain(v, 1, divisor) for v in values]


@given(
    st.lists(st.integers(-STEP_MAX, STEP_MAX), min_size=1, max_size=20),
    st.integers(0, RATE_TERM_MAX),
    st.integers(1, RATE_TERM_MAX),
)
def test_rounding_agrees_with_fractions_for_any_rate(values: list[int], n: int, d: int) -> None:
    assert rounded(values, n, d) == [plain(v, n, d) for v in values]


def test_halves_round_upwards_on_both_sides_of_zero() -> None:
    assert rounded([-3, -1, 1, 3], 1, 2) == [-1, 0, 1, 2]


def test_the_training_copy_is_the_nearest_float32_of_each_weight() -> None:
    rng = np.random.default_rng(3)
    weights_D = rng.integers(-GRID_MAX, GRID_MAX, CHUNK_PARAMETERS + 77).astype(np.int32)
    weights_D[:4] = [GRID_MAX, -GRID_MAX, 1, 0]
    expected_D = (weights_D.astype(np.float64) * 2.0**-24).astype(np.float32)
    assert np.array_equal(to_float32(weights_D), expected_D)


def test_the_last_block_may_be_short() -> None:
    assert [block_count_of(d) for d in (1, 63, 64, 65, 128)] == [1, 1, 1, 2, 2]
