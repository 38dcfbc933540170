"""First weights out of a safetensors file: the named tensors, on the integer grid. No torch.

    header length (8 bytes) | header (JSON) | tensors

It is read piece by piece: beside the result nothing of a model's size is in memory.

Every number is rounded once, to the nearest multiple of 2^-24, ties to even. So the same file leads
to the same grid weights on every machine, and those have one root.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from daa_node.errors import UserError
from daa_node.tensors import Int32Array, TensorSlot, TensorSpec, parameter_count_of, slots_of
from daa_node.updates.grid import GRID_MAX, GRID_ONE

FLOATS: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # the upper half of a float32
}
LENGTH_BYTES = 8
HEADER_BYTES_MAX = 100_000_000  # what safetensors reads at most
LARGEST = GRID_MAX / GRID_ONE  # 128, all but
PIECE = 1 << 20  # numbers at a time


@dataclass(frozen=True, slots=True)
class _Stored:
    """One tensor of a file; its numbers lie from `begin` on, in bytes."""

    shape: tuple[int, ...]
    dtype: str
    begin: int


def read_weights(path: Path, specs: tuple[TensorSpec, ...]) -> Int32Array:
    """Grid weights of shape (D,). Raises UserError that names the file and the tensor."""
    try:
        size_bytes, bytes_max = path.stat().st_size, _file_bytes_max(specs)
        if size_bytes > bytes_max:
            raise UserError(
                f"{path} has not the weights of this model: {size_bytes} bytes, at most {bytes_max}"
            )
        with path.open("rb") as file:
            found = _stored_in(path, file)
            if (why := _misfit(found, specs)) is not None:
                raise UserError(
                    f"{path} has not the weights of this model: {why}. It takes "
                    f"{len(specs)} tensors of {parameter_count_of(specs)} numbers in all"
                )
            weights_D = np.empty(parameter_count_of(specs), np.int32)
            for slot in slots_of(specs):
                _read(path, file, found[slot.spec.name], slot, weights_D)
    except OSError as fault:
        raise UserError(f"cannot read {path}: {fault.strerror}") from None
    except SafetensorError as fault:
        raise UserError(f"{path} is no safetensors file: {fault}") from None
    return weights_D


def _file_bytes_max(specs: tuple[TensorSpec, ...]) -> int:
    """Of float64; what is larger need not be read to be refused."""
    return parameter_count_of(specs) * FLOATS["F64"].itemsize + HEADER_BYTES_MAX + LENGTH_BYTES


def _stored_in(path: Path, file: BinaryIO) -> dict[str, _Stored]:
    """Raises SafetensorError, OSError."""
    with safe_open(path, "numpy"):
        pass  # the library has judged the header: each tensor has its bytes, and no other's
    length = int.from_bytes(file.read(LENGTH_BYTES), "little")
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    data = LENGTH_BYTES + length
    return {
        name: _Stored(tuple(entry["shape"]), entry["dtype"], data + entry["data_offsets"][0])
        for name, entry in header.items()
    }


def _misfit(found: Mapping[str, _Stored], specs: tuple[TensorSpec, ...]) -> str | None:
    for spec in specs:
        tensor = found.get(spec.name)
        if tensor is None:
            return f"it lacks {spec.name}, of shape {list(spec.shape)}"
        if tensor.shape != spec.shape:
            return (
                f"its {spec.name} has the shape {list(tensor.shape)}, and the model's has "
                f"{list(spec.shape)}"
            )
        if tensor.dtype not in FLOATS:
            return f"its {spec.name} holds {tensor.dtype}, and not one of {', '.join(FLOATS)}"
    strange = sorted(found.keys() - {spec.name for spec in specs})
    return f"the model has no {strange[0]}" if strange else None


def _read(
    path: Path, file: BinaryIO, tensor: _Stored, slot: TensorSlot, weights_D: Int32Array
) -> None:
    """Into its place on the grid."""
    dtype = FLOATS[tensor.dtype]
    file.seek(tensor.begin)
    for start in range(slot.start, slot.stop, PIECE):
        stop = min(start + PIECE, slot.stop)
        payload = file.read((stop - start) * dtype.itemsize)
        if len(payload) < (stop - start) * dtype.itemsize:
            raise UserError(f"{path} has become shorter while it was read")
        values_C = np.frombuffer(payload, dtype)
        if tensor.dtype == "BF16":
            values_C = (values_C.astype(np.uint32) << 16).view(np.float32)
        exact_C = values_C.astype(np.float64)
        if not (np.abs(exact_C) <= LARGEST).all():  # nor with a NaN among them
            raise UserError(
                f"{path}: {slot.spec.name} holds what is no number, or beyond {LARGEST:.0f}, the "
                "largest that a weight can be"
            )
        weights_D[start:stop] = np.rint(exact_C * GRID_ONE).astype(np.int32)
