"""Deterministic material: blake3 integers, so that golden hashes outlive numpy's generators."""

from collections.abc import Callable

import numpy as np
import pytest
from blake3 import blake3

from daa_node.tensors import Int32Array, UInt8Array
from daa_node.updates.compression.codec import codec_named
from daa_node.updates.grid import block_count_of

MakeGrid = Callable[[str, int, int], Int32Array]
MakeBlob = Callable[[str, str, int, int], UInt8Array]


def _random_bytes(label: str, size_bytes: int) -> UInt8Array:
    return np.frombuffer(blake3(label.encode()).digest(size_bytes), np.uint8).copy()


@pytest.fixture
def make_grid() -> MakeGrid:
    """make_grid(label, parameter_count, bits): int32 values of at most `bits` bits and a sign."""

    def make(label: str, parameter_count: int, bits: int) -> Int32Array:
        values = _random_bytes(label, 4 * parameter_count).view("<i4").astype(np.int64)
        return (values >> (31 - bits)).clip(-(2**31) + 1).astype(np.int32)

    return make


@pytest.fixture
def make_blob() -> MakeBlob:
    """make_blob(label, codec, parameter_count, shift_max): a valid blob of random content."""

    def make(label: str, codec: str, parameter_count: int, shift_max: int) -> UInt8Array:
        limit = codec_named(codec).mantissa_max
        blocks = block_count_of(parameter_count)
        mantissas = _random_bytes(label, blocks * 64).astype(np.int64) % (2 * limit + 1) - limit
        mantissas[parameter_count:] = 0
        shifts = _random_bytes(label + "/shifts", blocks) % (shift_max + 1)
        nibbles = mantissas & 0x0F
        packed = nibbles[0::2] | nibbles[1::2] << 4 if codec == "int4" else mantissas & 0xFF
        return np.concatenate([packed.astype(np.uint8), shifts])

    return make
