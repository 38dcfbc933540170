"""A base in halves takes their room, and every result has the bits of one that is float32."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from daa_node.tensors import TensorSpec
from daa_node.training import model_folder
from daa_node.training.base_config import BaseFolder
from daa_node.training.config import TrainerConfig
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.models.frozen import _Again, _Widening, compute_in_float32
from daa_node.training.models.module import ModuleLoss, Opened
from daa_node.training.models.opening import open_model
from daa_node.training.module_source import NO_MODULES
from daa_node.training.site.shards import _module_of
from daa_node.updates.grid import GRID_ONE
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
from tests.daa_node.training.test_own_module import learns_and_is_checked

INPUTS_BT = torch.arange(24).view(2, 12)
GEMMA = LLAMA | {"model_type": "gemma2", "head_dim": 8}
CASES = [
    (LLAMA, LORA, torch.bfloat16),
    (LLAMA | {"tie_word_embeddings": False}, LORA, torch.float16),
    (GPT2, GPT2_LORA, torch.bfloat16),
    (LLAMA, ["model.layers.0.*", "*.1.*.q_proj.weight"], torch.bfloat16),
    (LLAMA, ["model.embed_tokens.weight"], torch.bfloat16),
    (GEMMA, LORA, torch.bfloat16),  # it multiplies by the root of its width, a buffer
]

MAMBA = {"model_type": "mamba", "vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 1}
BAMBA = {
    "model_type": "bamba",
    "vocab_size": 300,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "mamba_n_heads": 4,
    "mamba_d_head": 8,
    "mamba_d_state": 4,
}


def bases(room: Path, config: dict[str, Any], dtype: torch.dtype) -> list[BaseFolder]:
    """The same numbers twice: as halves, and as float32."""
    folder = save_model(room / "wide", config)
    halves = {name: t.to(dtype) for name, t in load_file(folder / "model.safetensors").items()}
    for name, tensors in (
        ("half", halves),
        ("wide", {name: tensor.float() for name, tensor in halves.items()}),
    ):
        (room / name).mkdir(exist_ok=True)
        (room / name / "config.json").write_text((folder / "config.json").read_text())
        save_file(tensors, room / name / "model.safetensors", {"format": "pt"})
    return [base_of(room / name) for name in ("half", "wide")]


def opened(base: BaseFolder, trainable: object) -> Opened:
    return open_model(probed(job_of(base=base, trainable=trainable)).model, 3, NO_MODULES)


def taken(model: Opened) -> list[torch.Tensor]:
    """A loss, and the gradient of each parameter."""
    loss = model.module(INPUTS_BT, INPUTS_BT + 1)
    loss.backward()
    gradients = [p.grad for p in model.parameters.values() if p.grad is not None]
    return [loss.detach(), *gradients]


@pytest.mark.parametrize(("config", "trainable", "dtype"), CASES)
def test_loss_and_gradient_have_the_bits_of_a_base_in_float32(
    tmp_path: Path, config: dict[str, Any], trainable: object, dtype: torch.dtype
) -> None:
    half, wide = (opened(base, trainable) for base in bases(tmp_path, config, dtype))
    assert {p.dtype for p in half.parameters.values()} == {torch.float32}
    dtypes = {p.dtype for p in half.module.parameters() if not p.requires_grad}
    assert dtypes == {dtype}
    assert {p.dtype for p in wide.module.parameters()} == {torch.float32}
    for parameter, other in zip(half.parameters.values(), wide.parameters.values(), strict=True):
        other.data.copy_(parameter.data.normal_(std=0.1))  # adapters begin as no change
    ours, expected = taken(half), taken(wide)
    assert len(ours) == len(expected) == 1 + len(half.parameters)
    assert all(torch.equal(one, other) for one, other in zip(ours, expected, strict=True))
    again = {p.dtype for p in half.module.parameters() if not p.requires_grad}
    assert again == {dtype}, "they lie as they did"


@pytest.mark.parametrize("config", [MAMBA, BAMBA], ids=["multiplies", "rounds"])
def test_a_model_that_uses_a_part_without_running_it_has_its_base_in_float32(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    """Mamba multiplies by the weight of a layer that it does not run; Bamba rounds to its dtype.

    Nothing fails then: two halves are multiplied, and the numbers are others.
    """
    half, wide = (
        opened(base, ["*.in_proj.weight"]) for base in bases(tmp_path, config, torch.bfloat16)
    )
    assert {p.dtype for p in half.module.parameters()} == {torch.float32}
    ours, expected = taken(half), taken(wide)
    assert all(torch.equal(one, other) for one, other in zip(ours, expected, strict=True))


def test_a_base_of_several_types_is_float32_as_a_whole(tmp_path: Path) -> None:
    """A half of it would be rounded where the others are not."""
    base, _ = bases(tmp_path, LLAMA, torch.bfloat16)
    file = tmp_path / "half" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"] = torch.full((32,), 1 + 1 / GRID_ONE)
    save_file(tensors, file, {"format": "pt"})
    model = opened(base_of(tmp_path / "half"), LORA)
    assert {p.dtype for p in model.module.parameters()} == {torch.float32}
    norm = next(
        p for name, p in model.module.named_parameters() if name.endswith("model.norm.weight")
    )
    assert torch.equal(norm, tensors["model.norm.weight"])


def test_steps_beside_halves_are_checked_by_who_has_them_too(tmp_path: Path) -> None:
    job = probed(job_of(base=bases(tmp_path, LLAMA, torch.bfloat16)[0], trainable=LORA))
    learns_and_is_checked(core_of(job, tmp_path), genesis_weights(job.model, job.seed), 0.03)


def test_between_forward_and_backward_no_float32_copy_is_kept(tmp_path: Path) -> None:
    """Of each layer's frozen weight, autograd holds where to make it again."""
    model = opened(bases(tmp_path, LLAMA, torch.bfloat16)[0], LORA)
    loss = model.module(INPUTS_BT, INPUTS_BT + 1)
    again = [one.half for one in gc.get_objects() if type(one) is _Again]
    layers = [m for m in model.module.modules() if isinstance(m, nn.Linear)]
    halves = {id(m.weight) for m in layers if m.weight.dtype == torch.bfloat16}
    # but for those below the first adapter, on the way to which there is no way back
    assert len(halves & {id(half) for half in again}) >= len(halves) - 3
    loss.backward()
    del loss, again
    assert not [one for one in gc.get_objects() if type(one) is _Again]


def test_an_exported_folder_loads_what_was_trained_to_the_bit(tmp_path: Path) -> None:
    base = bases(tmp_path, LLAMA, torch.bfloat16)[0]
    job = probed(job_of(base=base, trainable=["model.norm.weight"]))
    out, weights = tmp_path / "out", tmp_path / "weights"
    np.full(32, GRID_ONE + 3, "<i4").tofile(weights)  # no half is so fine
    out.mkdir()
    request = {"weights": str(weights), "out": str(out), "target": "x"}
    model_folder.answer(job, TrainerConfig(device="cpu", niceness=0), request)
    ours = load_plain(out).state_dict()
    assert torch.equal(ours["model.norm.weight"], torch.full((32,), 1 + 3 / GRID_ONE))
    before = load_file(tmp_path / "half" / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(ours["model.embed_tokens.weight"], before.float())


def test_a_forward_that_fails_leaves_them_as_they_lie(tmp_path: Path) -> None:
    model = opened(bases(tmp_path, LLAMA, torch.bfloat16)[0], LORA)
    before = [(p.dtype, p.data_ptr()) for p in model.module.parameters()]
    with pytest.raises(IndexError):
        model.module(INPUTS_BT + 4096, INPUTS_BT)
    assert [(p.dtype, p.data_ptr()) for p in model.module.parameters()] == before
    taken(model)


class Sliced(nn.Module):
    """It computes with parts of what it owns, by two names."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.whole = nn.Parameter(weight, requires_grad=False)
        self.again = self.whole

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        return (stream @ self.whole[1:].T).tanh() @ self.again[1:, ::2]


def test_what_is_made_again_is_the_very_part_that_was_computed_with() -> None:
    half = torch.randn(5, 6, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    module, wide = Sliced(half), Sliced(half.float())
    stream = torch.randn(3, 6, generator=torch.Generator().manual_seed(3)).requires_grad_()
    compute_in_float32(module, lambda: module(stream))
    ours, expected = (torch.autograd.grad(m(stream).square().sum(), stream) for m in (module, wide))
    assert torch.equal(ours[0], expected[0])
    assert module.whole is module.again
    assert module.whole.dtype == torch.bfloat16


def test_what_is_computed_outside_of_it_is_no_matter_of_its(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither after a forward, nor after one that has failed."""
    packed = []
    pack = _Widening._pack

    def note(widening: _Widening, saved: torch.Tensor) -> object:
        packed.append(saved)
        return pack(widening, saved)

    monkeypatch.setattr(_Widening, "_pack", note)
    module, stream = Sliced(torch.ones(5, 6).half()), torch.ones(3, 6, requires_grad=True)
    compute_in_float32(module, lambda: module(stream))
    module(stream)
    with pytest.raises(RuntimeError, match="shapes"):
        module(stream[:, 1:])
    assert packed
    packed.clear()
    stream.exp().sum().backward()  # type: ignore[no-untyped-call]
    assert not packed


def test_a_base_of_halves_is_mapped_and_not_read(tmp_path: Path) -> None:
    model = opened(bases(tmp_path, LLAMA, torch.bfloat16)[0], LORA)
    frozen_ones = [p for p in model.module.parameters() if not p.requires_grad]
    maps = [
        line.split()[0]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "half" in line
    ]
    spans = [tuple(int(end, 16) for end in one.split("-")) for one in maps]
    for parameter in frozen_ones:
        assert any(low <= parameter.data_ptr() < high for low, high in spans)


def test_several_devices_share_a_base_in_float32(tmp_path: Path) -> None:
    """What is sharded together has one dtype."""
    model = opened(bases(tmp_path, LLAMA, torch.bfloat16)[0], LORA)
    specs = tuple(TensorSpec(name, tuple(p.shape)) for name, p in model.parameters.items())
    module, names = _module_of(specs, ModuleLoss(model))
    assert {p.dtype for p in module.parameters()} == {torch.float32}
    assert len(names) == len(specs)
    taken(model)
