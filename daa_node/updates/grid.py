"""The integer grid on which everybody must share every bit: 2^-24 in int32, rounded to nearest.

Source: docs/protocol.md, section 5. Weights, outer momentum, decoded contributions and the
aggregate are all multiples of 2^-24. Intermediates are float64 that hold integers under 2^53, where
every operation used here is exact; int64 would give the same bits at twice the time. Where a bound
on what comes in shows that nothing can leave int32, int32 gives the same bits in half the time.
"""

import numpy as np

from daa_node.tensors import Float32Array, Float64Array, Int32Array

GRID_EXPONENT = -24
GRID_ONE = 1 << -GRID_EXPONENT  # 1.0 on the grid
GRID_MAX = 2**31 - 1  # weights and momentum saturate at +-GRID_MAX: refusing would halt the chain
BLOCK = 64  # parameters that share one exponent
SHIFT_MAX = 24  # exponents -24 to 0: a shift of 0 to 24 onto the grid
# 256 KiB of int32: large enough that the cost of a numpy call vanishes, and what a step works on
# stays in the cache (measured: 172 ms for 10M parameters of 4 nodes at 2^13, 102 ms at 2^16).
CHUNK_PARAMETERS = 1 << 16
# Fp32, or on the grid: then a piece at a time becomes fp32, and never the whole.
Weights = Float32Array | Int32Array
# Numerators and denominators of outer rates: keeps 2 * n * x + d under 2^53 (see round_div).
RATE_TERM_MAX = 1 << 12


def block_count_of(parameter_count: int) -> int:
    """K, the blocks that hold D parameters; the last one is padded with zeros."""
    return -(-parameter_count // BLOCK)


def to_float32(weights_D: Int32Array, out_D: Float32Array | None = None) -> Float32Array:
    """The training copy of grid weights: `w * 2^-24`, rounded once to float32; `out_D` if given."""
    trained_from_D = np.empty(weights_D.shape, np.float32) if out_D is None else out_D
    for start in range(0, weights_D.size, CHUNK_PARAMETERS):
        exact_C = weights_D[start : start + CHUNK_PARAMETERS].astype(np.float64)
        exact_C *= 2.0**GRID_EXPONENT
        trained_from_D[start : start + CHUNK_PARAMETERS] = exact_C
    return trained_from_D


def float32_piece(weights_D: Weights, start: int, stop: int) -> Float32Array:
    """Parameters `start` to `stop` as they are trained: a view, or of the grid a copy."""
    if weights_D.dtype == np.float32:
        return weights_D[start:stop].view(np.float32)
    return to_float32(weights_D[start:stop].view(np.int32))


def all_finite(values_D: Float32Array) -> bool:
    """Whether each is a number; by pieces, so that no mask of the whole is made."""
    pieces = range(0, values_D.size, CHUNK_PARAMETERS)
    return all(bool(np.isfinite(values_D[at : at + CHUNK_PARAMETERS]).all()) for at in pieces)


def round_div(
    values_C: Float64Array, numerator: int, denominator: int, out_C: Float64Array
) -> Float64Array:
    """`floor((2 n x + d) / (2 d))`, which is `x * n / d` to nearest and halves upwards.

    `values_C` holds integers, `out_C` (which may be `values_C`) receives integers. The caller keeps
    `|2 n x + d|` under 2^53. Then the floor is exact: the dividend t and the divisor s = 2 d are
    exact, and division rounds correctly, so it never passes the integer k+1 above t/s, and could
    only reach it if the gap, at least 1/s, were within half a unit in the last place of t/s, which
    is at most |t/s| * 2^-53 < 1/s.
    """
    np.multiply(values_C, float(2 * numerator), out=out_C)
    np.add(out_C, float(denominator), out=out_C)
    np.divide(out_C, float(2 * denominator), out=out_C)
    return np.floor(out_C, out=out_C)


def round_div_int32(
    values_C: Int32Array, numerator: int, denominator: int, out_C: Int32Array
) -> Int32Array:
    """`round_div` within int32. The caller keeps `dividend_peak` of the values under 2^31."""
    np.multiply(values_C, 2 * numerator, out=out_C)
    np.add(out_C, denominator, out=out_C)
    return np.floor_divide(out_C, 2 * denominator, out=out_C)


def dividend_peak(peak: int, numerator: int, denominator: int) -> int:
    """The largest magnitude of `2 n x + d` where x is at most `peak`."""
    return 2 * abs(numerator) * peak + denominator


def quotient_peak(peak: int, numerator: int, denominator: int) -> int:
    """An upper bound on the magnitude of `round_div` where x is at most `peak`."""
    return dividend_peak(peak, numerator, denominator) // (2 * denominator) + 1


def peak_of(values_C: Int32Array) -> int:
    """The largest magnitude, exact for -2^31 too."""
    return max(int(values_C.max()), -int(values_C.min()))
