"""First weights that are the base's own: what is trained of it, on the integer grid.

Every number is rounded once, to the nearest multiple of 2^-24, ties to even, so that whoever has
the base has them bit for bit. A process of its own (see one_question): "out" is the file to write.
"""

from pathlib import Path
from typing import Any

import numpy as np

from daa_dag.chunking import cut, manifest_of
from daa_node.errors import UserError
from daa_node.tensors import (
    Int32Array,
    TensorSpec,
    grid_sizes_bytes,
)
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.models.module import Opened
from daa_node.training.models.opening import open_model
from daa_node.training.module_source import ModuleAccess
from daa_node.training.one_question import answer_one
from daa_node.updates.grid import GRID_MAX, GRID_ONE

LARGEST = GRID_MAX / GRID_ONE  # 128, all but


def grid_weights(opened: Opened) -> dict[TensorSpec, Int32Array]:
    """By tensor, in order, flat. Raises UserError for numbers that the grid has not."""
    found = {}
    for name, parameter in opened.parameters.items():
        exact_C = parameter.detach().numpy().reshape(-1).astype(np.float64)
        if not (np.abs(exact_C) <= LARGEST).all():  # nor with a NaN among them
            raise UserError(
                f"the model {opened.label}: {name} of its base holds what is no number, or beyond "
                f"{LARGEST:.0f}, the largest that a weight can be"
            )
        spec = TensorSpec(name, tuple(parameter.shape))
        found[spec] = np.rint(exact_C * GRID_ONE).astype("<i4")
    return found


def root_of(weights: dict[TensorSpec, Int32Array]) -> str:
    """In hex, the name of these weights as a state's blob."""
    flat_D = np.concatenate(list(weights.values()))
    return manifest_of(flat_D.data, cut(grid_sizes_bytes(list(weights)))).root.hex()


def answer(job: TrainingJob, config: TrainerConfig, request: dict[str, Any]) -> None:
    """Raises UserError."""
    opened = open_model(job.model, job.seed, ModuleAccess.of(config))
    try:
        with Path(request["out"]).open("wb") as file:
            for tensor_C in grid_weights(opened).values():
                file.write(tensor_C.data)
    except OSError as fault:
        raise UserError(
            f"cannot write {request['out']}: {fault.strerror or fault}", exit_code=1
        ) from None


if __name__ == "__main__":
    answer_one(answer)
