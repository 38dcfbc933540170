"""Build the model of a job that is not one of ours: somebody's module, or one of transformers.

    code or library --> built, by seed --> the base's weights put in --> what is trained, chosen

A worker compares what comes of it with the tensors of the genesis, before anything is trained.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from daa_node.errors import UserError
from daa_node.tensors import TensorSpec
from daa_node.training import base_files
from daa_node.training.model_config import ModelConfig
from daa_node.training.models import causal_lm
from daa_node.training.models.adapters import add_adapters
from daa_node.training.models.frozen import compute_in_float32, make_float32
from daa_node.training.models.module import Opened
from daa_node.training.module_source import (
    Build,
    ModuleAccess,
    Source,
    find_as_agreed,
    find_source,
    load_build,
)

NAMES_SAID = 8  # of tensors, in an error

MakeModule = Callable[[int], nn.Module]  # of a seed


def open_model(model: ModelConfig, seed: int, access: ModuleAccess) -> Opened:
    """The model of a genesis. Raises UserError if it may not run here, or is another one here."""
    built = model.built
    assert built is not None, "a genesis has it"
    if model.kind == "hf_causal_lm":
        causal_lm.check_release(built.release)
    source = None
    if model.path is not None:
        assert built.source_digest is not None, "ModelConfig requires it"
        source = find_as_agreed(model.path, built.source_digest, access)
    with maker_of(model, source, access) as make:
        opened = build_model(model, make, seed)
    found = [TensorSpec(name, tuple(value.shape)) for name, value in opened.parameters.items()]
    if (difference := _difference(found, model.tensors())) is not None:
        raise UserError(
            f"the model {model.label} is not the one of the genesis: {difference}; nothing was "
            "trained. What it imports may be of another version than where the network was made"
        )
    return opened


def source_of(model: ModelConfig, access: ModuleAccess) -> Source | None:
    """The code that builds it, where that is somebody's own. Raises UserError."""
    return None if model.path is None else find_source(model.path, access)


@contextmanager
def maker_of(
    model: ModelConfig, source: Source | None, access: ModuleAccess
) -> Iterator[MakeModule]:
    """What builds the module with the base's weights in it. Raises UserError.

    The base is read, and compared with the digests of the genesis, once.
    """
    with _base_of(model) as view:
        if model.path is None:
            yield lambda seed: causal_lm.build(model, view, seed)
            return
        assert source is not None
        build, weights = load_build(model.path, source, access), _weights_in(view)
        yield lambda seed: _with_weights(model, _called(model, build, seed), weights)


def build_model(model: ModelConfig, make: MakeModule, seed: int) -> Opened:
    """A module of this seed, on the CPU. Raises UserError if it is none that can be trained."""
    module = make(seed)
    if model.adapters is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            opened = add_adapters(model, module, model.adapters.lora)
    else:
        if model.trainable is not None:
            assert isinstance(model.trainable, tuple)
            _freeze_others(model, module, model.trainable)
        opened = Opened(model.label, module, _trained(module))
    if model.kind == "hf_causal_lm":  # of a module of one's own, how it computes is its own
        make_float32(opened.parameters.values())
        # Two of them: some models have another way for one.
        tokens = torch.zeros((1, min(2, model.context)), dtype=torch.int64)
        compute_in_float32(module, lambda: module(tokens, tokens))
    if not opened.parameters:
        raise UserError(f"the model {model.label} has no trainable parameter")
    for name, parameter in opened.parameters.items():
        if nn.parameter.is_lazy(parameter) or parameter.device.type != "cpu":
            raise UserError(
                f"the model {model.label}: {name} has no numbers yet, or not on the CPU: build it "
                "whole, with sizes that are given, and on the CPU"
            )
        if parameter.dtype != torch.float32:
            raise UserError(f"the model {model.label}: {name} is {parameter.dtype}, not float32")
    return opened


@contextmanager
def _base_of(model: ModelConfig) -> Iterator[Path | None]:
    if model.base is None:
        yield None
        return
    with base_files.opened(model.base) as view:
        yield view


def _called(model: ModelConfig, build: Build, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = build(**(model.arguments or {}))
        except (Exception, SystemExit) as fault:
            raise UserError(
                f"the model {model.path} cannot be built: {type(fault).__name__}: {fault}"
            ) from None
    if not isinstance(module, nn.Module):
        raise UserError(
            f"the model {model.path} returned a {type(module).__name__}, not a torch.nn.Module"
        )
    return module


def _weights_in(view: Path | None) -> Mapping[str, Tensor] | None:
    if view is None:
        return None
    weights: dict[str, Tensor] = {}
    for file in base_files.weights_files(view):
        try:
            weights |= load_file(file)
        except SafetensorError as fault:
            raise UserError(f"{file.resolve()} is no safetensors file: {fault}") from None
    return weights


def _with_weights(
    model: ModelConfig, module: nn.Module, weights: Mapping[str, Tensor] | None
) -> nn.Module:
    """Every parameter is in the base: else it would come out otherwise on each host."""
    if weights is None:
        return module
    try:
        left = module.load_state_dict(dict(weights), strict=False)
    except RuntimeError as fault:  # as which torch tells of another shape
        raise UserError(f"the model {model.label} is not that of its base: {fault}") from None
    known = set(dict(module.named_parameters()))  # of what is shared, the first name
    missing = sorted(known & set(left.missing_keys)) or sorted(left.unexpected_keys)
    if missing:
        raise UserError(
            f"the model {model.label} is not that of its base: only one of them has {missing[0]}"
        )
    return module


def _freeze_others(model: ModelConfig, module: nn.Module, patterns: Sequence[str]) -> None:
    names = _trained(module)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            some = ", ".join(list(names)[:NAMES_SAID])
            raise UserError(
                f"the model {model.label} has no tensor like {pattern} (model.trainable); it has "
                f"{len(names)}: {some}" + (", ..." if len(names) > NAMES_SAID else "")
            )
    for name, parameter in names.items():
        parameter.requires_grad_(any(fnmatchcase(name, pattern) for pattern in patterns))


def _trained(module: nn.Module) -> Mapping[str, nn.Parameter]:
    """By name, in the order in which they lie in the vector; one that is shared comes once."""
    holder = module.model if isinstance(module, causal_lm.CausalLm) else module
    return {name: p for name, p in holder.named_parameters() if p.requires_grad}


def _difference(found: Sequence[TensorSpec], agreed: Sequence[TensorSpec]) -> str | None:
    for ours, theirs in zip(found, agreed, strict=False):
        if ours != theirs:
            return (
                f"it builds {ours.name} of shape {list(ours.shape)}, where the genesis has "
                f"{theirs.name} of shape {list(theirs.shape)}"
            )
    if len(found) != len(agreed):
        return f"it builds {len(found)} tensors, and the genesis has {len(agreed)}"
    return None
