"""Flat parameter vectors, the table of tensors inside them, and vectors that live in files.

Legend of the shape suffixes used all over this package:
  N contributions, D parameters, B parameters of one block, K blocks, C parameters of one chunk.
A model is one vector: its tensors in order, each flattened row by row, with nothing between them.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daa_node.system_calls import hold_room

BoolArray = NDArray[np.bool_]
Int8Array = NDArray[np.int8]
UInt8Array = NDArray[np.uint8]
Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]

# Grid vectors on disk are little-endian on every host.
GRID_DTYPE = np.dtype("<i4")
GRID_ITEM_BYTES = 4
ZEROS_BYTES = 16 * 1024 * 1024  # in one write
WRITTEN_BYTES_MAX = 2**30  # a larger vector is not filled before it is written


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named tensor of a model; a scalar has the shape ()."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """Where a tensor lies in the flat vector: parameters `start` to `stop`."""

    spec: TensorSpec
    start: int
    stop: int


def slots_of(specs: Sequence[TensorSpec]) -> tuple[TensorSlot, ...]:
    """Lays the tensors one after another, in the given order."""
    slots, at = [], 0
    for spec in specs:
        slots.append(TensorSlot(spec, at, at + spec.size))
        at += spec.size
    return tuple(slots)


def parameter_count_of(specs: Sequence[TensorSpec]) -> int:
    """D, the length of the flat vector."""
    return sum(spec.size for spec in specs)


def grid_sizes_bytes(specs: Sequence[TensorSpec]) -> list[int]:
    """Bytes of each tensor in an int32 vector: what `chunking.cut` takes for a state."""
    return [spec.size * GRID_ITEM_BYTES for spec in specs]


def open_grid_vector(path: Path, parameter_count: int) -> Int32Array:
    """Maps an int32 vector read-only. Raises ValueError if the file's size is not 4 D bytes."""
    size_bytes = path.stat().st_size
    if size_bytes != parameter_count * GRID_ITEM_BYTES:
        raise ValueError(
            f"{path} has {size_bytes} bytes; {parameter_count} int32 parameters take "
            f"{parameter_count * GRID_ITEM_BYTES}"
        )
    return np.memmap(path, dtype=GRID_DTYPE, mode="r", shape=(parameter_count,))


def reuse_grid_vector(path: Path, parameter_count: int) -> Int32Array:
    """Maps a file of the right size for writing, whatever it holds; else makes one of zeros."""
    size_bytes = parameter_count * GRID_ITEM_BYTES
    if not path.is_file() or path.stat().st_size != size_bytes:
        return create_grid_vector(path, parameter_count)
    return np.memmap(path, dtype=GRID_DTYPE, mode="r+", shape=(parameter_count,))


def reserve(path: Path, size_bytes: int, reserved_bytes: int | None = None) -> None:
    """Make a file of zeros whose first bytes, or all, have their room on the disk.

    A map that finds the disk full later ends its process. Raises OSError, and leaves no file then.
    """
    room_bytes = size_bytes if reserved_bytes is None else reserved_bytes
    with path.open("w+b") as file:
        try:
            # Asked first: a file system may fill itself up before it finds that it is full.
            there = os.fstatvfs(file.fileno())
            if there.f_bavail * there.f_frsize < room_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            file.truncate(size_bytes)
            hold_room(file.fileno(), room_bytes)
        except OSError:
            path.unlink()
            raise


def create_grid_vector(path: Path, parameter_count: int) -> Int32Array:
    """Makes a file of D zeros and maps it for writing; an existing file is replaced.

    The zeros are written, not left to the page faults of the map: long writes get the file large
    pages for good, and mapping it again then costs a tenth (Linux 6; 0.5 ms against 5 for 40 MB).
    What no memory holds is not written twice: its room is reserved, which reads as zeros.
    """
    size_bytes = parameter_count * GRID_ITEM_BYTES
    if size_bytes > WRITTEN_BYTES_MAX:
        reserve(path, size_bytes)
        return np.memmap(path, dtype=GRID_DTYPE, mode="r+", shape=(parameter_count,))
    zeros = memoryview(bytes(ZEROS_BYTES))
    with path.open("wb", buffering=0) as file:
        left = size_bytes
        while left:
            left -= file.write(zeros[:left])
    return np.memmap(path, dtype=GRID_DTYPE, mode="r+", shape=(parameter_count,))
