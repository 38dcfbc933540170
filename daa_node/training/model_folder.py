"""A whole model of transformers, with agreed weights, saved as the library saves its own.

A process of its own (see one_question): "weights" is a grid vector's file, "out" a folder that is
there and empty, "target" the name that a person gave it. The library names and divides the tensors
as its own loader wants them, and writes them from a file that is mapped, beside the grid vector: 4
bytes a parameter of the disk.
"""

import json
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from daa_node.errors import UserError
from daa_node.tensors import open_grid_vector, slots_of
from daa_node.training.base_files import (
    CONFIG,
    TOKENIZER_FILES,
    check_unchanged,
    marks_of,
)
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.model_config import ModelConfig
from daa_node.training.models import causal_lm
from daa_node.training.models.causal_lm import CausalLm
from daa_node.training.models.opening import open_model
from daa_node.training.module_source import ModuleAccess
from daa_node.training.one_question import answer_one
from daa_node.updates.grid import CHUNK_PARAMETERS, float32_piece

FP32 = np.dtype(np.float32)
VALUES = "values"  # beside the grid vector, in float32


def answer(job: TrainingJob, config: TrainerConfig, request: dict[str, Any]) -> None:
    """Raises UserError."""
    model, weights, out = job.model, Path(request["weights"]), Path(request["out"])
    weights_D = open_grid_vector(weights, model.parameter_count())
    try:
        with weights.with_name(VALUES).open("wb") as file:
            for start in range(0, weights_D.size, CHUNK_PARAMETERS):
                file.write(float32_piece(weights_D, start, start + CHUNK_PARAMETERS).data)
        values = _mapped(model, weights.with_name(VALUES))
        if not _saved_whole(model, values, out):
            _save_changed(job, config, values, out)
        _say_float32(out / CONFIG)
        for written in out.iterdir():  # the library lets nobody else read its weights
            written.chmod(stat.S_IMODE((out / CONFIG).stat().st_mode))
        if model.base is not None and model.base.path is not None:
            for name in TOKENIZER_FILES:
                if (model.base.path / name).is_file():
                    shutil.copyfile(model.base.path / name, out / name)
    except (OSError, SafetensorError) as fault:  # the library's writer has errors of its own
        why = getattr(fault, "strerror", None) or fault
        raise UserError(f"cannot write {request['target']}: {why}", exit_code=1) from None


def _mapped(model: ModelConfig, file: Path) -> Mapping[str, Tensor]:
    """Each in a map of its own: the library copies what lies in one storage with others."""
    found = {}
    for slot in slots_of(model.tensors()):
        offset, shape = slot.start * FP32.itemsize, slot.spec.shape
        found[slot.spec.name] = torch.from_numpy(np.memmap(file, FP32, "r+", offset, shape))
    return found


def _saved_whole(model: ModelConfig, values: Mapping[str, Tensor], out: Path) -> bool:
    """A model all of which is trained, never in memory; False if it has more than parameters."""
    if model.trainable is not None:
        return False
    assert model.built is not None, "a genesis has it"
    causal_lm.check_release(model.built.release)  # another one may name its tensors otherwise
    empty = causal_lm.build_empty(model)
    names = {id(parameter): name for name, parameter in empty.named_parameters()}
    found = empty.state_dict(keep_vars=True)
    if {*names.values()} != values.keys() or any(id(one) not in names for one in found.values()):
        return False
    tensors = {name: values[names[id(tensor)]] for name, tensor in found.items()}
    empty.save_pretrained(out, state_dict=tensors)
    return True


def _save_changed(
    job: TrainingJob, config: TrainerConfig, values: Mapping[str, Tensor], out: Path
) -> None:
    """What is trained, in a base that is mapped."""
    marks = marks_of(job.model.base)
    opened = open_model(job.model, job.seed, ModuleAccess.of(config))
    assert isinstance(opened.module, CausalLm), "no other kind has a folder of its own"
    for name, tensor in values.items():
        opened.parameters[name].data = tensor
    inner: Any = opened.module.model
    inner.save_pretrained(out)
    check_unchanged(marks)


def _say_float32(file: Path) -> None:
    """A base may lie in halves beside what is trained, which whoever loads it must not round."""
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"dtype": "float32"}, indent=2) + "\n")


if __name__ == "__main__":
    answer_one(answer)
