"""A base by digest, from the job to the genesis, the worker, text, and an exported folder."""

import json
from pathlib import Path

import pytest

from daa_node.cli.compose import first_weights, training_job
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.identity import open_config, trainer_settings
from daa_node.cli.local import read_genesis
from daa_node.errors import UserError
from daa_node.genesis import Genesis
from tests.daa_node.cli.conftest import Command, make_node
from tests.daa_node.cli.test_sample import begin_chain
from tests.daa_node.training.hf_models import LLAMA, load_plain, save_model

JOB = """name: friends
model:
  kind: hf_causal_lm
  base: {path: tiny}
  trainable: TRAINABLE
  context: 16
end: {rounds: 1}
"""
LORA = "{lora: {rank: 2, alpha: 4, targets: [q_proj]}}"
NUMBERS = 26_784  # of the small model
ADAPTED = 2 * (2 * 32 + 32 * 2)


def founded(command: Command, room: Path, trainable: str) -> tuple[Path, Genesis, str]:
    """A node's directory with the genesis of a network of its own, and what its maker was told."""
    save_model(room / "tiny")
    (room / "job.yaml").write_text(JOB.replace("TRAINABLE", trainable))
    node = room / "n"
    record = make_node(command, node)
    out = node / "genesis.json"
    said = command(
        *("genesis", "create", room / "job.yaml", "--validator", record, "--dir", node),
        *("--out", out),
    )
    assert said.code == 0, said.err
    return node, read_genesis(out), said.out


def test_friends_found_a_network_and_export_what_it_came_to(
    command: Command, tmp_path: Path
) -> None:
    node, made, said = founded(command, tmp_path, LORA)
    assert f"it trains {ADAPTED} of {NUMBERS + ADAPTED} numbers: an update of codec int8" in said
    assert made.job.model.base is not None
    assert made.job.model.base.path == Path("tiny")  # each host has it where it says
    assert set(made.job.model.base.files or ()) == {"config.json", "model.safetensors"}
    begin_chain(node, made)
    out = tmp_path / "adapter"
    done = command("checkpoint", "export", "--format", "hf", "--out", out, "--dir", node)
    assert done.code == 0, done.err
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(load_plain(tmp_path / "tiny"), out)
    assert adapted.peft_config["default"].to_dict()["r"] == 2
    writing = ("sample", "--prompt", "To be", "--tokens", "3", "--dir", node)
    absent = command(*writing)
    assert (absent.code, "n/tiny/config.json: cannot read this file" in absent.err) == (2, True)
    config = node / "config.yaml"
    config.write_text(config.read_text() + f"model: {{base: {tmp_path / 'tiny'}}}\n")
    assert command(*writing).out.startswith("To be")
    again = command("checkpoint", "export", "--format", "hf", "--out", out, "--dir", node)
    assert (again.code, f"{out} exists" in again.err) == (2, True)
    strange = command("checkpoint", "export", "--format", "onnx", "--dir", node)
    assert (strange.code, "--format onnx: safetensors or hf" in strange.err) == (2, True)


def test_first_weights_are_taken_from_this_hosts_copy_of_the_base(
    command: Command, tmp_path: Path
) -> None:
    node, made, _ = founded(command, tmp_path, '["model.norm.weight"]')
    directory = DataDirectory(node)
    config = open_config(directory).value
    settings = trainer_settings(config, directory)
    with pytest.raises(UserError, match="n/tiny/config.json: cannot read"):
        first_weights(training_job(made, directory, config), directory, settings)
    never_trains = settings.model_copy(update={"contribute": False})  # it asks members
    assert first_weights(training_job(made, directory, config), directory, never_trains) is None
    (tmp_path / "tiny").rename(node / "tiny")
    found = first_weights(training_job(made, directory, config), directory, settings)
    assert found is not None
    assert found.tolist() == [1 << 24] * 32
    shown = json.loads(command("genesis", "show", "--file", node / "genesis.json", "--json").out)
    assert shown["parameters"] == 32
    begin_chain(node, made)
    other = command("checkpoint", "export", "--format", "hf", "--dir", node)
    assert (other.code, "cannot be had from this directory" in other.err) == (1, True)


def test_a_place_of_a_base_that_the_model_has_not_is_refused(
    command: Command, tmp_path: Path
) -> None:
    node = tmp_path / "n"
    record = make_node(command, node)
    (tmp_path / "job.yaml").write_text("name: plain\nend: {rounds: 1}\n")
    out = node / "genesis.json"
    made = command(
        *("genesis", "create", tmp_path / "job.yaml", "--validator", record, "--out", out)
    )
    assert made.code == 0, made.err
    directory = DataDirectory(node)
    (node / "config.yaml").write_text("model: {base: tiny}\n")
    with pytest.raises(UserError, match="model.base: this network's model has no base"):
        training_job(read_genesis(out), directory, open_config(directory).value)
    begin_chain(node, read_genesis(out))
    (node / "config.yaml").write_text("")
    other = command("checkpoint", "export", "--format", "hf", "--dir", node)
    assert (other.code, "kind byte_gpt is none of the transformers" in other.err) == (2, True)


def test_a_whole_language_model_is_exported_as_a_folder(command: Command, tmp_path: Path) -> None:
    node = tmp_path / "n"
    record = make_node(command, node)
    model = {"kind": "hf_causal_lm", "config": LLAMA, "context": 16, "vocabulary": 256}
    job = {"name": "whole", "model": model, "end": {"rounds": 1}}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    made = node / "genesis.json"
    said = command(
        *("genesis", "create", tmp_path / "job.yaml", "--validator", record),
        *("--out", made, "--dir", node),
    )
    assert said.code == 0, said.err
    begin_chain(node, read_genesis(made))
    out = tmp_path / "model"
    done = command("checkpoint", "export", "--format", "hf", "--out", out, "--dir", node)
    assert done.code == 0, done.err
    whole = load_plain(out)
    assert sum(one.numel() for one in whole.parameters()) == NUMBERS
