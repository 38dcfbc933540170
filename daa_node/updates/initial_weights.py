"""The first weights of a network, from its seed alone, in integers: no float, no torch.

Each tensor has its own stream of blake3 output, 8 bytes a parameter: four uniform 16-bit integers,
whose sum is close to normal (Irwin-Hall). Whoever knows the genesis can recompute every bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from blake3 import blake3

from daa_dag import canonical
from daa_node.tensors import Int32Array, TensorSpec, parameter_count_of, slots_of
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
    specs = [init.spec for init in inits]
    assert len({spec.name for spec in specs}) == len(specs)
    size = parameter_count_of(specs)
    # a plain array: slicing a memmap makes a memmap, ten times slower
    weights_D = np.empty(size, np.int32) if out_D is None else out_D.view(np.ndarray)
    assert weights_D.shape == (size,)
    for init, slot in zip(inits, slots_of(specs), strict=True):
        tensor_C = weights_D[slot.start : slot.stop]
        tensor_C[:] = init.fill
        if init.std:
            _add_noise(tensor_C, seed, init)
    return weights_D


def _add_noise(tensor_D: Int32Array, seed: bytes, init: TensorInit) -> None:
    assert 0 < init.std <= STD_MAX
    stream = blake3(canonical.encode(["daa/v1/initial weights", seed, init.spec.name]))
    half = 1 << (_INVERSE_SHIFT - 1)
    for start in range(0, tensor_D.size, CHUNK_PARAMETERS):
        stop = min(start + CHUNK_PARAMETERS, tensor_D.size)
        size_bytes = (stop - start) * BYTES_PER_PARAMETER
        random_bytes = stream.digest(length=size_bytes, seek=start * BYTES_PER_PARAMETER)
        uniform_C4 = np.frombuffer(random_bytes, "<u2").reshape(-1, 4)
        noise_C = uniform_C4.sum(axis=1, dtype=np.int64) - _MEAN_OF_SUM
        tensor_D[start:stop] += (
            (noise_C * (init.std * _INVERSE_DEVIATION) + half) >> _INVERSE_SHIFT
        ).astype(np.int32)
