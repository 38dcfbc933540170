"""Int4 mantissas, two a byte, the low nibble first: 4.125 bits a parameter with the exponent."""

import numpy as np

from daa_node.tensors import Int8Array, UInt8Array
from daa_node.updates.grid import BLOCK


def _sign_extended() -> UInt8Array:
    """Both mantissas of each of the 256 bytes, as two bytes."""
    packed = np.arange(256, dtype=np.uint8).view(np.int8)
    low = np.right_shift(np.left_shift(packed, 4), 4)
    high = np.right_shift(packed, 4)
    return np.stack([low, high], axis=1).view(np.uint8)


# One look-up of two bytes: 0.3 ns a parameter, where shifting into a strided output takes 0.8.
_PAIRS = np.ascontiguousarray(_sign_extended()).view(np.uint16).reshape(256)


class Int4Packing:
    """-7 to 7 in two's complement; -8 is refused, so that every mantissa has its negative."""

    name = "int4"
    mantissa_max = 7
    block_bytes = BLOCK // 2

    def pack(self, mantissas_C: Int8Array, out: UInt8Array) -> None:
        """`out` has one byte for two mantissas."""
        nibbles = mantissas_C.view(np.uint8)
        np.left_shift(nibbles[1::2], 4, out=out)
        np.bitwise_or(out, np.bitwise_and(nibbles[0::2], 0x0F), out=out)

    def unpack(self, packed: UInt8Array) -> Int8Array:
        """Two mantissas a byte, in a new array."""
        return np.take(_PAIRS, packed, mode="clip").view(np.int8)
