"""A whole model of transformers, with agreed weights, saved as the library saves its own.

A process of its own (see one_question): "weights" is a grid vector's file, "out" a folder that is
there and empty. The library names and divides the tensors as its own loader wants them.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from daa_node.errors import UserError
from daa_node.tensors import open_grid_vector, slots_of
from daa_node.training.base_files import CONFIG, TOKENIZER_FILES
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.models.causal_lm import CausalLm
from daa_node.training.models.opening import open_model
from daa_node.training.module_source import ModuleAccess
from daa_node.training.one_question import answer_one
from daa_node.updates.grid import float32_piece


def answer(job: TrainingJob, config: TrainerConfig, request: dict[str, Any]) -> None:
    """Raises UserError."""
    model, out = job.model, Path(request["out"])
    opened = open_model(model, job.seed, ModuleAccess.of(config))
    assert isinstance(opened.module, CausalLm), "no other kind has a folder of its own"
    weights_D = open_grid_vector(Path(request["weights"]), model.parameter_count())
    with torch.no_grad():
        for slot in slots_of(model.tensors()):
            part_C = torch.from_numpy(float32_piece(weights_D, slot.start, slot.stop))
            opened.parameters[slot.spec.name].copy_(part_C.view(slot.spec.shape))
    inner: Any = opened.module.model
    try:
        inner.save_pretrained(out)
        _say_float32(out / CONFIG)
        if model.base is not None and model.base.path is not None:
            for name in TOKENIZER_FILES:
                if (model.base.path / name).is_file():
                    shutil.copyfile(model.base.path / name, out / name)
    except OSError as fault:
        raise UserError(f"cannot write {out}: {fault.strerror or fault}", exit_code=1) from None


def _say_float32(file: Path) -> None:
    """A base may lie in halves beside what is trained, which whoever loads it must not round."""
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"dtype": "float32"}, indent=2) + "\n")


if __name__ == "__main__":
    answer_one(answer)
