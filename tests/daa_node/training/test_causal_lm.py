"""Models of transformers, whole or by adapters, take the steps that the libraries themselves do."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from daa_node.errors import UserError
from daa_node.tensors import Int32Array, slots_of
from daa_node.training.base_config import (
    ALPHA_MAX,
    BASE_CONFIG_REFUSED,
    CONFIG_REFUSED,
    FILES_MAX,
    PATTERNS_MAX,
    RANK_MAX,
    TARGETS_MAX,
    BaseFolder,
)
from daa_node.training.base_files import digests_of
from daa_node.training.base_weights import grid_weights
from daa_node.training.config import TrainingJob
from daa_node.training.datasets.files import digest_of_content
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.training.models import causal_lm
from daa_node.training.models.causal_lm import OFFLINE, _check_sizes, release
from daa_node.training.models.opening import open_model
from daa_node.training.module_probe import probe
from daa_node.training.module_source import NO_MODULES
from daa_node.updates.grid import to_float32
from tests.daa_node.training.hf_models import (
    GPT2,
    GPT2_LORA,
    LLAMA,
    LORA,
    base_of,
    core_of,
    job_of,
    load_plain,
    probed,
    save_model,
)
from tests.daa_node.training.own_modules import built
from tests.daa_node.training.test_own_module import (
    learns_and_is_checked,
)

PROMPT_BT = torch.arange(20, 32).view(1, 12)


@pytest.mark.parametrize(
    ("config", "trainable"),
    [(LLAMA, LORA), (GPT2, GPT2_LORA), (LLAMA, None), (LLAMA, ["model.layers.1.*"])],
    ids=["llama-lora", "gpt2-lora", "llama-whole", "llama-some"],
)
def test_its_loss_falls_and_a_segment_of_it_is_checked(
    tmp_path: Path, config: dict[str, Any], trainable: object
) -> None:
    base = base_of(save_model(tmp_path / "base", config))
    job = probed(job_of(base=base, trainable=trainable))
    base_D = grid_of(job) if job.model.begins_at_base else genesis_weights(job.model, job.seed)
    learns_and_is_checked(core_of(job, tmp_path), base_D, 0.03)


def grid_of(job: TrainingJob) -> Int32Array:
    """The first weights of a job that begins at its base, as a host finds them."""
    return np.concatenate([*grid_weights(open_model(job.model, 0, NO_MODULES)).values()])


def test_adapters_begin_as_no_change_of_the_base(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "base")
    job = probed(job_of(base=base_of(folder), trainable=LORA))
    base_D = torch.from_numpy(to_float32(genesis_weights(job.model, job.seed)))
    opened = open_model(job.model, job.seed, NO_MODULES)
    for slot in slots_of(job.model.tensors()):
        part = base_D[slot.start : slot.stop].view(slot.spec.shape)
        opened.parameters[slot.spec.name].data.copy_(part)
    with torch.no_grad():
        ours = opened.module.logits(PROMPT_BT)  # type: ignore[operator]
        plain = load_plain(folder)(PROMPT_BT).logits
    assert torch.equal(ours, plain)


def test_its_loss_is_that_of_the_library(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "base")
    opened = open_model(probed(job_of(base=base_of(folder))).model, 0, NO_MODULES)
    targets = PROMPT_BT + 1
    ours = opened.module(PROMPT_BT, targets)
    plain = load_plain(folder)(PROMPT_BT).logits
    assert torch.allclose(ours, F.cross_entropy(plain[0], targets[0]))
    both_BT, wanted_BT = torch.cat([PROMPT_BT, PROMPT_BT * 3]), torch.cat([targets, targets * 5])
    logits = load_plain(folder)(both_BT).logits
    expected = (
        F.cross_entropy(logits[0], wanted_BT[0]) + F.cross_entropy(logits[1], wanted_BT[1])
    ) / 2
    assert torch.allclose(opened.module(both_BT, wanted_BT), expected)
    # the library shifts by itself: of the same tokens, its loss is that of all but the last
    whole = load_plain(folder)(PROMPT_BT, labels=PROMPT_BT).loss
    assert torch.allclose(opened.module(PROMPT_BT[:, :-1], PROMPT_BT[:, 1:]), whole)


def test_only_what_is_trainable_is_in_the_genesis_and_what_is_tied_is_there_once(
    tmp_path: Path,
) -> None:
    base = base_of(save_model(tmp_path / "base"))
    whole = probed(job_of(base=base))
    names = [spec.name for spec in whole.model.tensors()]
    assert names[0] == "model.embed_tokens.weight"
    assert "lm_head.weight" not in names
    some = probed(job_of(base=base, trainable=["*.q_proj.weight", "model.norm.weight"]))
    assert [spec.name for spec in some.model.tensors()] == [
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.q_proj.weight",
        "model.norm.weight",
    ]
    adapters = probed(job_of(base=base, trainable=LORA))
    first = adapters.model.tensors()[0]
    assert first.name == "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    assert first.shape == (4, 32)
    counts = [(j.model.parameter_count(), j.model.built) for j in (whole, some, adapters)]
    total = whole.model.parameter_count()
    assert [count + (found.frozen or 0) for count, found in counts[:2] if found] == [total] * 2
    assert counts[2][0] == 2 * (4 * 32 + 32 * 4 + 4 * 32 + 16 * 4)


def test_dropout_of_the_config_draws_nothing(tmp_path: Path) -> None:
    job = probed(job_of(config=GPT2 | {"resid_pdrop": 0.5, "attn_pdrop": 0.5, "embd_pdrop": 0.5}))
    assert job.model.built is not None  # else the probe had found two gradients apart


def test_the_files_are_compared_before_anything_is_built(tmp_path: Path) -> None:
    base = base_of(save_model(tmp_path / "base"))
    job = probed(job_of(base=base, trainable=LORA))
    save_model(tmp_path / "base", seed=2)
    assert base.files is not None
    wanted = base.files["model.safetensors"]
    with pytest.raises(UserError, match=f"the genesis names {wanted}; nothing was trained"):
        core_of(job, tmp_path)
    (tmp_path / "base" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=f"No such file.* it should have the blake3 {wanted}"):
        core_of(job, tmp_path)
    model = job.model.anywhere()
    with pytest.raises(UserError, match=rf"say in config.yaml, model\.base, .*{wanted}"):
        core_of(job.model_copy(update={"model": model}), tmp_path)


def test_what_else_lies_in_the_folder_is_not_looked_at(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "base")
    before = probed(job_of(base=base_of(folder)))
    (folder / "adapter_config.json").write_text("{")  # the library would take it for an adapter
    (folder / "modeling_own.py").write_text("raise SystemExit")
    assert probed(job_of(base=base_of(folder))) == before
    core_of(before, tmp_path)


def test_other_tensors_than_the_genesis_has_are_refused(tmp_path: Path) -> None:
    job = probed(job_of(base=base_of(save_model(tmp_path / "base")), trainable=LORA))
    found = job.model.built
    assert found is not None
    wider = found.tensors[0].model_copy(update={"shape": (8, 32)})
    other = built(job, found.model_copy(update={"tensors": (wider, *found.tensors[1:])}))
    with pytest.raises(UserError, match="is not the one of the genesis: it builds base_model.mod"):
        core_of(other, tmp_path)


def test_another_release_of_the_library_is_refused(tmp_path: Path) -> None:
    job = probed(job_of(config=LLAMA))
    assert job.model.built is not None
    other = built(job, job.model.built.model_copy(update={"release": "4.0.1"}))
    with pytest.raises(UserError, match=r"made with transformers 4\.0\.1, and 5.*pip install"):
        core_of(other, tmp_path)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"trainable": ["lm_head.*"]}, r"no tensor like lm_head\.\* .* it has 20: model.embed"),
        (
            {"trainable": {"lora": {"rank": 2, "alpha": 4, "targets": ["c_attn"]}}},
            r"no low-rank matrices beside c_attn",
        ),
        (
            {"trainable": {"lora": {"rank": 2, "alpha": 4, "targets": ["q_proj", "k_prj"]}}},
            "no layer's name ends in k_prj .* name 2 layers",
        ),
        (
            {"trainable": {"lora": {"rank": 2, "alpha": 4, "targets": ["q_proj", "proj"]}}},
            "no layer's name ends in proj ",
        ),
        ({"vocabulary": 300}, "model.vocabulary is 300, and the model has vocab_size 256"),
        ({"context": 65}, "model.context is 65, and the model has max_position_embeddings 64"),
    ],
)
def test_what_the_base_has_not_is_told(
    tmp_path: Path, fields: dict[str, object], what: str
) -> None:
    job = job_of(base=base_of(save_model(tmp_path / "base")), **fields)
    with pytest.raises(UserError, match=what):
        probe(job, NO_MODULES, is_checked=True)


def test_what_a_config_makes_follows_from_the_seed_and_takes_nothing_of_others_chance() -> None:
    job, built_twice = job_of(config=LLAMA), []
    for chance in (1, 2):
        torch.manual_seed(chance)
        state = torch.random.get_rng_state()
        built_twice.append(causal_lm.build(job.model, None, job.seed))
        assert torch.equal(torch.random.get_rng_state(), state)
    one, other = (dict(model.named_parameters()) for model in built_twice)
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_model_that_sees_what_it_is_to_predict_is_refused() -> None:
    bert = {"model_type": "bert", "vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 1}
    bert |= {"num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 64}
    with pytest.raises(UserError, match="depends on those after it, which it is to predict"):
        probe(job_of(config=bert), NO_MODULES, is_checked=True)
    probe(job_of(config={**bert, "is_decoder": True}), NO_MODULES, is_checked=True)


def test_adapters_begin_alike_wherever_they_are_built(tmp_path: Path) -> None:
    job = job_of(base=base_of(save_model(tmp_path / "base")), trainable=LORA)
    found = []
    for chance in (1, 2):
        torch.manual_seed(chance)
        found.append(probe(job, NO_MODULES, is_checked=False))
    assert found[0] == found[1]


class Buffers(nn.Module):
    """One is saved with a model, the other follows from its config."""

    def __init__(self, stored: float, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.register_buffer("stored", torch.tensor(stored, dtype=dtype))
        self.register_buffer("computed", torch.tensor(0.3, dtype=dtype), persistent=False)


def test_a_buffer_is_the_bases_own_or_computed_and_rounded_to_no_half() -> None:
    made = SimpleNamespace(from_config=lambda _config, dtype: Buffers(1.0, dtype))
    model = Buffers(5.0, torch.bfloat16)
    causal_lm._widen_buffers(SimpleNamespace(AutoModelForCausalLM=made), None, model)
    exact = {"stored": torch.tensor(5.0), "computed": torch.tensor(0.3)}
    found = dict(model.named_buffers())
    assert found.keys() == exact.keys()
    for name, buffer in found.items():
        assert buffer.dtype == torch.float32
        assert torch.equal(buffer, exact[name])


def test_of_a_model_of_several_parts_that_of_text_has_the_sizes() -> None:
    text = SimpleNamespace(vocab_size=256, max_position_embeddings=64)
    config = SimpleNamespace(get_text_config=lambda: text, vocab_size=9999)
    for context, vocabulary in ((64, 256), (64, 257), (65, 256)):
        model = ModelConfig.model_validate(
            {"kind": "hf_causal_lm", "config": LLAMA, "context": context, "vocabulary": vocabulary}
        )
        if (context, vocabulary) == (64, 256):
            _check_sizes(model, config)
        else:
            with pytest.raises(UserError, match=r"is (257|65), and the model has"):
                _check_sizes(model, config)


def test_the_library_is_told_to_ask_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OFFLINE:
        monkeypatch.delenv(name, raising=False)
    release()
    assert {name: os.environ.get(name) for name in OFFLINE} == OFFLINE


def test_a_network_that_was_founded_with_a_target_of_no_layer_goes_on(tmp_path: Path) -> None:
    base = base_of(save_model(tmp_path / "base"))
    founded = probed(job_of(base=base, trainable=LORA)).model
    lora = {**LORA["lora"], "targets": ["q_proj", "v_proj", "k_prj"]}
    other = founded.model_dump() | {"trainable": {"lora": lora}}
    opened = open_model(ModelConfig.model_validate(other), 3, NO_MODULES)
    assert list(opened.parameters) == [spec.name for spec in founded.tensors()]


def test_a_base_whose_weights_are_not_those_of_its_config_is_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "base")
    wider = save_model(tmp_path / "wider", LLAMA | {"num_hidden_layers": 3})
    (folder / "config.json").write_text((wider / "config.json").read_text())
    with pytest.raises(UserError, match="does not fit its config.json: missing keys: .*layers.2"):
        probe(job_of(base=base_of(folder)), NO_MODULES, is_checked=True)
    (folder / "config.json").write_text('{"model_type": "no such"}')
    with pytest.raises(UserError, match="/base cannot be built: ValueError: .*no such"):
        probe(job_of(base=base_of(folder)), NO_MODULES, is_checked=True)
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"the model's base, .*/base, has no config\.json"):
        probe(job_of(base=base_of(folder)), NO_MODULES, is_checked=True)


@pytest.mark.parametrize("name", sorted(BASE_CONFIG_REFUSED))
@pytest.mark.parametrize("is_below", [False, True])
def test_a_base_whose_config_asks_for_other_arithmetic_is_refused(
    tmp_path: Path, name: str, is_below: bool
) -> None:
    folder = save_model(tmp_path / "base")
    asked: dict[str, Any] = {name: {}}
    text = json.dumps({"model_type": "llama", "parts": [asked]} if is_below else LLAMA | asked)
    (folder / "config.json").write_text(text)
    with pytest.raises(UserError, match=f"its config.json has {name}"):
        probe(job_of(base=base_of(folder)), NO_MODULES, is_checked=True)


def test_a_base_that_brings_code_is_refused_and_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_model(tmp_path / "base")
    (folder / "configuration_own.py").write_text("raise SystemExit")
    brought = {"model_type": "own", "auto_map": {"AutoConfig": "configuration_own.Own"}}
    (folder / "config.json").write_text(json.dumps(brought))
    questions: list[str] = []

    def say_yes(question: str) -> str:
        questions.append(question)
        return "yes"

    monkeypatch.setattr("builtins.input", say_yes)
    with pytest.raises(UserError, match="cannot be built: ValueError: .*custom code"):
        probe(job_of(base=base_of(folder)), NO_MODULES, is_checked=True)
    assert questions == []


def test_an_index_reaches_no_file_but_those_of_the_genesis(tmp_path: Path) -> None:
    folder, elsewhere = save_model(tmp_path / "base"), tmp_path / "secret.safetensors"
    (folder / "model.safetensors").rename(elsewhere)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "part-1.safetensors"}}))
    (folder / "part-1.safetensors").write_bytes(b"")
    files = digests_of(folder)
    assert set(files) == {"config.json", "part-1.safetensors", index.name}
    index.write_text(json.dumps({"weight_map": {"a": "more.safetensors"}}))
    files |= {index.name: digest_of_content(index)}
    with pytest.raises(UserError, match=r"lie in more\.safetensors as well"):
        probe(job_of(base=BaseFolder(path=folder, files=files)), NO_MODULES, is_checked=True)
    for name in (f"../{elsewhere.name}", str(elsewhere), "model.bin", "adapter_config.json", ""):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(UserError, match="and not its files"):
            digests_of(folder)
        files |= {index.name: digest_of_content(index)}
        with pytest.raises(UserError, match="and not its files"):
            probe(job_of(base=BaseFolder(path=folder, files=files)), NO_MODULES, is_checked=True)
    index.write_text("[" * 100_000)
    with pytest.raises(UserError, match="no index of safetensors files: RecursionError"):
        digests_of(folder)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, "needs a base, or a config"),
        ({"config": LLAMA, "base": {"path": "b"}}, "needs a base, or a config: one of them"),
        ({"config": LLAMA, "trainable": ["*"]}, "trainable needs a base"),
        ({"config": {"n_layer": 2}}, "config needs a model_type"),
        ({"config": LLAMA | {"_x": 1}}, "config takes no _x"),
        ({"config": LLAMA | {"text_config": {"auto_map": {}}}}, "config takes no auto_map"),
        ({"config": LLAMA | {"parts": [{"dtype": "float16"}]}}, "config takes no dtype"),
        *(
            ({"config": LLAMA | {name: "a"}}, f"config takes no {name}: a job brings")
            for name in sorted(CONFIG_REFUSED)
        ),
        ({"base": {}}, "a base needs a path, or its files by digest"),
        *(
            ({"base": {"files": {name: "ab" * 32}}}, "should match pattern")
            for name in (
                *("../x.safetensors", "x/y.safetensors", ".safetensors", "x.bin", "modeling.py"),
                *("adapter_config.json", "config.json\n", "config_json", "x.safetensors.bin"),
            )
        ),
        ({"base": {"path": "b"}, "depth": 3}, "a model of kind hf_causal_lm takes no depth"),
        ({"base": {"path": "b"}, "path": "a:b"}, "takes no path"),
        ({"kind": "mlp", "base": {"path": "b"}}, "a model of kind mlp takes no base"),
        (
            {"base": {"path": "b"}, "trainable": {"lora": {**LORA["lora"], "dropout": 0.1}}},
            "Input should be 0",
        ),
        *(
            ({"base": {"path": "b"}, "trainable": {"lora": {**LORA["lora"], **wrong}}}, what)
            for wrong, what in (
                ({"rank": 0}, "rank.*greater than or equal to 1"),
                ({"rank": RANK_MAX + 1}, f"rank.*less than or equal to {RANK_MAX}"),
                ({"alpha": 0}, "alpha.*greater than or equal to 1"),
                ({"alpha": ALPHA_MAX + 1}, f"alpha.*less than or equal to {ALPHA_MAX}"),
                ({"targets": []}, "targets.*at least 1 item"),
                ({"targets": ["q"] * (TARGETS_MAX + 1)}, f"targets.*at most {TARGETS_MAX} items"),
                ({"targets": ["q.*"]}, "targets.*should match pattern"),
                ({"targets": ["q" * 257]}, "targets.*should match pattern"),
            )
        ),
        ({"base": {"path": "b"}, "trainable": []}, "at least 1 item"),
        ({"base": {"path": "b"}, "trainable": ["*"] * (PATTERNS_MAX + 1)}, f"most {PATTERNS_MAX}"),
        ({"base": {"path": "b"}, "trainable": ["a b"]}, "should match pattern"),
        (
            {"base": {"files": {f"{n}.safetensors": "ab" * 32 for n in range(FILES_MAX + 1)}}},
            f"at most {FILES_MAX} items",
        ),
        (
            {"base": {"path": "b"}, "built": {"tensors": [{"name": "w", "shape": [1]}]}},
            "its files are required by digest",
        ),
    ],
)
def test_a_wrong_model_is_refused_with_what_is_wrong(fields: dict[str, object], what: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){what}"):
        ModelConfig.model_validate({"kind": "hf_causal_lm", **fields})


def test_a_model_may_be_as_large_as_its_limits_and_names_its_files_in_one_order() -> None:
    """Or two who say the same of it would found two networks."""
    lora = {"rank": RANK_MAX, "alpha": ALPHA_MAX, "targets": ["q" * 256] * TARGETS_MAX}
    names = [f"{number}.safetensors" for number in range(FILES_MAX)]
    base = {"files": {name: "ab" * 32 for name in reversed(names)}}
    for trainable in ({"lora": lora}, ["*" * 256] * PATTERNS_MAX):
        fields = {"kind": "hf_causal_lm", "base": base, "trainable": trainable}
        model = ModelConfig.model_validate(fields)
        assert model.base is not None
        assert list(model.base.files or ()) == sorted(names)


HUGE = LLAMA | {"hidden_size": 1 << 20, "intermediate_size": 1 << 20}  # 17 TB a layer


def test_a_config_of_a_model_that_fits_no_host_takes_no_memory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.config: \d{14} parameters, at most 1073741824"):
        probe(job_of(config=HUGE), NO_MODULES, is_checked=True)
    found = probed(job_of(config=LLAMA)).model.built
    assert found is not None
    with pytest.raises(UserError, match=r"its config makes \d{14} parameters, .* has 26784"):
        core_of(built(job_of(config=HUGE), found), tmp_path)


@pytest.mark.parametrize("library", ["transformers", "peft"])
def test_without_the_extra_one_error_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    job = job_of(base=base_of(save_model(tmp_path / "base")), trainable=LORA)
    monkeypatch.setitem(sys.modules, library, None)  # as where it is not installed
    with pytest.raises(UserError, match=f"the {library} library, .*: pip install 'daa-comp.*hf.'"):
        probe(job, NO_MODULES, is_checked=True)
