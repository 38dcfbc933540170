"""First weights out of a safetensors file: the named tensors, on the integer grid. No torch.

    header length (8 bytes) | header (JSON) | tensors

Every number is rounded once, to the nearest multiple of 2^-24, ties to even. So the same file leads
to the same grid weights on every machine, and those have one root.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from daa_node.errors import UserError
from daa_node.tensors import Int32Array, TensorSlot, TensorSpec, parameter_count_of, slots_of
from daa_node.updates.grid import GRID_MAX, GRID_ONE

FLOATS: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
}
BFLOAT16 = "BF16"  # the upper half of a float32
HEADER_BYTES_MAX = 100_000_000  # what safetensors reads at most
LARGEST = GRID_MAX / GRID_ONE  # 128, all but


def read_weights(path: Path, specs: tuple[TensorSpec, ...]) -> Int32Array:
    """Grid weights of shape (D,). Raises UserError that names the file and the tensor."""
    try:
        size_bytes, bytes_max = path.stat().st_size, _file_bytes_max(specs)
        if size_bytes > bytes_max:
            raise UserError(
                f"{path} has not the weights of this model: {size_bytes} bytes, at most {bytes_max}"
            )
        found: dict[str, Mapping[str, Any]] = dict(
            deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
        )
    except OSError as fault:
        raise UserError(f"cannot read {path}: {fault.strerror}") from None
    except SafetensorError as fault:
        raise UserError(f"{path} is no safetensors file: {fault}") from None
    if (why := _misfit(found, specs)) is not None:
        raise UserError(
            f"{path} has not the weights of this model: {why}. It takes "
            f"{len(specs)} tensors of {parameter_count_of(specs)} numbers in all"
        )
    weights_D = np.empty(parameter_count_of(specs), np.int32)
    for slot in slots_of(specs):
        weights_D[slot.start : slot.stop] = _on_the_grid(path, slot, found[slot.spec.name])
    return weights_D


def _file_bytes_max(specs: tuple[TensorSpec, ...]) -> int:
    """Of float64; what is larger need not be read to be refused."""
    return parameter_count_of(specs) * FLOATS["F64"].itemsize + HEADER_BYTES_MAX + 8


def _misfit(found: Mapping[str, Mapping[str, Any]], specs: tuple[TensorSpec, ...]) -> str | None:
    for spec in specs:
        tensor = found.get(spec.name)
        if tensor is None:
            return f"it lacks {spec.name}, of shape {list(spec.shape)}"
        if tuple(tensor["shape"]) != spec.shape:
            return (
                f"its {spec.name} has the shape {list(tensor['shape'])}, and the model's has "
                f"{list(spec.shape)}"
            )
        if tensor["dtype"] not in (*FLOATS, BFLOAT16):
            known = ", ".join([*FLOATS, BFLOAT16])
            return f"its {spec.name} holds {tensor['dtype']}, and not one of {known}"
    strange = sorted(found.keys() - {spec.name for spec in specs})
    return f"the model has no {strange[0]}" if strange else None


def _on_the_grid(path: Path, slot: TensorSlot, tensor: Mapping[str, Any]) -> Int32Array:
    if tensor["dtype"] == BFLOAT16:
        halves_C = np.frombuffer(tensor["data"], "<u2").astype(np.uint32)
        values_C = (halves_C << 16).view(np.float32).astype(np.float64)
    else:
        values_C = np.frombuffer(tensor["data"], FLOATS[tensor["dtype"]]).astype(np.float64)
    if not (np.abs(values_C) <= LARGEST).all():  # nor with a NaN among them
        raise UserError(
            f"{path}: {slot.spec.name} holds what is no number, or beyond {LARGEST:.0f}, the "
            "largest that a weight can be"
        )
    return np.rint(values_C * GRID_ONE).astype(np.int32)
