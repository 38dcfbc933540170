"""The dense codecs: small signed mantissas and one power-of-two exponent for every 64 parameters.

A blob is the packed mantissas, zero-padded to whole blocks, then one byte a block: `shift =
exponent + 24`, 0 to 24. Its length follows from the codec and D, so it carries no header. A
parameter decodes to `mantissa << shift` on the grid, which always fits int32. K blocks, C a chunk.

Source: docs/protocol.md, section 5; a power of two makes scaling exact in any arithmetic.
"""

from typing import Final, Protocol, TypeVar

import numpy as np

from daa_node.errors import NotFinite
from daa_node.tensors import Float32Array, Int8Array, Int32Array, Int64Array, UInt8Array
from daa_node.updates.compression.blob import Blob, bad_update, bytes_of
from daa_node.updates.compression.int4 import Int4Packing
from daa_node.updates.compression.int8 import Int8Packing
from daa_node.updates.grid import (
    BLOCK,
    CHUNK_PARAMETERS,
    GRID_EXPONENT,
    SHIFT_MAX,
    block_count_of,
)

FloatOrGrid = TypeVar("FloatOrGrid", Float32Array, Int32Array)

_SHIFTS = np.arange(SHIFT_MAX + 1)
_GRID_SCALES: Final = np.left_shift(1, _SHIFTS).astype(np.int32)
_HALVES: Final = _GRID_SCALES >> 1  # what rounds `>> shift` to nearest; 0 where nothing is shifted
_UNSCALES: Final = np.exp2(-(_SHIFTS + GRID_EXPONENT)).astype(np.float32)
_SCALES: Final = np.exp2(_SHIFTS + GRID_EXPONENT).astype(np.float32)


class Packing(Protocol):
    """How mantissas of one width lie in bytes."""

    @property
    def name(self) -> str: ...

    @property
    def mantissa_max(self) -> int: ...

    @property
    def block_bytes(self) -> int: ...

    def pack(self, mantissas_C: Int8Array, out: UInt8Array) -> None: ...

    def unpack(self, packed: UInt8Array) -> Int8Array: ...


class DenseCodec:
    """A Codec (see there) of one packing, that also encodes grid integers."""

    block_parameters = BLOCK
    residual_share = 1.0

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        limit = packing.mantissa_max
        # The least shift whose largest mantissa still rounds to at most `limit`.
        self.float_thresholds: Float32Array = ((limit + 0.5) * _SCALES[:-1]).astype(np.float32)
        self.grid_thresholds: Int64Array = (((2 * limit + 1) << _SHIFTS[:-1]) - 1) // 2

    @property
    def name(self) -> str:
        return self._packing.name

    @property
    def mantissa_max(self) -> int:
        return self._packing.mantissa_max

    @property
    def block_bytes(self) -> int:
        return self._packing.block_bytes + 1

    def encoded_size_bytes(self, parameter_count: int) -> int:
        """The one length that a blob of D parameters has."""
        return block_count_of(parameter_count) * self.block_bytes

    def packed(self, blob: Blob, start: int, stop: int) -> UInt8Array:
        """The mantissa bytes of parameters `start` to `stop`, both multiples of 64: a view."""
        block_bytes = self._packing.block_bytes
        return bytes_of(blob)[start // BLOCK * block_bytes : stop // BLOCK * block_bytes]

    def shifts(self, blob: Blob, start: int, stop: int, parameter_count: int) -> UInt8Array:
        """The exponent bytes of parameters `start` to `stop`, both multiples of 64: a view."""
        at = block_count_of(parameter_count) * self._packing.block_bytes
        return bytes_of(blob)[at + start // BLOCK : at + stop // BLOCK]

    def encode_chunk(
        self, values_C: Float32Array, start: int, blob: UInt8Array, parameter_count: int
    ) -> Float32Array:
        """Each value to the nearest multiple of its block's scale, from parameter `start` on.

        Values past the largest mantissa at exponent 0 saturate. Raises NotFinite.
        """
        count, values_C = values_C.size, _padded(values_C)
        peaks_K = _block_peaks(values_C)
        if not np.isfinite(peaks_K).all():
            raise NotFinite("update", start + int(np.argmin(np.isfinite(values_C))))
        shifts_K = np.searchsorted(self.float_thresholds, peaks_K, side="right")
        scaled_KB = values_C.reshape(-1, BLOCK) * _UNSCALES[shifts_K][:, None]
        np.rint(scaled_KB, out=scaled_KB)
        limit = float(self.mantissa_max)
        if peaks_K.max() > limit:  # only then can the largest exponent be too small
            np.clip(scaled_KB, -limit, limit, out=scaled_KB)
        stop = start + values_C.size
        self._packing.pack(scaled_KB.astype(np.int8).reshape(-1), self.packed(blob, start, stop))
        self.shifts(blob, start, stop, parameter_count)[:] = shifts_K
        scaled_KB *= _SCALES[shifts_K][:, None]
        return scaled_KB.reshape(-1)[:count]

    def requantise_chunk(
        self, grid_C: Int32Array, start: int, blob: UInt8Array, parameter_count: int
    ) -> Int32Array:
        """The same for grid integers, in integers only: `(g + half) >> shift`, halves upwards.

        Overwrites `grid_C` with what the blocks decode to, and returns it. Values must lie within
        the largest mantissa at exponent 0, as everything that was decoded does.
        """
        peaks_K = _block_peaks(grid_C)
        shifts_K = np.searchsorted(self.grid_thresholds, peaks_K)
        assert peaks_K.max() <= self.mantissa_max << SHIFT_MAX
        grid_KB = grid_C.reshape(-1, BLOCK)
        # Halves first: |g| + half is at most 127.5 * 2^24, so the sum stays inside int32.
        np.add(grid_KB, _HALVES[shifts_K][:, None], out=grid_KB)
        np.right_shift(grid_KB, shifts_K.astype(np.int32)[:, None], out=grid_KB)
        stop = start + grid_C.size
        self._packing.pack(grid_C.astype(np.int8), self.packed(blob, start, stop))
        self.shifts(blob, start, stop, parameter_count)[:] = shifts_K
        np.multiply(grid_KB, _GRID_SCALES[shifts_K][:, None], out=grid_KB)
        return grid_C

    def decode_blocks(
        self, blob: Blob, start: int, parameter_count: int, out_C: Int32Array
    ) -> None:
        """Whole blocks from parameter `start` on, padding included, onto the grid in `out_C`."""
        stop = start + out_C.size
        np.copyto(out_C, self._packing.unpack(self.packed(blob, start, stop)))
        scales_K = _GRID_SCALES[self.shifts(blob, start, stop, parameter_count)]
        out_KB = out_C.reshape(-1, BLOCK)
        np.multiply(out_KB, scales_K[:, None], out=out_KB)

    def excerpt(self, blob: Blob, blocks_K: Int64Array, parameter_count: int) -> UInt8Array:
        """The blob of these blocks alone, by their numbers, one after another."""
        stop = block_count_of(parameter_count) * BLOCK
        packed_KB = self.packed(blob, 0, stop).reshape(-1, self._packing.block_bytes)
        shifts_K = self.shifts(blob, 0, stop, parameter_count)
        return np.concatenate([packed_KB[blocks_K].reshape(-1), shifts_K[blocks_K]])

    def check(self, blob: Blob, parameter_count: int, norm_cap_squared: int | None) -> None:
        """Judges a peer's blob. The cap is on its squared norm in grid units squared.

        Raises PeerFault("bad_update") for a wrong length, an exponent or mantissa out of range,
        padding that is not zero, or a squared norm above the cap.
        """
        payload = bytes_of(blob)
        size_bytes = self.encoded_size_bytes(parameter_count)
        if payload.size != size_bytes:
            raise bad_update(
                f"{payload.size} bytes; {parameter_count} {self.name} take {size_bytes}"
            )
        padded_count = block_count_of(parameter_count) * BLOCK
        shifts_K = self.shifts(payload, 0, padded_count, parameter_count)
        if shifts_K.max() > SHIFT_MAX:
            raise bad_update(f"exponent {int(shifts_K.max()) + GRID_EXPONENT} is above 0")
        for start in range(0, padded_count, CHUNK_PARAMETERS):
            stop = min(start + CHUNK_PARAMETERS, padded_count)
            mantissas_C = self._packing.unpack(self.packed(payload, start, stop))
            if mantissas_C.min() < -self.mantissa_max:
                raise bad_update(f"mantissa {int(mantissas_C.min())} is under -{self.mantissa_max}")
            if stop > parameter_count and mantissas_C[parameter_count - start :].any():
                raise bad_update("padding is not zero")
        if norm_cap_squared is None or self._norm_bound_squared(shifts_K) <= norm_cap_squared:
            return
        norm_squared = self.norm_squared(payload, parameter_count)
        if norm_squared > norm_cap_squared:
            raise bad_update(f"squared norm {norm_squared} is above the cap of {norm_cap_squared}")

    def norm_squared(self, blob: Blob, parameter_count: int) -> int:
        """The exact squared norm in grid units squared, of a blob of the right length."""
        padded_count = block_count_of(parameter_count) * BLOCK
        total = 0
        for start in range(0, padded_count, CHUNK_PARAMETERS):
            stop = min(start + CHUNK_PARAMETERS, padded_count)
            mantissas_C = self._packing.unpack(self.packed(blob, start, stop))
            total += _norm_squared(mantissas_C, self.shifts(blob, start, stop, parameter_count))
        return total

    def _norm_bound_squared(self, shifts_K: UInt8Array) -> int:
        """What the squared norm would be if every mantissa were as large as it may be.

        An honest update stays far below its cap, and then this is all that has to be looked at.
        """
        counts = np.bincount(shifts_K, minlength=SHIFT_MAX + 1).tolist()
        blocks = sum(count << (2 * shift) for shift, count in enumerate(counts))
        return int(blocks) * BLOCK * self.mantissa_max**2


INT8: Final = DenseCodec(Int8Packing())
INT4: Final = DenseCodec(Int4Packing())


def _padded(values_C: Float32Array) -> Float32Array:
    """`values_C` itself where it is whole blocks, else a copy with zeros up to the next one."""
    missing = -values_C.size % BLOCK
    return np.pad(values_C, (0, missing)) if missing else values_C


def _block_peaks(values_C: FloatOrGrid) -> FloatOrGrid:
    """The largest magnitude of each block; NaN where a block holds one."""
    # reduceat over the flat vector is 3x faster than max(axis=1) on rows of 64
    return np.maximum.reduceat(np.abs(values_C), np.arange(0, values_C.size, BLOCK))


def _norm_squared(mantissas_C: Int8Array, shifts_K: UInt8Array) -> int:
    """Sum of `(mantissa << shift)^2`, exactly: a block's sum of squares is at most 64 * 127^2."""
    squares_C = mantissas_C.astype(np.float32)
    np.multiply(squares_C, squares_C, out=squares_C)
    # float32 and float64 hold these integers exactly: 2^20 a block, 2^30 a chunk
    blocks_K = np.add.reduceat(squares_C, np.arange(0, squares_C.size, BLOCK))
    by_shift = np.bincount(shifts_K, weights=blocks_K, minlength=SHIFT_MAX + 1)
    return sum(int(total) << (2 * shift) for shift, total in enumerate(by_shift))
