"""Streams of bits, the lowest bit of a byte first: fields of many widths, and counts in unary.

A stream ends with zeros up to the next whole byte, and whoever reads it refuses anything else, so
that what a stream holds has one form. E entries.
"""

import numpy as np

from daa_node.tensors import Int64Array, UInt8Array
from daa_node.updates.compression.blob import bad_update

FIELD_BITS_MAX = 17  # with the 7 bits that precede it in its first byte it lies in three


def size_bytes_of(bits: int) -> int:
    """Whole bytes that so many bits take."""
    return -(-bits // 8)


def packed_fields(fields_E: Int64Array, widths_E: Int64Array) -> UInt8Array:
    """Each field in as many bits as its width says, one after another."""
    ends_E = np.cumsum(widths_E)
    total = int(ends_E[-1]) if ends_E.size else 0
    starts_E = ends_E - widths_E
    shifted_E, byte_E = fields_E << (starts_E & 7), starts_E >> 3
    size_bytes = size_bytes_of(total)
    # No two fields share a bit, so the sums that bincount makes of them are their union.
    whole = np.zeros(size_bytes + 2, np.float64)
    for at in range(3):
        part_E = (shifted_E >> (8 * at)) & 0xFF
        whole += np.bincount(byte_E + at, weights=part_E, minlength=whole.size)
    return whole[:size_bytes].astype(np.uint8)


def unpacked_fields(stream: UInt8Array, widths_E: Int64Array) -> Int64Array:
    """The fields. The stream has exactly the bytes that they take.

    Raises PeerFault("bad_update") if what follows the last one is not zero.
    """
    ends_E = np.cumsum(widths_E)
    total = int(ends_E[-1]) if ends_E.size else 0
    assert stream.size == size_bytes_of(total)
    if total % 8 and int(stream[-1]) >> (total % 8):
        raise bad_update("bits after the last field are not zero")
    starts_E = ends_E - widths_E
    byte_E = starts_E >> 3
    room = np.zeros(stream.size + 2, np.int64)
    room[: stream.size] = stream
    read_E = room[byte_E] | room[byte_E + 1] << 8 | room[byte_E + 2] << 16
    fields_E: Int64Array = (read_E >> (starts_E & 7)) & ((1 << widths_E) - 1)
    return fields_E


def packed_unary(counts_E: Int64Array) -> UInt8Array:
    """For each count so many zeros and a one."""
    ones_E = np.cumsum(counts_E + 1) - 1
    bits = np.zeros(int(ones_E[-1]) + 1 if ones_E.size else 0, np.uint8)
    bits[ones_E] = 1
    return np.packbits(bits, bitorder="little")


def unpacked_unary(stream: UInt8Array, count: int) -> Int64Array:
    """So many counts, each at least 0.

    Raises PeerFault("bad_update") if there are fewer or more, or a byte after the last one.
    """
    # as booleans they are found in half the time
    ones_E = np.flatnonzero(np.unpackbits(stream, bitorder="little").view(np.bool_))
    if ones_E.size != count:
        raise bad_update(f"{ones_E.size} counts in unary; it has to be {count}")
    read = size_bytes_of(int(ones_E[-1]) + 1) if count else 0
    if stream.size != read:
        raise bad_update(f"{stream.size - read} bytes after the last count in unary")
    counts_E: Int64Array = np.diff(ones_E, prepend=-1) - 1
    return counts_E
