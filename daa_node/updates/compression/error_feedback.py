"""Error feedback: what the codec lost this round is added to what is sent in the next one.

Source: Seide et al. 2014 (1-bit SGD); Karimireddy et al. 2019 show why it mends biased codecs.
The residual is the caller's to keep: it belongs to one author and one codec run.
"""

from daa_node.tensors import Float32Array


def with_residual(clipped_C: Float32Array, residual_C: Float32Array | None) -> Float32Array:
    """What is encoded: the pseudo-gradient and what earlier rounds still owe. In place."""
    if residual_C is not None:
        clipped_C += residual_C
    return clipped_C


def residual_after(wanted_C: Float32Array, decoded_C: Float32Array) -> Float32Array:
    """What the codec could not carry this time; exact, since both share an exponent range."""
    remaining_C: Float32Array = wanted_C - decoded_C
    return remaining_C
