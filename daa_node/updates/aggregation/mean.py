"""The weighted mean: what everybody should get when nobody lies. One liar moves it anywhere."""

from collections.abc import Sequence

import numpy as np

from daa_node.errors import RuleUnbounded
from daa_node.tensors import Int32Array
from daa_node.updates.grid import round_div

# 2 * sum(w x) + W stays under 2^53, where float64 holds every integer: 2 * 2^20 * 2^31 + 2^20.
WEIGHT_TOTAL_MAX = 1 << 20


class Mean:
    """`floor((2 sum(w x) + W) / (2 W))` with W the sum of the weights; f_agg must be 0."""

    name = "mean"

    def check_bound(self, m: int, f_agg: int) -> None:
        """Raises RuleUnbounded unless m >= 1 and f_agg = 0."""
        if m < 1 or f_agg != 0:
            raise RuleUnbounded(self.name, m, f_agg, "m >= 1 and f_agg = 0")

    def aggregate_chunk(
        self, updates_NC: Int32Array, weights_N: Sequence[int], f_agg: int
    ) -> Int32Array:
        """The mean of N rows; weights are integers of any size. Raises RuleUnbounded."""
        self.check_bound(len(updates_NC), f_agg)
        scaled_N = scaled_weights(weights_N)
        total_C = np.zeros(updates_NC.shape[1], np.float64)
        row_C = np.empty_like(total_C)
        for update_C, weight in zip(updates_NC, scaled_N, strict=True):
            np.copyto(row_C, update_C)
            np.multiply(row_C, float(weight), out=row_C)
            np.add(total_C, row_C, out=total_C)
        return round_div(total_C, 1, sum(scaled_N), total_C).astype(np.int32)


def scaled_weights(weights_N: Sequence[int]) -> list[int]:
    """The weights, shrunk in proportion if their sum is above WEIGHT_TOTAL_MAX.

    Raises RuleUnbounded if one is negative, or none is above 0.
    Nobody who had weight loses all of it; each result depends on its own weight and the sum only,
    so the order of arrival changes nothing.
    """
    total = sum(weights_N)
    if min(weights_N) < 0 or total == 0:
        raise RuleUnbounded(Mean.name, len(weights_N), 0, "weights of at least 0, one above 0")
    if total <= WEIGHT_TOTAL_MAX:
        return list(weights_N)
    room = WEIGHT_TOTAL_MAX - len(weights_N)  # what rounding up to 1 may add
    return [max(1, weight * room // total) if weight else 0 for weight in weights_N]
