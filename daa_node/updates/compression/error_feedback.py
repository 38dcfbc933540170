"""Error feedback: what the codec lost this round is added to what is sent in the next one.

Source: Seide et al. 2014 (1-bit SGD); Karimireddy et al. 2019 show why it mends biased codecs. A
sparse codec forgets a little of it every round (Sarfi et al. 2025). The residual is the caller's to
keep: it belongs to one author and one codec run.
"""

import numpy as np

from daa_node.tensors import Float32Array


def with_residual(
    clipped_C: Float32Array, residual_C: Float32Array | None, share: float
) -> Float32Array:
    """What is encoded: the pseudo-gradient and that share of what earlier rounds owe. In place."""
    if residual_C is not None:
        clipped_C += residual_C if share == 1.0 else residual_C * np.float32(share)
    return clipped_C


def residual_after(wanted_C: Float32Array, decoded_C: Float32Array) -> Float32Array:
    """What the codec could not carry this time; exact, since both share an exponent range."""
    remaining_C: Float32Array = wanted_C - decoded_C
    return remaining_C
