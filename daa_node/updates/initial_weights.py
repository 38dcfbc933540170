"""The first weights of a network, from its seed alone, in integers: no float, no torch.

Each tensor has its own stream of blake3 output, 8 bytes a parameter: four uniform 16-bit integers,
whose sum is close to normal (Irwin-Hall). Whoever knows the genesis can recompute every bit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from blake3 import blake3

from daa_dag import canonical
from daa_node.tensors import Int32Array, TensorSpec, parameter_count_of
from daa_node.updates.grid import CHUNK_PARAMETERS, GRID_ONE

BYTES_PER_PARAMETER = 8
_MEAN_OF_SUM = 2 * (2**16 - 1)
# The sum of four has a standard deviation of sqrt((2^32 - 1) / 3) = 37837.2; divide by it as
# multiply and shift: 2^35 / 37837.2 = 908097, so the deviation is right to 1 in a million.
_INVERSE_DEVIATION = 908_097
_INVERSE_SHIFT = 35
STD_MAX = 2 * GRID_ONE  # 131070 * 2^25 * 908097 is under 2^62


@dataclass(frozen=True, slots=True)
class TensorInit:
    """How one tensor starts: `fill`, plus near-normal noise of deviation `std`; both in 2^-24."""

    spec: TensorSpec
    std: int = 0
    fill: int = 0


def initial_weights(
    seed: bytes, inits: Sequence[TensorInit], out_D: Int32Array | None = None
) -> Int32Array:
    """The D grid weights of all tensors in order; names must differ, for each names a stream.

    They come into `out_D` if given, which may be a memory map.
    """
    size = parameter_count_of([init.spec for init in inits])
    # a plain array: slicing a memmap makes a memmap, ten times slower
    weights_D = np.empty(size, np.int32) if out_D is None else out_D.view(np.ndarray)
    assert weights_D.shape == (size,)
    at = 0
    for piece_C in initial_pieces(seed, inits):
        weights_D[at : at + piece_C.size] = piece_C
        at += piece_C.size
    return weights_D


def initial_pieces(seed: bytes, inits: Sequence[TensorInit]) -> Iterator[Int32Array]:
    """The same, CHUNK_PARAMETERS at a time and at most: each tensor starts a piece.

    So a state is cut into chunks as well, and its root needs no memory that grows with the model.
    """
    assert len({init.spec.name for init in inits}) == len(inits)
    for init in inits:
        stream = blake3(canonical.encode(["daa/v1/initial weights", seed, init.spec.name]))
        for start in range(0, init.spec.size, CHUNK_PARAMETERS):
            count = min(CHUNK_PARAMETERS, init.spec.size - start)
            piece_C = np.full(count, init.fill, np.int32)
            if init.std:
                piece_C += _noise(stream, start, count, init.std)
            yield piece_C


def _noise(stream: blake3, start: int, count: int, std: int) -> Int32Array:
    assert 0 < std <= STD_MAX
    random_bytes = stream.digest(
        length=count * BYTES_PER_PARAMETER, seek=start * BYTES_PER_PARAMETER
    )
    uniform_C4 = np.frombuffer(random_bytes, "<u2").reshape(-1, 4)
    noise_C = uniform_C4.sum(axis=1, dtype=np.int64) - _MEAN_OF_SUM
    half = 1 << (_INVERSE_SHIFT - 1)
    drawn_C: Int32Array = ((noise_C * (std * _INVERSE_DEVIATION) + half) >> _INVERSE_SHIFT).astype(
        np.int32
    )
    return drawn_C
