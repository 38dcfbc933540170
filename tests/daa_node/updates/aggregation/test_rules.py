"""Mean and trimmed mean against slow twins in Python's integers, and their bounds."""

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from daa_node.errors import RuleUnbounded
from daa_node.tensors import Int32Array
from daa_node.updates.aggregation.mean import WEIGHT_TOTAL_MAX, scaled_weights
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.aggregation.trimmed_mean import trimming_network
from daa_node.updates.grid import GRID_MAX

MakeGrid = Callable[[str, int, int], Int32Array]
TOP = 127 << 24


def plain_mean(column: Sequence[int], weights: Sequence[int]) -> int:
    total = sum(weights)
    return (2 * sum(w * x for w, x in zip(weights, column, strict=True)) + total) // (2 * total)


def plain_trimmed_mean(column: Sequence[int], f_agg: int) -> int:
    kept = sorted(column)[f_agg : len(column) - f_agg]
    return (2 * sum(kept) + len(kept)) // (2 * len(kept))


def updates(make_grid: MakeGrid, n: int, label: str) -> Int32Array:
    rows = [make_grid(f"{label} {i}", 300, 31).clip(-TOP, TOP) for i in range(n)]
    rows_NC = np.stack(rows)
    rows_NC[:, 0], rows_NC[:, 1], rows_NC[:, 2] = TOP, -TOP, 5
    rows_NC[:, 10:150] >>= 27  # many ties
    return rows_NC


def test_the_mean_equals_its_slow_twin_for_any_weights(make_grid: MakeGrid) -> None:
    for n in (1, 2, 5, 16):
        rows_NC = updates(make_grid, n, "mean")
        weights = [random.Random(n * 100 + i).randrange(1, 60_000) for i in range(n)]
        weights[0] = 0 if n > 1 else 1
        merged_C = rule_named("mean").aggregate_chunk(rows_NC, weights, 0)
        assert merged_C.dtype == np.int32
        assert merged_C.tolist() == [plain_mean(c, weights) for c in rows_NC.T.tolist()]


def test_the_heaviest_weights_at_the_ends_of_the_grid_do_not_overflow() -> None:
    weights = [WEIGHT_TOTAL_MAX - 3, 2, 1]
    columns = [[TOP, -TOP, TOP], [-TOP, -TOP, -TOP], [TOP, TOP, TOP], [TOP, TOP - 1, -TOP]]
    rows_NC = np.array(columns, np.int32).T.copy()
    merged_C = rule_named("mean").aggregate_chunk(rows_NC, weights, 0)
    assert merged_C.tolist() == [plain_mean(c, weights) for c in columns]


def test_weights_of_any_size_shrink_in_proportion_and_in_any_order() -> None:
    tokens = [10**12, 3 * 10**12, 1, 0, 5 * 10**11]
    scaled = scaled_weights(tokens)
    assert sum(scaled) <= WEIGHT_TOTAL_MAX
    assert scaled[3] == 0
    assert scaled[2] == 1
    assert scaled[1] / scaled[0] == pytest.approx(3, rel=1e-5)
    assert scaled_weights(tokens[::-1]) == scaled[::-1]
    assert scaled_weights([WEIGHT_TOTAL_MAX // 2] * 2) == [WEIGHT_TOTAL_MAX // 2] * 2
    assert sum(scaled_weights([2**40] + [1] * 500)) <= WEIGHT_TOTAL_MAX


def test_the_trimmed_mean_equals_sorting_for_every_size_and_f(make_grid: MakeGrid) -> None:
    for n in range(1, 18):
        rows_NC = updates(make_grid, n, "trimmed")
        before_NC = rows_NC.copy()
        for f_agg in range((n + 1) // 2):
            merged_C = rule_named("trimmed_mean").aggregate_chunk(rows_NC, [1] * n, f_agg)
            expected = [plain_trimmed_mean(c, f_agg) for c in rows_NC.T.tolist()]
            assert merged_C.tolist() == expected, (n, f_agg)
        assert np.array_equal(rows_NC, before_NC)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_the_trimmed_mean_is_the_same_on_both_sides_of_where_int32_ends(n: int) -> None:
    for f_agg in range((n + 1) // 2):
        kept = n - 2 * f_agg
        edge = (GRID_MAX - kept) // (2 * kept * kept)  # above it a sum of peaks leaves int32
        for peak in (edge - 1, edge, edge + 1, edge * kept, edge * kept + 1):
            for signs in itertools.product((1, -1), repeat=n):
                column = [sign * min(peak, TOP) for sign in signs]
                rows_NC = np.array([column, column[::-1]], np.int32).T.copy()
                merged_C = rule_named("trimmed_mean").aggregate_chunk(rows_NC, [1] * n, f_agg)
                assert merged_C.tolist() == [plain_trimmed_mean(column, f_agg)] * 2


def test_the_network_keeps_the_middle_of_every_zero_one_input() -> None:
    # A network of exchanges is right on all inputs if it is right on all zeros and ones.
    for m, f_agg in itertools.product(range(1, 11), range(5)):
        if 2 * f_agg >= m:
            continue
        inputs = np.array(list(itertools.product((0, 1), repeat=m)), np.int8).T
        rows = list(inputs)
        for c in trimming_network(m, f_agg):
            low, high = rows[c.low], rows[c.high]
            rows[c.low] = np.minimum(low, high) if c.keeps_low else rows[c.low]
            rows[c.high] = np.maximum(low, high) if c.keeps_high else rows[c.high]
        kept = np.sum(rows[f_agg : m - f_agg], axis=0)
        assert np.array_equal(kept, np.sort(inputs, axis=0)[f_agg : m - f_agg].sum(axis=0))


def test_four_rows_lose_their_extremes_in_six_operations() -> None:
    network = trimming_network(4, 1)
    assert sum(c.keeps_low + c.keeps_high for c in network) == 6


@pytest.mark.parametrize("rule", ["mean", "trimmed_mean"])
def test_no_order_of_arrival_changes_a_bit(rule: str, make_grid: MakeGrid) -> None:
    rows_NC = updates(make_grid, 4, "order")
    weights = [2**40, 3**20, 17, 999]
    f_agg = 0 if rule == "mean" else 1
    expected = rule_named(rule).aggregate_chunk(rows_NC, weights, f_agg)
    for order in itertools.permutations(range(4)):
        merged = rule_named(rule).aggregate_chunk(
            rows_NC[list(order)], [weights[i] for i in order], f_agg
        )
        assert np.array_equal(merged, expected)


def test_f_liars_cannot_move_the_trimmed_mean_past_the_honest(make_grid: MakeGrid) -> None:
    honest_NC = updates(make_grid, 5, "honest")
    for lie in (TOP, -TOP):
        rows_NC = np.concatenate([honest_NC, np.full((2, 300), lie, np.int32)])
        merged_C = rule_named("trimmed_mean").aggregate_chunk(rows_NC, [1] * 7, 2)
        assert (merged_C >= honest_NC.min(axis=0)).all()
        assert (merged_C <= honest_NC.max(axis=0)).all()


@pytest.mark.parametrize(
    ("rule", "m", "f_agg"),
    [
        ("mean", 0, 0),
        ("mean", 4, 1),
        ("trimmed_mean", 0, 0),
        ("trimmed_mean", 2, 1),
        ("trimmed_mean", 4, 2),
        ("trimmed_mean", 3, -1),
    ],
)
def test_a_rule_outside_its_bound_is_refused_with_both_numbers(
    rule: str, m: int, f_agg: int
) -> None:
    with pytest.raises(RuleUnbounded, match=f"{rule} over m={m} .* f_agg={f_agg}") as refused:
        rule_named(rule).check_bound(m, f_agg)
    assert (refused.value.m, refused.value.f_agg) == (m, f_agg)
    if m:
        with pytest.raises(RuleUnbounded):
            rule_named(rule).aggregate_chunk(np.zeros((m, 64), np.int32), [1] * m, f_agg)


def test_the_bound_itself_is_enough() -> None:
    rule_named("mean").check_bound(1, 0)
    for m, f_agg in ((1, 0), (3, 1), (5, 2)):
        rule_named("trimmed_mean").check_bound(m, f_agg)


@pytest.mark.parametrize("weights", [[0, 0], [-1, 5]])
def test_a_mean_without_weight_is_refused(weights: list[int]) -> None:
    with pytest.raises(RuleUnbounded, match="weights of at least 0, one above 0"):
        rule_named("mean").aggregate_chunk(np.zeros((2, 64), np.int32), weights, 0)
