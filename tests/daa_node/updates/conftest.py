"""Deterministic material: blake3 integers, so that golden hashes outlive numpy's generators."""

from collections.abc import Callable

import numpy as np
import pytest
from blake3 import blake3

from daa_node.tensors import Int32Array, UInt8Array
from daa_node.updates.compression.dense import INT4, INT8
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
        if codec == "top_k":
            return _sparse_blob(label, parameter_count, shift_max)
        limit = (INT4 if codec == "int4" else INT8).mantissa_max
        blocks = block_count_of(parameter_count)
        mantissas = _random_bytes(label, blocks * 64).astype(np.int64) % (2 * limit + 1) - limit
        mantissas[parameter_count:] = 0
        shifts = _random_bytes(label + "/shifts", blocks) % (shift_max + 1)
        nibbles = mantissas & 0x0F
        packed = nibbles[0::2] | nibbles[1::2] << 4 if codec == "int4" else mantissas & 0xFF
        return np.concatenate([packed.astype(np.uint8), shifts])

    return make


def _sparse_blob(label: str, parameter_count: int, shift_max: int) -> UInt8Array:
    """Blocks that keep 0 to 64 parameters, record by record, from the words of the format."""
    records = []
    for first in range(0, parameter_count, 4096):
        random = _random_bytes(f"{label}/{first}", 4 * 64 + 2).tolist()
        room = min(4096, parameter_count - first)
        wanted = [random[2 * j] * 256 + random[2 * j + 1] for j in range(64)]
        kept = sorted({position % room for position in wanted})[: random[-1] % 65]
        bitmap, entries = 0, bytearray(64)
        for j, position in enumerate(kept):
            bitmap |= 1 << (position // 64 + j)
            entries[j] = position % 64 | random[128 + j] & 0xC0
        shift = random[-2] % (shift_max + 1) if kept else 0
        records.append(bitmap.to_bytes(16, "little") + bytes(entries) + bytes([shift]))
    return np.frombuffer(b"".join(records), np.uint8).copy()
