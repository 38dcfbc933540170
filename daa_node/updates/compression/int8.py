"""Int8 mantissas, one a byte: 8.125 bits a parameter with the exponent of the block."""

import numpy as np

from daa_node.tensors import Int8Array, UInt8Array
from daa_node.updates.grid import BLOCK


class Int8Packing:
    """-127 to 127; -128 is refused, so that every mantissa has its negative."""

    name = "int8"
    mantissa_max = 127
    block_bytes = BLOCK

    def pack(self, mantissas_C: Int8Array, out: UInt8Array) -> None:
        """`out` has one byte a mantissa."""
        np.copyto(out, mantissas_C.view(np.uint8))

    def unpack(self, packed: UInt8Array) -> Int8Array:
        """A view of `packed`: nothing is copied."""
        return packed.view(np.int8)
