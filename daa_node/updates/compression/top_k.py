"""The sparse codec top_k: of every 4096 parameters at most the 64 largest, with 2 bits each.

A blob is one record of 81 bytes a block, so 0.158 bits a parameter. The j-th parameter that a block
keeps, in increasing order, has a position in the block, a mantissa of +-2 or +-3, and decodes to
`mantissa << shift` on the grid; all others decode to zero.

    16 bytes   bit `position // 64 + j` is set, the lowest bit of a byte first
    64 bytes   byte j: position % 64, + 64 if the mantissa is 3, + 128 if it is negative
     1 byte    shift = exponent + 24, 0 to 24

What is not used is zero, also the shift of a block that keeps nothing. No power of two leads from 2
to 3, so one vector has one blob: whatever is not in this form is refused.

Source: the largest of each block in 2 bits, with error feedback, SparseLoCo (Sarfi et al. 2025) and
before it DeMo (Peng et al. 2024); positions in 8 bits instead of 12, Elias 1974 and Fano 1971.
Shapes: K blocks, B = 4096, N = 64 kept, E entries of all blocks together, G groups.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from daa_node.errors import NotFinite
from daa_node.tensors import Float32Array, Int32Array, Int64Array, UInt8Array
from daa_node.updates.compression.blob import Blob, bad_update, bytes_of
from daa_node.updates.grid import GRID_EXPONENT, SHIFT_MAX

BLOCK_PARAMETERS = 4096
KEPT_MAX = 64
LOW = 64  # positions are split into a high and a low part of six bits each
BITMAP_BYTES = 16  # 64 kept and 63 steps from one high part to the next: 127 bits
BITMAP_BITS = 8 * BITMAP_BYTES
SHIFT_AT = BITMAP_BYTES + KEPT_MAX
RECORD_BYTES = SHIFT_AT + 1
LARGE, NEGATIVE = 64, 128  # flags in the byte of an entry
# What is not sent stays where it is, and the next round wants the same of it again. Added up for
# as long as it waits, it would be sent many times too far; this adds up 20 rounds at the most.
RESIDUAL_SHARE = 0.95  # as SparseLoCo has it
CHECKED_BLOCKS = 1024  # at a time: 2 MB of scratch, and no cost a call that counts
GROUPS = 2 * KEPT_MAX  # see _largest
LEAST = np.float32(2.0**GRID_EXPONENT)  # half of the smallest value: what is below rounds to zero
# Which exponents are tried, below that of the block's largest value. One above it would suit a
# block whose values are all alike, two below it one with a few that are far larger than the rest.
SHIFTS_TRIED: Final = (-1, -2, -3, -4)

_CODES = np.arange(256)
_MANTISSAS: Final = np.where(_CODES & LARGE, 3, 2) * np.where(_CODES & NEGATIVE, -1, 1)
_MANTISSAS_INT32: Final = _MANTISSAS.astype(np.int32)


@dataclass(frozen=True, slots=True)
class Entries:
    """What blocks keep, in their order: where, counted from the first block, and what."""

    index_E: Int64Array
    mantissa_E: Int32Array
    shift_E: UInt8Array

    @property
    def value_E(self) -> Int32Array:
        """On the grid."""
        return self.mantissa_E << self.shift_E


class TopKCodec:
    """A Codec; see there."""

    name = "top_k"
    block_parameters = BLOCK_PARAMETERS
    block_bytes = RECORD_BYTES
    residual_share = RESIDUAL_SHARE

    def encoded_size_bytes(self, parameter_count: int) -> int:
        """The one length that a blob of D parameters has."""
        return _block_count(parameter_count) * RECORD_BYTES

    def encode_chunk(
        self, values_C: Float32Array, start: int, blob: UInt8Array, parameter_count: int
    ) -> Float32Array:
        """The largest of each block, each to the nearest of two values or to none.

        The exponent is the one with the least squared error. Raises NotFinite.
        """
        missing = -values_C.size % BLOCK_PARAMETERS
        magnitudes_C = np.abs(np.pad(values_C, (0, missing)) if missing else values_C)
        if not np.isfinite(magnitudes_C).all():
            raise NotFinite("update", start + int(np.argmin(np.isfinite(magnitudes_C))))
        at_E = _largest(magnitudes_C.reshape(-1, BLOCK_PARAMETERS))
        block_E, magnitude_E = at_E // BLOCK_PARAMETERS, magnitudes_C[at_E]
        block_count = magnitudes_C.size // BLOCK_PARAMETERS
        tops_KN = np.zeros((block_count, KEPT_MAX), np.float64)
        tops_KN[block_E, _ranks(block_E, block_count)] = magnitude_E
        shifts_K = _best_shifts(tops_KN)
        unit_E = np.exp2(shifts_K[block_E] + GRID_EXPONENT).astype(np.float32)
        kept_E = magnitude_E >= unit_E  # nearer to twice the unit than to nothing
        at_E, block_E, unit_E = at_E[kept_E], block_E[kept_E], unit_E[kept_E]
        is_large_E = magnitude_E[kept_E] >= np.float32(2.5) * unit_E
        is_negative_E = values_C[at_E] < 0
        codes_E = (at_E % LOW + LARGE * is_large_E + NEGATIVE * is_negative_E).astype(np.uint8)
        first = start // BLOCK_PARAMETERS
        _write(_records(blob)[first : first + block_count], at_E, codes_E, shifts_K)
        decoded_C = np.zeros(values_C.size, np.float32)
        decoded_C[at_E] = _MANTISSAS_INT32[codes_E] * unit_E
        return decoded_C

    def decode_blocks(
        self, blob: Blob, start: int, parameter_count: int, out_C: Int32Array
    ) -> None:
        """Parameters from `start` on, onto the grid in `out_C`; past the last one zeros."""
        entries = self.entries(blob, start, start + out_C.size)
        out_C[:] = 0
        out_C[entries.index_E] = entries.value_E

    def entries(self, blob: Blob, start: int, stop: int) -> Entries:
        """What the blocks between two parameters keep. The blob passed `check`."""
        assert start % BLOCK_PARAMETERS == 0, "blocks cannot be cut"
        records_KR = _records(blob)[start // BLOCK_PARAMETERS : _block_count(stop)]
        return _opened(records_KR)

    def excerpt(self, blob: Blob, blocks_K: Int64Array, parameter_count: int) -> UInt8Array:
        """The blob of these blocks alone, by their numbers, one after another."""
        return _records(blob)[blocks_K].reshape(-1)

    def check(self, blob: Blob, parameter_count: int, norm_cap_squared: int | None) -> None:
        """Judges a peer's blob. The cap is on its squared norm in grid units squared.

        Raises PeerFault("bad_update") for a wrong length, more than 64 of a block, positions that
        do not increase or lie outside, an exponent out of range, bytes that are not used and not
        zero, or a squared norm above the cap.
        """
        payload = bytes_of(blob)
        size_bytes = self.encoded_size_bytes(parameter_count)
        if payload.size != size_bytes:
            raise bad_update(
                f"{payload.size} bytes; {parameter_count} {self.name} take {size_bytes}"
            )
        norm_squared = 0
        records_KR = _records(payload)
        for first in range(0, len(records_KR), CHECKED_BLOCKS):
            some_KR = records_KR[first : first + CHECKED_BLOCKS]
            entries = _judged(some_KR, parameter_count - first * BLOCK_PARAMETERS)
            norm_squared += _norm_squared(entries)
        if norm_cap_squared is not None and norm_squared > norm_cap_squared:
            raise bad_update(f"squared norm {norm_squared} is above the cap of {norm_cap_squared}")

    def norm_squared(self, blob: Blob, parameter_count: int) -> int:
        """The exact squared norm in grid units squared, of a blob that passed `check`."""
        records_KR = _records(blob)
        firsts = range(0, _block_count(parameter_count), CHECKED_BLOCKS)
        return sum(
            _norm_squared(_opened(records_KR[first : first + CHECKED_BLOCKS])) for first in firsts
        )


TOP_K: Final = TopKCodec()


def _block_count(parameter_count: int) -> int:
    return -(-parameter_count // BLOCK_PARAMETERS)


def _records(blob: Blob) -> UInt8Array:
    return bytes_of(blob).reshape(-1, RECORD_BYTES)


def _ranks(block_E: Int64Array, block_count: int) -> Int64Array:
    """0, 1, 2, ... within each block; blocks come in order."""
    counts_K = np.bincount(block_E, minlength=block_count)
    return np.arange(block_E.size) - np.repeat(np.cumsum(counts_K) - counts_K, counts_K)


def _largest(magnitudes_KB: Float32Array) -> Int64Array:
    """Flat positions, in order, of each block's 64 largest that are worth sending.

    Of equals the first. The 64th largest of the 128 maxima of groups is no larger than the 64th
    largest of all, so what lies below it is out; of random values hardly more than 64 are left.
    """
    maxima_KG = magnitudes_KB.reshape(-1, BLOCK_PARAMETERS // GROUPS, GROUPS).max(axis=1)
    bound_K = np.partition(maxima_KG, GROUPS - KEPT_MAX, axis=1)[:, GROUPS - KEPT_MAX]
    is_candidate_KB = magnitudes_KB >= np.maximum(bound_K, LEAST)[:, None]
    at_E = np.flatnonzero(is_candidate_KB)
    # Magnitudes as integers have the same order; one key sorts by block, magnitude and position.
    bits_E = magnitudes_KB.reshape(-1)[at_E].view(np.int32).astype(np.int64)
    block_E, position_E = at_E // BLOCK_PARAMETERS, at_E % BLOCK_PARAMETERS
    keys_E = np.sort((block_E << 43) | ((2**31 - 1 - bits_E) << 12) | position_E)
    block_E, position_E = keys_E >> 43, keys_E & (BLOCK_PARAMETERS - 1)
    kept_E = _ranks(block_E, len(magnitudes_KB)) < KEPT_MAX
    return np.sort(block_E[kept_E] * BLOCK_PARAMETERS + position_E[kept_E])


def _best_shifts(tops_KN: np.ndarray) -> Int64Array:
    """For each block the shift that leaves the least squared error; 0 where nothing is kept."""
    _, exponents_K = np.frexp(tops_KN.max(axis=1))
    tried_KS = np.clip(exponents_K[:, None] + SHIFTS_TRIED - GRID_EXPONENT, 0, SHIFT_MAX)
    unit_KS1 = np.exp2(tried_KS + float(GRID_EXPONENT))[:, :, None]
    tops_K1N = tops_KN[:, None, :]
    errors_KSN = np.minimum(np.abs(tops_K1N - 2 * unit_KS1), np.abs(tops_K1N - 3 * unit_KS1))
    errors_KSN = np.minimum(errors_KSN, tops_K1N)
    chosen_K = np.square(errors_KSN).sum(axis=2).argmin(axis=1)
    shifts_K = tried_KS[np.arange(len(tops_KN)), chosen_K].astype(np.int64)
    return np.where(tops_KN[:, 0] > 0, shifts_K, 0)


def _write(
    records_KR: UInt8Array, at_E: Int64Array, codes_E: UInt8Array, shifts_K: Int64Array
) -> None:
    block_count = len(records_KR)
    block_E = at_E // BLOCK_PARAMETERS
    rank_E = _ranks(block_E, block_count)
    bits_KM = np.zeros((block_count, BITMAP_BITS), np.uint8)
    bits_KM[block_E, at_E % BLOCK_PARAMETERS // LOW + rank_E] = 1
    records_KR[:] = 0
    records_KR[:, :BITMAP_BYTES] = np.packbits(bits_KM, axis=1, bitorder="little")
    records_KR[block_E, BITMAP_BYTES + rank_E] = codes_E
    records_KR[:, SHIFT_AT] = shifts_K


def _opened(records_KR: UInt8Array) -> Entries:
    bits_KM = np.unpackbits(records_KR[:, :BITMAP_BYTES], axis=1, bitorder="little")
    set_E = np.flatnonzero(bits_KM)
    block_E = set_E // BITMAP_BITS
    rank_E = _ranks(block_E, len(records_KR))
    codes_E = records_KR[block_E, BITMAP_BYTES + rank_E]
    high_E = set_E % BITMAP_BITS - rank_E
    low_E = (codes_E % LOW).astype(np.int64)
    index_E = block_E * BLOCK_PARAMETERS + high_E * LOW + low_E
    return Entries(index_E, _MANTISSAS_INT32[codes_E], records_KR[block_E, SHIFT_AT])


def _judged(records_KR: UInt8Array, parameters_left: int) -> Entries:
    """The entries of a peer's records, if these keep every rule. Raises PeerFault."""
    bits_KM = np.unpackbits(records_KR[:, :BITMAP_BYTES], axis=1, bitorder="little")
    counts_K = bits_KM.sum(axis=1, dtype=np.int64)
    if counts_K.max() > KEPT_MAX:
        raise bad_update(f"a block keeps {int(counts_K.max())} parameters, at most {KEPT_MAX}")
    shifts_K = records_KR[:, SHIFT_AT]
    if shifts_K.max() > SHIFT_MAX:
        raise bad_update(f"exponent {int(shifts_K.max()) + GRID_EXPONENT} is above 0")
    is_unused_KN = np.arange(KEPT_MAX) >= counts_K[:, None]
    if records_KR[:, BITMAP_BYTES:SHIFT_AT][is_unused_KN].any():
        raise bad_update("an entry that is not used is not zero")
    if shifts_K[counts_K == 0].any():
        raise bad_update("a block that keeps nothing has an exponent")
    # The last entry of each block lies highest: if it is inside, all are.
    last_K = BITMAP_BITS - 1 - bits_KM[:, ::-1].argmax(axis=1)
    if (last_K[counts_K > 0] - counts_K[counts_K > 0] + 1 >= LOW).any():
        raise bad_update(f"a position is outside of its block of {BLOCK_PARAMETERS}")
    entries = _opened(records_KR)
    if (np.diff(entries.index_E) <= 0).any():
        raise bad_update("positions do not increase")
    if entries.index_E.size and entries.index_E[-1] >= parameters_left:
        raise bad_update("padding is not zero")
    return entries


def _norm_squared(entries: Entries) -> int:
    """Sum of `(mantissa << shift)^2`, exactly: float64 holds what a shift's squares add up to."""
    squares_E = np.square(entries.mantissa_E)
    by_shift = np.bincount(entries.shift_E, weights=squares_E, minlength=SHIFT_MAX + 1)
    return sum(int(total) << (2 * shift) for shift, total in enumerate(by_shift))
