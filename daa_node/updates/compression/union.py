"""The delta of a sparse round: only the places that somebody sent, and what they come to.

The vector is cut into segments of 65,536 parameters and these into blocks of 4,096. A value is
`mantissa << shift` on the grid, the shift that of its block; a mantissa is -15 to 15 and not zero.

    8 bytes a segment    where its body ends, counted from the first one, lowest byte first
    bodies, each of
      3 bytes a block    count of values + 2^13 shift + 2^18 r + 2^20 n, lowest byte first
      names              4 bits for each of the n magnitudes that the block has, commonest first
      fields             of each value: g low bits of its gap, its sign, r low bits of its rank
      unary              of each value its gap >> g; then of each value its rank >> r

A gap counts the places passed over since the last value, a rank is the place of the value's
magnitude among the names, and both are Rice codes: g follows from the count (`GAP_BITS`), r is the
width in which the block's ranks take the fewest bits, of equals the least. Of magnitudes that are
as common the smaller is named first. Shifts are the least that hold the block's largest value. So
one vector has one blob, and whatever is not in this form is refused.

Names are there because most places are sent by one author, as two or three times a power of two:
divided by how many merge, these are few magnitudes, and not the smallest ones.

Source: Rice 1979 and Golomb 1966, for gaps of geometric length; docs/protocol.md, section 5.
K blocks, E values of a segment, M names of a segment, S segments.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from daa_node.tensors import Int32Array, Int64Array, UInt8Array
from daa_node.updates.compression.bit_streams import (
    packed_fields,
    packed_unary,
    size_bytes_of,
    unpacked_fields,
    unpacked_unary,
)
from daa_node.updates.compression.blob import Blob, bad_update, bytes_of
from daa_node.updates.grid import BLOCK, CHUNK_PARAMETERS, GRID_EXPONENT, SHIFT_MAX

NAME = "union"
BLOCK_PARAMETERS = 4096  # as in top_k
SEGMENT_PARAMETERS = CHUNK_PARAMETERS
SEGMENT_BLOCKS = SEGMENT_PARAMETERS // BLOCK_PARAMETERS
END_DTYPE = np.dtype("<u8")
STREAMS = 3  # names, fields and unary: each ends in a whole byte
HEADER_BYTES = 3
MANTISSA_MAX = 15
MAGNITUDES = MANTISSA_MAX + 1
NAME_BITS = 4
RANK_BITS_MAX = 3  # 14 >> 3 is 1
SHIFT_AT, RANK_BITS_AT, NAMES_AT = 13, 18, 20  # in a header of 24 bits
_SHIFTS = np.arange(SHIFT_MAX + 1)
# The largest value that a shift holds: (g + half) >> shift is at most 15 up to there.
_THRESHOLDS: Final = (((2 * MANTISSA_MAX + 1) << _SHIFTS[:-1]) - 1) // 2
# Bits of a value with each rank, in each width: those of the width, and zeros and a one.
_WIDTHS, _RANKS = np.arange(RANK_BITS_MAX + 1), np.arange(MAGNITUDES)
_RANK_COSTS: Final = (_RANKS[:, None] >> _WIDTHS) + 1 + _WIDTHS


def _gap_bits() -> Int64Array:
    """By the number of values: the power of two next below ln(2) of the mean gap."""
    counts = np.arange(1, BLOCK_PARAMETERS + 1)
    ratios = np.maximum(1, BLOCK_PARAMETERS * 693 // (1000 * counts))
    return np.array([0, *(int(ratio).bit_length() - 1 for ratio in ratios)], np.int64)


GAP_BITS: Final = _gap_bits()


@dataclass(frozen=True, slots=True)
class Values:
    """What a segment holds: places counted from its first parameter, and what is there."""

    index_E: Int64Array
    mantissa_E: Int64Array
    counts_K: Int64Array
    shifts_K: Int64Array

    @property
    def grid_E(self) -> Int32Array:
        grid_E: Int32Array = (self.mantissa_E << np.repeat(self.shifts_K, self.counts_K)).astype(
            np.int32
        )
        return grid_E


class UnionWriter:
    """A DeltaWriter (see there)."""

    def __init__(self, parameter_count: int) -> None:
        self._parameter_count = parameter_count
        self._bodies: list[UInt8Array] = []

    def add(self, grid_C: Int32Array) -> Int32Array:
        """The next parameters: whole segments, or up to the last one and its padding."""
        for start in range(0, grid_C.size, SEGMENT_PARAMETERS):
            segment_C = grid_C[start : start + SEGMENT_PARAMETERS]
            values = _requantised(segment_C)
            self._bodies.append(_body_of(values))
            segment_C[:] = 0
            segment_C[values.index_E] = values.grid_E
        return grid_C

    def blob(self) -> UInt8Array:
        """Of all that was added."""
        assert len(self._bodies) == _segment_count(self._parameter_count)
        ends_S = np.cumsum([body.size for body in self._bodies]).astype(END_DTYPE)
        return np.concatenate([ends_S.view(np.uint8), *self._bodies])


class Union:
    """A DeltaFormat (see there)."""

    name = NAME
    block_parameters = SEGMENT_PARAMETERS

    def size_bytes_max(self, parameter_count: int) -> int:
        """The most that a delta of D parameters may have."""
        blocks = -(-parameter_count // BLOCK_PARAMETERS)
        segments = _segment_count(parameter_count)
        # The longest block keeps all: each place takes a bit, and each value its sign, at most the
        # widest field, and in unary what is above that, which is 0 or 1.
        value_bits = 1 + RANK_BITS_MAX + 2
        block_bits = NAME_BITS * MANTISSA_MAX + BLOCK_PARAMETERS * (1 + value_bits)
        block_bytes = HEADER_BYTES + size_bytes_of(block_bits)
        return segments * (END_DTYPE.itemsize + STREAMS) + blocks * block_bytes

    def writer(self, parameter_count: int) -> UnionWriter:
        return UnionWriter(parameter_count)

    def check(self, blob: Blob, parameter_count: int) -> None:
        """Judges a peer's blob. Raises PeerFault("bad_update") with the rule that it breaks."""
        payload = bytes_of(blob)
        limit = self.size_bytes_max(parameter_count)
        if payload.size > limit:
            raise bad_update(f"{payload.size} bytes; {parameter_count} of {NAME} take {limit}")
        count = _segment_count(parameter_count)
        directory_bytes = count * END_DTYPE.itemsize
        if payload.size < directory_bytes:
            raise bad_update(f"{payload.size} bytes; the directory alone has {directory_bytes}")
        ends_S = payload[:directory_bytes].view(END_DTYPE)
        is_in_order = (ends_S[1:] >= ends_S[:-1]).all()
        if not is_in_order or int(ends_S[-1]) != payload.size - directory_bytes:
            raise bad_update("the segments do not end where the directory says")
        for segment in range(count):
            _read(payload, segment, parameter_count)

    def decode_blocks(
        self, blob: Blob, start: int, parameter_count: int, out_C: Int32Array
    ) -> None:
        """Parameters from `start` on, a multiple of 65,536, onto the grid in `out_C`.

        Past the last one zeros. The blob passed `check`.
        """
        assert start % SEGMENT_PARAMETERS == 0, "segments cannot be cut"
        payload = bytes_of(blob)
        out_C[:] = 0
        for at in range(0, out_C.size, SEGMENT_PARAMETERS):
            values = _read(payload, (start + at) // SEGMENT_PARAMETERS, parameter_count)
            index_E, grid_E = values.index_E, values.grid_E
            if at + SEGMENT_PARAMETERS > out_C.size:
                is_asked_E = index_E < out_C.size - at
                index_E, grid_E = index_E[is_asked_E], grid_E[is_asked_E]
            out_C[at:][index_E] = grid_E

    def shifts(self, blob: Blob, start: int, stop: int, parameter_count: int) -> UInt8Array:
        """The shift of each 64 parameters from `start` to `stop`, both multiples of 64."""
        payload = bytes_of(blob)
        blocks_K = np.arange(start, stop, BLOCK) // BLOCK_PARAMETERS
        first, last = start // SEGMENT_PARAMETERS, (stop - 1) // SEGMENT_PARAMETERS
        read = [_read(payload, at, parameter_count) for at in range(first, last + 1)]
        shifts_K = np.concatenate([values.shifts_K for values in read])
        shifts: UInt8Array = shifts_K[blocks_K - first * SEGMENT_BLOCKS].astype(np.uint8)
        return shifts


UNION: Final = Union()


def _segment_count(parameter_count: int) -> int:
    return -(-parameter_count // SEGMENT_PARAMETERS)


def _requantised(grid_C: Int32Array) -> Values:
    """`(g + half) >> shift`, halves upwards, with the least shift; zero is no value."""
    padded_C = np.pad(grid_C, (0, -grid_C.size % BLOCK_PARAMETERS))
    index_E = np.flatnonzero(padded_C)
    value_E = padded_C[index_E].astype(np.int64)
    block_E = index_E // BLOCK_PARAMETERS
    peaks_K = np.abs(padded_C.reshape(-1, BLOCK_PARAMETERS)).max(axis=1)
    assert peaks_K.max() <= MANTISSA_MAX << SHIFT_MAX
    shifts_K = np.searchsorted(_THRESHOLDS, peaks_K)
    shift_E = shifts_K[block_E]
    mantissa_E = (value_E + ((1 << shift_E) >> 1)) >> shift_E
    is_kept_E = mantissa_E != 0
    counts_K = np.bincount(block_E[is_kept_E], minlength=peaks_K.size)
    return Values(index_E[is_kept_E], mantissa_E[is_kept_E], counts_K, shifts_K)


def _body_of(values: Values) -> UInt8Array:
    counts_K = values.counts_K
    block_E = np.repeat(np.arange(counts_K.size), counts_K)
    gap_E = np.diff(values.index_E, prepend=-1) - 1
    is_first_E = np.diff(block_E, prepend=-1) > 0
    gap_E[is_first_E] = values.index_E[is_first_E] % BLOCK_PARAMETERS
    magnitude_E = np.abs(values.mantissa_E)
    names = _Names.of(magnitude_E, block_E, counts_K.size)
    rank_E = np.argsort(names.order_KM, axis=1)[block_E, magnitude_E]
    gap_bits_E, rank_bits_E = GAP_BITS[counts_K][block_E], names.rank_bits_K[block_E]
    low_E = (rank_E & ((1 << rank_bits_E) - 1)) << 1 | (values.mantissa_E < 0)
    fields_E = low_E << gap_bits_E | (gap_E & ((1 << gap_bits_E) - 1))
    headers_K = counts_K | values.shifts_K << SHIFT_AT
    headers_K |= names.rank_bits_K << RANK_BITS_AT | names.counts_K << NAMES_AT
    name_M = names.listed_M
    return np.concatenate(
        [
            headers_K.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :HEADER_BYTES].reshape(-1),
            packed_fields(name_M, np.full(name_M.size, NAME_BITS)),
            packed_fields(fields_E, gap_bits_E + 1 + rank_bits_E),
            packed_unary(np.concatenate([gap_E >> gap_bits_E, rank_E >> rank_bits_E])),
        ]
    )


@dataclass(frozen=True, slots=True)
class _Names:
    """What the magnitudes of blocks lead to."""

    order_KM: Int64Array  # all magnitudes from 0 to 15, commonest first
    counts_K: Int64Array  # how many of them occur
    rank_bits_K: Int64Array  # the width in which the ranks take the fewest bits
    largest_K: Int64Array

    @classmethod
    def of(cls, magnitude_E: Int64Array, block_E: Int64Array, block_count: int) -> "_Names":
        slots = np.bincount(block_E * MAGNITUDES + magnitude_E, minlength=block_count * MAGNITUDES)
        common_KM = slots.reshape(-1, MAGNITUDES)
        order_KM = np.argsort(-common_KM, axis=1, kind="stable")
        ranked_KM = np.take_along_axis(common_KM, order_KM, axis=1)
        occurs_KM = common_KM > 0
        return cls(
            order_KM,
            np.count_nonzero(occurs_KM, axis=1),
            np.argmin(ranked_KM @ _RANK_COSTS, axis=1),
            (occurs_KM * _RANKS).max(axis=1),
        )

    @property
    def listed_M(self) -> Int64Array:
        """Those that occur, block by block."""
        listed_M: Int64Array = self.order_KM[self.counts_K[:, None] > _RANKS]
        return listed_M


@dataclass(frozen=True, slots=True)
class _Headers:
    """Of the blocks of one segment."""

    counts_K: Int64Array
    shifts_K: Int64Array
    rank_bits_K: Int64Array
    names_K: Int64Array

    @classmethod
    def read(cls, body: UInt8Array, block_count: int) -> "_Headers":
        """Raises PeerFault for what no segment of so many blocks begins with."""
        if body.size < block_count * HEADER_BYTES:
            raise bad_update(f"a segment of {body.size} bytes has no {block_count} blocks")
        bytes_KH = body[: block_count * HEADER_BYTES].reshape(-1, HEADER_BYTES).astype(np.int64)
        words_K = bytes_KH[:, 0] | bytes_KH[:, 1] << 8 | bytes_KH[:, 2] << 16
        counts_K = words_K & ((1 << SHIFT_AT) - 1)
        shifts_K = words_K >> SHIFT_AT & ((1 << (RANK_BITS_AT - SHIFT_AT)) - 1)
        rank_bits_K = words_K >> RANK_BITS_AT & RANK_BITS_MAX
        if counts_K.max() > BLOCK_PARAMETERS:
            most = int(counts_K.max())
            raise bad_update(f"a block has {most} values, at most {BLOCK_PARAMETERS}")
        if shifts_K.max() > SHIFT_MAX:
            raise bad_update(f"exponent {int(shifts_K.max()) + GRID_EXPONENT} is above 0")
        return cls(counts_K, shifts_K, rank_bits_K, words_K >> NAMES_AT)


def _read(payload: UInt8Array, segment: int, parameter_count: int) -> Values:
    """A segment's values, if its body keeps every rule. Raises PeerFault."""
    directory_bytes = _segment_count(parameter_count) * END_DTYPE.itemsize
    ends_S = payload[:directory_bytes].view(END_DTYPE)
    begin, end = int(ends_S[segment - 1]) if segment else 0, int(ends_S[segment])
    body = payload[directory_bytes + begin : directory_bytes + end]
    parameters_left = parameter_count - segment * SEGMENT_PARAMETERS
    block_count = min(SEGMENT_BLOCKS, -(-parameters_left // BLOCK_PARAMETERS))
    headers = _Headers.read(body, block_count)
    counts_K, names_K = headers.counts_K, headers.names_K
    block_E = np.repeat(np.arange(block_count), counts_K)
    gap_bits_E, rank_bits_E = GAP_BITS[counts_K][block_E], headers.rank_bits_K[block_E]
    widths_E = gap_bits_E + 1 + rank_bits_E
    names_at = block_count * HEADER_BYTES
    fields_at = names_at + size_bytes_of(NAME_BITS * int(names_K.sum()))
    unary_at = fields_at + size_bytes_of(int(widths_E.sum()))
    if unary_at > body.size:
        raise bad_update("a segment ends within its fields")
    name_M = unpacked_fields(body[names_at:fields_at], np.full(names_K.sum(), NAME_BITS))
    fields_E = unpacked_fields(body[fields_at:unary_at], widths_E)
    unary = unpacked_unary(body[unary_at:], 2 * block_E.size)
    gap_E = unary[: block_E.size] << gap_bits_E | (fields_E & ((1 << gap_bits_E) - 1))
    low_E = fields_E >> gap_bits_E
    rank_E = unary[block_E.size :] << rank_bits_E | low_E >> 1
    if (rank_E >= names_K[block_E]).any():
        raise bad_update("a magnitude has no name")
    magnitude_E = name_M[(np.cumsum(names_K) - names_K)[block_E] + rank_E]
    _check_form(headers, name_M, _Names.of(magnitude_E, block_E, block_count))
    return Values(
        _places(gap_E, counts_K, parameters_left),
        np.where(low_E & 1, -magnitude_E, magnitude_E),
        counts_K,
        headers.shifts_K,
    )


def _places(gap_E: Int64Array, counts_K: Int64Array, parameters_left: int) -> Int64Array:
    """Counted from the segment's first parameter. Raises PeerFault if one is not in its block."""
    passed_E = np.cumsum(gap_E + 1)
    before_K = np.concatenate([[0], passed_E])[np.cumsum(counts_K) - counts_K]
    position_E = passed_E - np.repeat(before_K, counts_K) - 1
    if position_E.size and position_E.max() >= BLOCK_PARAMETERS:
        raise bad_update(f"a place is outside of its block of {BLOCK_PARAMETERS}")
    index_E: Int64Array = position_E + np.repeat(
        np.arange(counts_K.size) * BLOCK_PARAMETERS, counts_K
    )
    if index_E.size and index_E[-1] >= parameters_left:
        raise bad_update("padding is not zero")
    return index_E


def _check_form(headers: _Headers, name_M: Int64Array, due: _Names) -> None:
    """Raises PeerFault if a mantissa is zero, or other names, another width or shift were due."""
    if not name_M.all():
        raise bad_update("a mantissa is zero")
    if not (np.array_equal(due.counts_K, headers.names_K) and np.array_equal(due.listed_M, name_M)):
        raise bad_update("a block's names are not its magnitudes, commonest first")
    if (headers.rank_bits_K != due.rank_bits_K).any():
        raise bad_update("a block's ranks take fewer bits in another width")
    if ((headers.shifts_K > 0) & (2 * due.largest_K <= MANTISSA_MAX)).any():
        raise bad_update("a block's values have a smaller shift")
