"""One certified model, written as other programs read it. Needs no daemon."""

import os
from pathlib import Path

from daa_node.adapters.asked_process import write_model_folder
from daa_node.checkpoints.beside import room_beside
from daa_node.checkpoints.export import Room, export_safetensors, replayed_state
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.model_folder import whole_folder, write_adapters
from daa_node.checkpoints.own_chain import own_chain
from daa_node.checkpoints.replay import WEIGHTS
from daa_node.cli import checkpoint, identity, report
from daa_node.cli.compose import training_job
from daa_node.cli.data_directory import DataDirectory
from daa_node.errors import UserError
from daa_node.genesis import Genesis, chain_facts
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.torch_there import need_torch

FILE, FOLDER = "safetensors", "hf"
DEFAULTS = {FILE: Path("model.safetensors"), FOLDER: Path("model")}


def export(root: Path, which: str, format_: str, wanted: Path | None, as_json: bool) -> None:
    """Write a vertex's weights: one file for plain torch, or a folder for transformers or peft.

    Raises UserError.
    """
    if format_ not in DEFAULTS:
        raise UserError(f"--format {format_}: {' or '.join(DEFAULTS)}")
    out = wanted or DEFAULTS[format_]
    directory, made = checkpoint.open_chain(root)
    if os.path.lexists(out):
        raise UserError(f"{out} exists: choose another --out")
    model = made.job.model
    is_adapters = model.adapters is not None
    if format_ == FOLDER and not is_adapters and model.kind != "hf_causal_lm":
        raise UserError(
            f"a model of kind {model.kind} is none of the transformers library: --format {FILE} "
            "writes its tensors by name"
        )
    if format_ == FOLDER and not is_adapters:
        need_torch(f"--format {FOLDER} of a whole model")
    # Before the work that takes minutes: what is wrong with the settings is told at once.
    settings = _settings(directory, made) if format_ == FOLDER else None
    facts = chain_facts(made)
    files, rules = ChainFiles(directory.chain), facts.states
    past = own_chain(files, facts)
    vertex = past.find(checkpoint.tags_of(directory, made).spelled_out(which))
    with room_beside(out) as room:
        state = replayed_state(past, vertex, rules, Room(room, files))
        if settings is None:
            export_safetensors(out, state, rules, made.chain_id, vertex)
        else:
            job, trainer = settings
            with whole_folder(out) as folder:
                if is_adapters:
                    write_adapters(folder, state, rules, made.chain_id, vertex, job.model)
                else:
                    write_model_folder(job, trainer, room / WEIGHTS, folder, out)
    answer = {
        "file": str(out.resolve()),
        "height": vertex.height,
        "vertex_id": vertex.vertex_id.hex(),
        "model_root": vertex.model_root.hex(),
        "tensors": len(rules.tensors),
        "parameters": rules.parameter_count,
    }
    if as_json:
        report.put_json(answer)
    else:
        report.put(
            f"wrote {out}: height {vertex.height}, {len(rules.tensors)} tensors, "
            f"{rules.parameter_count} parameters"
        )


def _settings(directory: DataDirectory, made: Genesis) -> tuple[TrainingJob, TrainerConfig]:
    """With which a folder is written. Raises UserError."""
    config = identity.open_config(directory).value
    trainer = identity.trainer_settings(config, directory)
    return training_job(made, directory, config), trainer
