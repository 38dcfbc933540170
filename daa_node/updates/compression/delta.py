"""How an agreed aggregate is coded: dense where contributions are, else only the places it has.

A delta is what steps: whoever holds it and the base replays the step bit for bit. It is made from
grid integers by integers alone, so that all who aggregate one set come to the same bytes.
"""

from typing import Final, Protocol

import numpy as np

from daa_node.tensors import Int32Array, UInt8Array
from daa_node.updates.compression.blob import Blob
from daa_node.updates.compression.codec import codec_named
from daa_node.updates.compression.dense import INT8
from daa_node.updates.compression.top_k import TOP_K
from daa_node.updates.compression.union import UNION


class DeltaWriter(Protocol):
    """One delta in the making."""

    def add(self, grid_C: Int32Array) -> Int32Array:
        """The next parameters, in order: overwritten with what they decode to, and returned.

        A multiple of the format's blocks, or up to the last parameter and zeros to whole 64.
        """

    def blob(self) -> UInt8Array:
        """Of all D parameters, once they were added."""


class DeltaFormat(Protocol):
    """One format. A chunk starts at a multiple of `block_parameters`, which is one of 64."""

    @property
    def name(self) -> str: ...

    @property
    def block_parameters(self) -> int:
        """What is decoded together; CHUNK_PARAMETERS is a multiple of it."""

    def size_bytes_max(self, parameter_count: int) -> int:
        """The most bytes that a delta of D parameters has."""

    def writer(self, parameter_count: int) -> DeltaWriter: ...

    def check(self, blob: Blob, parameter_count: int) -> None:
        """Judges a peer's blob. Raises PeerFault("bad_update") with the rule that it breaks."""

    def decode_blocks(
        self, blob: Blob, start: int, parameter_count: int, out_C: Int32Array
    ) -> None:
        """Parameters from `start` on, onto the grid in `out_C`; past the last one zeros.

        `out_C` has room for a multiple of 64. The blob passed `check`.
        """

    def shifts(self, blob: Blob, start: int, stop: int, parameter_count: int) -> UInt8Array:
        """The exponents of each 64 parameters from `start` to `stop`, both multiples of 64."""


class _DenseWriter:
    """A DeltaWriter of int8."""

    def __init__(self, parameter_count: int) -> None:
        self._parameter_count = parameter_count
        self._blob = np.empty(INT8.encoded_size_bytes(parameter_count), np.uint8)
        self._start = 0

    def add(self, grid_C: Int32Array) -> Int32Array:
        """Overwritten and returned; see there."""
        start, self._start = self._start, self._start + grid_C.size
        return INT8.requantise_chunk(grid_C, start, self._blob, self._parameter_count)

    def blob(self) -> UInt8Array:
        """All of it has been written."""
        assert self._start >= self._parameter_count
        return self._blob


class DenseDelta:
    """A DeltaFormat: int8 of every parameter, 8.125 bits each."""

    name = INT8.name
    block_parameters = INT8.block_parameters
    decode_blocks = staticmethod(INT8.decode_blocks)
    shifts = staticmethod(INT8.shifts)
    size_bytes_max = staticmethod(INT8.encoded_size_bytes)

    def writer(self, parameter_count: int) -> _DenseWriter:
        return _DenseWriter(parameter_count)

    def check(self, blob: Blob, parameter_count: int) -> None:
        """As any int8 blob, without a cap: it is a quorum's and not one author's."""
        INT8.check(blob, parameter_count, None)


DENSE: Final = DenseDelta()


def delta_format_of(codec: str) -> DeltaFormat:
    """Of a network whose updates are in this codec, or in those that go with it."""
    sparse = codec_named(codec).residual_share == TOP_K.residual_share
    return UNION if sparse else DENSE
