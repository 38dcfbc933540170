"""From trained weights to a sealed blob: trained -> pseudo_gradient -> clipped -> wanted -> sealed.

Streams over chunks; holds the blob, the next residual and a few chunks, never a second model.
Floats: what leaves here is integers, and only those must be the same for everybody.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from daa_node.errors import NotFinite
from daa_node.tensors import Float32Array, UInt8Array
from daa_node.updates.compression.codec import Codec
from daa_node.updates.compression.error_feedback import residual_after, with_residual
from daa_node.updates.grid import CHUNK_PARAMETERS, Weights, float32_piece
from daa_node.updates.privacy.clip import clip_factor, squared_norm

# L2 of `base - trained`; raises NotFinite
NormOf = Callable[[Weights, Float32Array], float]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A contribution ready to be offered, and what its author keeps for the next round."""

    blob: UInt8Array
    residual_D: Float32Array | None  # None without error feedback
    norm: float  # L2 of the pseudo-gradient before clipping
    clip_factor: float  # 1.0 when nothing was clipped


def l2_norm(base_D: Weights, trained_D: Float32Array) -> float:
    """Of the pseudo-gradient, in float64. Raises NotFinite."""
    total = 0.0
    for start, stop in _chunks(base_D.size):
        pseudo_gradient_C = float32_piece(base_D, start, stop) - trained_D[start:stop]
        part = squared_norm(pseudo_gradient_C)
        if not np.isfinite(part):
            index = start + int(np.argmin(np.isfinite(pseudo_gradient_C)))
            raise NotFinite("trained weights", index)
        total += part
    return float(np.sqrt(total))


def seal(
    base_D: Weights,
    trained_D: Float32Array,
    residual_D: Float32Array | None,
    codec: Codec,
    clip_norm: float | None,
    room_D: Float32Array | None = None,
    norm_of: NormOf = l2_norm,
) -> Sealed:
    """`base - trained`, clipped, with what earlier rounds owe, encoded.

    `residual_D` None means no error feedback; a first round with it passes zeros. Inputs are
    not changed. The next residual is written into `room_D` if given. All but the norm, which
    `norm_of` the two gives, is the same on every machine. Raises NotFinite when the
    training result, or what is left of it, is not finite.
    """
    assert base_D.shape == trained_D.shape
    parameter_count = base_D.size
    norm = norm_of(base_D, trained_D)
    factor = clip_factor(norm, clip_norm)
    blob = np.zeros(codec.encoded_size_bytes(parameter_count), np.uint8)
    residual_next_D = None
    if residual_D is not None:
        residual_next_D = np.empty(parameter_count, np.float32) if room_D is None else room_D
    for start, stop in _chunks(parameter_count):
        pseudo_gradient_C = float32_piece(base_D, start, stop) - trained_D[start:stop]
        clipped_C = pseudo_gradient_C * np.float32(factor) if factor != 1.0 else pseudo_gradient_C
        owed_C = None if residual_D is None else residual_D[start:stop]
        wanted_C = with_residual(clipped_C, owed_C, codec.residual_share)
        decoded_C = codec.encode_chunk(wanted_C, start, blob, parameter_count)
        if residual_next_D is not None:
            residual_next_D[start:stop] = residual_after(wanted_C, decoded_C)
    return Sealed(blob, residual_next_D, norm, factor)


def _chunks(parameter_count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, parameter_count, CHUNK_PARAMETERS):
        yield start, min(start + CHUNK_PARAMETERS, parameter_count)
