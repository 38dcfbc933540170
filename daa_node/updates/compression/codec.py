"""What a codec is, and the codecs by name.

A codec turns floats into a blob and a blob into grid integers, block by block: blocks have one size
in bytes, so that any chunk of a vector can be decoded by itself, and a blob's length follows from
the codec and D alone. Decoding is integers only. A peer's blob is decoded after `check` alone.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Final, Protocol

import numpy as np

from daa_node.tensors import Float32Array, Int32Array, Int64Array, UInt8Array
from daa_node.updates.compression.blob import Blob, bad_update
from daa_node.updates.compression.dense import INT4, INT8
from daa_node.updates.compression.top_k import TOP_K
from daa_node.updates.grid import CHUNK_PARAMETERS

BITS_A_BYTE = 8


class Codec(Protocol):
    """One format. A chunk starts at a multiple of `block_parameters`."""

    @property
    def name(self) -> str: ...

    @property
    def block_parameters(self) -> int:
        """How many parameters share a block; CHUNK_PARAMETERS is a multiple of it."""

    @property
    def block_bytes(self) -> int: ...

    @property
    def residual_share(self) -> float:
        """Of what a round could not send, how much the next one still owes."""

    def encoded_size_bytes(self, parameter_count: int) -> int:
        """The one length that a blob of D parameters has."""

    def encode_chunk(
        self, values_C: Float32Array, start: int, blob: UInt8Array, parameter_count: int
    ) -> Float32Array:
        """Writes parameters from `start` on into `blob`; returns what they decode to.

        `values_C` are whole blocks, or end with the last parameter. Raises NotFinite, naming the
        first bad parameter.
        """

    def decode_blocks(
        self, blob: Blob, start: int, parameter_count: int, out_C: Int32Array
    ) -> None:
        """Parameters from `start` on, onto the grid in `out_C`; past the last one zeros.

        `out_C` has room for a multiple of 64. The blob passed `check`.
        """

    def excerpt(self, blob: Blob, blocks_K: Int64Array, parameter_count: int) -> UInt8Array:
        """The blob of these blocks alone, by their numbers, one after another."""

    def check(self, blob: Blob, parameter_count: int, norm_cap_squared: int | None) -> None:
        """Judges a peer's blob. The cap is on its squared norm in grid units squared.

        Raises PeerFault("bad_update") with the rule that it breaks.
        """

    def norm_squared(self, blob: Blob, parameter_count: int) -> int:
        """The exact squared norm in grid units squared, of a blob that passed `check`."""


_CODECS: Final[dict[str, Codec]] = {codec.name: codec for codec in (INT8, INT4, TOP_K)}
CODEC_NAMES: Final = tuple(_CODECS)


def codec_named(name: str) -> Codec:
    """Raises PeerFault("bad_update") for a name that no codec has: names come in offers."""
    codec = _CODECS.get(name)
    if codec is None:
        raise bad_update(f"no codec is named {name[:32]!r}; there are {', '.join(_CODECS)}")
    return codec


def bits_per_parameter(codec: Codec) -> Fraction:
    """Of a long vector; a short one has its last block to itself."""
    return Fraction(BITS_A_BYTE * codec.block_bytes, codec.block_parameters)


def sizes_of(names: Iterable[str], parameter_count: int) -> dict[str, int]:
    """Bytes of a blob of D parameters in each of the codecs."""
    return {name: codec_named(name).encoded_size_bytes(parameter_count) for name in names}


def encode(codec: Codec, values_D: Float32Array) -> UInt8Array:
    """The blob of a whole vector. Raises NotFinite."""
    blob = np.zeros(codec.encoded_size_bytes(values_D.size), np.uint8)
    for start in range(0, values_D.size, CHUNK_PARAMETERS):
        values_C = values_D[start : start + CHUNK_PARAMETERS]
        codec.encode_chunk(values_C, start, blob, values_D.size)
    return blob


def decode(codec: Codec, blob: Blob, start: int, stop: int, parameter_count: int) -> Int32Array:
    """Parameters `start` to `stop` on the grid. The blob passed `check`."""
    assert start % codec.block_parameters == 0 <= start <= stop <= parameter_count
    blocks = -(-(stop - start) // codec.block_parameters)
    out_C = np.empty(blocks * codec.block_parameters, np.int32)
    codec.decode_blocks(blob, start, parameter_count, out_C)
    return out_C[: stop - start]
