"""The trimmed mean: per parameter the f lowest and f highest go, the rest is averaged.

Source: Yin et al. 2018, section 4 (coordinate-wise trimmed mean); needs 2 f < m. The values are not
sorted: a sorting network of minima and maxima over whole rows, from which every comparison has been
dropped that cannot move a value across the edge of the trimmed part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from daa_node.errors import RuleUnbounded
from daa_node.tensors import Int32Array
from daa_node.updates.grid import (
    GRID_MAX,
    dividend_peak,
    peak_of,
    round_div,
    round_div_int32,
)


class TrimmedMean:
    """`floor((2 S + k) / (2 k))` with S the sum of the k = m - 2 f_agg values that stay."""

    name = "trimmed_mean"

    def check_bound(self, m: int, f_agg: int) -> None:
        """Raises RuleUnbounded unless 0 <= 2 f_agg < m."""
        if not 0 <= 2 * f_agg < m:
            raise RuleUnbounded(self.name, m, f_agg, "2 f_agg < m")

    def aggregate_chunk(
        self, updates_NC: Int32Array, weights_N: Sequence[int], f_agg: int
    ) -> Int32Array:
        """The trimmed mean of N rows; weights have no meaning here."""
        self.check_bound(len(updates_NC), f_agg)
        rows = list(updates_NC)
        for comparison in trimming_network(len(rows), f_agg):
            low_C, high_C = rows[comparison.low], rows[comparison.high]
            if comparison.keeps_low:
                rows[comparison.low] = np.minimum(low_C, high_C)
            if comparison.keeps_high:
                rows[comparison.high] = np.maximum(low_C, high_C)
        kept = rows[f_agg : len(rows) - f_agg]
        peak = sum(peak_of(kept_C) for kept_C in kept)
        if dividend_peak(peak, 1, len(kept)) <= GRID_MAX:
            return _mean_int32(kept)
        total_C = kept[0].astype(np.float64)  # sums of int32 overflow int32; float64 is exact
        row_C = np.empty_like(total_C)
        for kept_C in kept[1:]:
            np.copyto(row_C, kept_C)
            np.add(total_C, row_C, out=total_C)
        return round_div(total_C, 1, len(kept), total_C).astype(np.int32)


def _mean_int32(kept: Sequence[Int32Array]) -> Int32Array:
    """The rounded mean of rows so small that no sum of theirs leaves int32."""
    total_C = kept[0].copy()
    for kept_C in kept[1:]:
        np.add(total_C, kept_C, out=total_C)
    return round_div_int32(total_C, 1, len(kept), total_C)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows `low` < `high` exchange so that the smaller value is in `low`; unused halves are off."""

    low: int
    high: int
    keeps_low: bool
    keeps_high: bool


@lru_cache(maxsize=64)
def trimming_network(m: int, f_agg: int) -> tuple[Comparison, ...]:
    """Comparisons after which rows f_agg to m - f_agg hold the middle values, in any order.

    Batcher's odd-even merge sort, walked backwards: `fate` says what a row is good for from there
    on. A comparison of two rows that share a fate as part of a set (both summed, or both trimmed)
    changes nothing; a half whose row is trimmed next is not computed.
    """
    trimmed, summed, compared = 0, 1, 2
    fate = [summed if f_agg <= row < m - f_agg else trimmed for row in range(m)]
    network: list[Comparison] = []
    for low, high in reversed(list(_batcher_pairs(m))):
        if fate[low] == fate[high] != compared:
            continue
        network.append(Comparison(low, high, fate[low] != trimmed, fate[high] != trimmed))
        fate[low] = fate[high] = compared
    return tuple(reversed(network))


def _batcher_pairs(m: int) -> Iterator[tuple[int, int]]:
    """Every exchange of an odd-even merge sort of m rows (Batcher 1968)."""
    span = 1
    while span < m:
        stride = span
        while stride >= 1:
            for first in range(stride % span, m - stride, 2 * stride):
                for low in range(first, min(first + stride, m - stride)):
                    if low // (2 * span) == (low + stride) // (2 * span):
                        yield low, low + stride
            stride //= 2
        span *= 2
