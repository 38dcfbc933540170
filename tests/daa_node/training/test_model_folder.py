"""What is exported of a model of transformers is what its library loads."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from daa_node.errors import UserError
from daa_node.tensors import slots_of
from daa_node.training import base_weights, model_folder, sampler
from daa_node.training.base_files import TOKENIZER_FILES, digests_of
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import TokenizerFile
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.module import Opened
from daa_node.training.models.opening import open_model
from daa_node.training.module_probe import probe
from daa_node.updates.grid import GRID_ONE
from tests.daa_node.training.hf_models import LLAMA, base_of, job_of, load_plain, probed, save_model
from tests.daa_node.training.own_modules import access, built, pictures, write_package
from tests.daa_node.training.own_modules import job_of as module_job

CPU = TrainerConfig(device="cpu", niceness=0)
SOLAR = {  # it corrects how experts are chosen by a buffer
    "model_type": "solar_open",
    "vocab_size": 256,
    "hidden_size": 16,
    "intermediate_size": 32,
    "moe_intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
VOCABULARY = {"[UNK]": 0, "to": 1, "be": 2, "or": 3, "not": 4, " ": 5}


def first_weights(job: TrainingJob, directory: Path) -> Path:
    """Those of the base, as a grid vector's file."""
    base_weights.answer(job, CPU, {"out": str(directory / "weights")})
    return directory / "weights"


def test_the_library_loads_the_whole_model_with_what_was_trained(tmp_path: Path) -> None:
    folder, out = save_model(tmp_path / "base"), tmp_path / "out"
    for name in TOKENIZER_FILES:
        (folder / name).write_text(f'{{"of": "{name}"}}')
    job = probed(job_of(base=base_of(folder), trainable=["model.norm.weight"]))
    path = first_weights(job, tmp_path)
    weights_D = np.fromfile(path, "<i4")
    assert (weights_D == GRID_ONE).all()  # as a norm begins
    (weights_D * 2).tofile(path)
    out.mkdir()
    model_folder.answer(job, CPU, {"weights": str(path), "out": str(out), "target": "x"})
    ours, before = load_plain(out).state_dict(), load_plain(folder).state_dict()
    for name in TOKENIZER_FILES:
        assert (out / name).read_text() == (folder / name).read_text()
    assert torch.equal(ours["model.norm.weight"], 2 * before["model.norm.weight"])
    others = set(before) - {"model.norm.weight"}
    assert all(torch.equal(ours[name], before[name]) for name in others)


@pytest.mark.parametrize("at_base", [True, False])
def test_a_model_of_which_all_is_trained_is_saved_without_being_built(
    tmp_path: Path, at_base: bool
) -> None:
    """From a mapped file, tied tensors as well."""
    said = {"base": base_of(save_model(tmp_path / "base"))} if at_base else {"config": LLAMA}
    job, out, path = probed(job_of(**said)), tmp_path / "out", tmp_path / "weights"
    weights_D = np.arange(job.model.parameter_count(), dtype="<i4")
    weights_D.tofile(path)
    out.mkdir()
    request = {"weights": str(path), "out": str(out), "target": "x"}
    model_folder.answer(job.model_copy(update={"seed": -1}), CPU, request)  # no seed would do
    loaded = load_plain(out)
    found = torch.cat([p.detach().flatten() for p in loaded.parameters()])
    assert found.tolist() == (weights_D / GRID_ONE).astype(np.float32).tolist()
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    modes = {file.stat().st_mode for file in (*out.iterdir(), path)}
    assert len(modes) == 1, "the rights that are usual here"


def test_a_model_that_keeps_more_than_parameters_is_saved_with_all_of_it(tmp_path: Path) -> None:
    job, out, path = probed(job_of(config=SOLAR)), tmp_path / "out", tmp_path / "weights"
    weights_D = np.arange(job.model.parameter_count(), dtype="<i4")
    weights_D.tofile(path)
    out.mkdir()
    model_folder.answer(job, CPU, {"weights": str(path), "out": str(out), "target": "x"})
    loaded = load_plain(out)
    found = {name: p.detach().flatten().tolist() for name, p in loaded.named_parameters()}
    values_D = (weights_D / GRID_ONE).astype(np.float32)
    for slot in slots_of(job.model.tensors()):
        assert found[slot.spec.name] == values_D[slot.start : slot.stop].tolist()
    assert len(loaded.state_dict()) > len(found)


def test_another_release_of_the_library_saves_nothing(tmp_path: Path) -> None:
    """It may name its tensors otherwise."""
    job, path = probed(job_of(config=LLAMA)), tmp_path / "weights"
    found = job.model.built
    assert found is not None
    np.zeros(job.model.parameter_count(), "<i4").tofile(path)
    other = built(job, found.model_copy(update={"release": "4.0.1"}))
    request = {"weights": str(path), "out": str(tmp_path), "target": "x"}
    with pytest.raises(UserError, match=r"made with transformers 4\.0\.1"):
        model_folder.answer(other, CPU, request)


def test_a_base_that_is_written_to_meanwhile_is_exported_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = save_model(tmp_path / "base"), tmp_path / "out"
    job = probed(job_of(base=base_of(folder), trainable=["model.norm.weight"]))
    path = first_weights(job, tmp_path)
    out.mkdir()

    def write_and_open(*asked: Any) -> Opened:
        os.utime(folder / "model.safetensors", ns=(1, 1))
        return open_model(*asked)

    monkeypatch.setattr(model_folder, "open_model", write_and_open)
    with pytest.raises(UserError, match="model.safetensors: .* was written to while it was in use"):
        model_folder.answer(job, CPU, {"weights": str(path), "out": str(out), "target": "x"})


def test_a_folder_that_has_no_room_is_told_by_the_name_it_would_get(tmp_path: Path) -> None:
    """The library's writer fails in its own way."""
    job, out, path = probed(job_of(config=LLAMA)), tmp_path / "out", tmp_path / "weights"
    np.zeros(job.model.parameter_count(), "<i4").tofile(path)
    out.mkdir()
    request = {"weights": str(path), "out": str(out), "target": "mine"}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # as large as its numbers, and the file of the model has a header before them
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, limits[1]))
    try:
        with pytest.raises(UserError, match="^cannot write mine: .*File too large") as refused:
            model_folder.answer(job, CPU, request)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert refused.value.exit_code == 1


def test_the_first_weights_are_the_bases_own_to_the_bit(tmp_path: Path) -> None:
    job = probed(job_of(base=base_of(save_model(tmp_path / "base"))))
    found = np.fromfile(first_weights(job, tmp_path), "<i4")
    opened = open_model(job.model, 0, access(tmp_path))
    assert job.model.built is not None
    assert base_weights.root_of(base_weights.grid_weights(opened)) == job.model.built.base_root
    whole = load_file(tmp_path / "base" / "model.safetensors")["model.embed_tokens.weight"]
    assert (
        found[: whole.numel()].tolist()
        == torch.round(whole.double().flatten() * GRID_ONE).int().tolist()
    )


@pytest.mark.parametrize("number", [float("nan"), float("-inf"), -128.5])
def test_what_is_no_number_of_the_grid_is_refused(number: float) -> None:
    weight = torch.nn.Parameter(torch.tensor([0.5, number]))
    with pytest.raises(UserError, match="w of its base holds what is no number, or beyond 128"):
        base_weights.grid_weights(Opened("m", torch.nn.Module(), {"w": weight}))


def test_numbers_that_the_grid_has_not_are_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "base")
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][3] = 200.0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"model\.norm\.weight of its base .* beyond 128"):
        probe(job_of(base=base_of(folder)), access(tmp_path), is_checked=True)
    frozen = job_of(base=base_of(folder), trainable=["model.embed_tokens.weight"])
    assert probe(frozen, access(tmp_path), is_checked=True).base_root is not None


@pytest.mark.parametrize("prompt", ["to be", "be"])
def test_it_writes_with_the_tokenizer_of_the_job(tmp_path: Path, prompt: str) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    model = {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "[UNK]"}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    cut = {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False}
    whole: dict[str, object] = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": cut,
        "model": model,
        **empty,
    }
    tokenizer.write_text(json.dumps(whole))
    data = DataConfig(kind="text", path=tmp_path / "x", tokenizer=TokenizerFile(path=tokenizer))
    job = probed(job_of(base=base_of(save_model(tmp_path / "base"))))
    request = {
        "weights": str(first_weights(job, tmp_path)),
        "cache": str(tmp_path / "cache"),
        "prompt": prompt.encode().hex(),
        "count": 12,
        "temperature": 1.0,
        "seed": 2,
    }
    said = sampler.answer(job.model_copy(update={"data": data}), CPU, request)
    words = bytes.fromhex(said).decode().split()
    assert words
    assert set(words) <= VOCABULARY.keys()


def test_a_module_of_ones_own_has_a_base_and_adapters_too(tmp_path: Path) -> None:
    write_package(tmp_path, pictures())
    here = access(tmp_path)
    plain = module_job()
    module = open_model(built(plain, probe(plain, here, True)).model, 7, here).module
    folder = tmp_path / "base"
    folder.mkdir()
    save_file(module.state_dict(), folder / "model.safetensors")
    changes = {"base": base_of(folder), "trainable": {"lora": {**LORA, "targets": ["layer"]}}}
    job = plain.model_copy(update={"model": plain.model.model_copy(update=changes)})
    job = TrainingJob.model_validate_json(job.model_dump_json())
    found = probe(job, here, is_checked=True)
    assert [tensor.name for tensor in found.tensors] == [
        "base_model.model.layer.lora_A.weight",
        "base_model.model.layer.lora_B.weight",
    ]
    assert found.frozen == sum(p.numel() for p in module.parameters())
    opened = open_model(built(job, found).model, 0, here)
    inputs, targets = torch.rand(3, 64), torch.tensor([1, 2, 3])
    assert torch.equal(opened.module(inputs, targets), module(inputs, targets))
    save_file({"layer.weight": torch.zeros(8, 64)}, folder / "model.safetensors")
    model = ModelConfig.model_validate({**job.model.model_dump(), "base": base_of(folder)})
    with pytest.raises(UserError, match="not that of its base: only one of them has head.bias"):
        probe(job.model_copy(update={"model": model}), here, is_checked=True)
    more = {**module.state_dict(), "tail.bias": torch.zeros(1)}
    save_file(more, folder / "model.safetensors")
    model = ModelConfig.model_validate({**job.model.model_dump(), "base": base_of(folder)})
    with pytest.raises(UserError, match="not that of its base: only one of them has tail.bias"):
        probe(job.model_copy(update={"model": model}), here, is_checked=True)


BUFFER = """
def extra(self):
    self.register_buffer("fixed", torch.ones(3))
"""


def test_of_a_module_a_base_has_every_parameter_and_need_have_no_buffer(tmp_path: Path) -> None:
    write_package(tmp_path, pictures(BUFFER))
    here, plain, folder = access(tmp_path), module_job(), tmp_path / "base"
    module = open_model(built(plain, probe(plain, here, True)).model, 7, here).module
    assert "fixed" in module.state_dict()
    folder.mkdir()
    save_file(
        {name: p.detach() for name, p in module.named_parameters()}, folder / "model.safetensors"
    )

    def probe_base() -> None:
        model = ModelConfig.model_validate({**plain.model.model_dump(), "base": base_of(folder)})
        probe(plain.model_copy(update={"model": model}), here, is_checked=True)

    probe_base()
    longer = {name: torch.cat([p, p]).detach() for name, p in module.named_parameters()}
    save_file(longer, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"(?s)is not that of its base: .*size mismatch"):
        probe_base()
    (folder / "model.safetensors").write_bytes(b"no such file")
    with pytest.raises(UserError, match=r"base/model\.safetensors is no safetensors file"):
        probe_base()


def test_weights_in_several_files_are_those_that_the_index_names(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "base")
    load_plain(folder).save_pretrained(tmp_path / "parts", max_shard_size="40KB")
    names = digests_of(tmp_path / "parts")
    assert {"config.json", "model.safetensors.index.json"} < names.keys()
    assert len(names) > 3
    whole, parts = (probed(job_of(base=base_of(tmp_path / name))) for name in ("base", "parts"))
    assert whole.model.first_root == parts.model.first_root
    index = tmp_path / "parts" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "../secret"}}))
    with pytest.raises(UserError, match="index.json: it names .*secret"):
        digests_of(tmp_path / "parts")


LORA = {"rank": 2, "alpha": 2}
