"""A model that somebody brings, any `torch.nn.Module`, behind the same face as the models here.

Its contract: `build(**arguments)` returns a module whose `forward(inputs, targets)` returns the
mean loss in nats a prediction, a scalar. Its trainable parameters are fp32, and they are all that a
step changes: no buffer, and nothing by chance. See docs/models.md.

The parameters share the flat vector's memory: the module keeps its own objects, which some modules
hold twice, and only where their numbers lie is changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from daa_node.errors import TrainerFailed, UserError
from daa_node.tensors import TensorSpec
from daa_node.training.config import ModelConfig
from daa_node.training.models.parameters import Views
from daa_node.training.module_source import Build, ModuleAccess, find_as_agreed, load_build


def open_module(model: ModelConfig, seed: int, access: ModuleAccess) -> nn.Module:
    """The module of a genesis. Raises UserError if it may not run here, or is another one here."""
    assert model.path is not None
    assert model.built is not None, "a genesis has it"
    source = find_as_agreed(model.path, model.built.source_digest, access)
    module = build_module(model, load_build(model.path, source, access), seed)
    found = [TensorSpec(name, tuple(value.shape)) for name, value in trainable(module).items()]
    if (difference := _difference(found, model.tensors())) is not None:
        raise UserError(
            f"the model {model.path} is not the one of the genesis: {difference}; nothing was "
            "trained. What it imports may be of another version than where the network was made"
        )
    return module


def build_module(model: ModelConfig, build: Build, seed: int) -> nn.Module:
    """A module of this seed, on the CPU. Raises UserError if it is none that can be trained."""
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
    wanted = trainable(module)
    if not wanted:
        raise UserError(f"the model {model.path} has no trainable parameter")
    for name, parameter in wanted.items():
        if nn.parameter.is_lazy(parameter) or parameter.device.type != "cpu":
            raise UserError(
                f"the model {model.path}: {name} has no numbers yet, or not on the CPU: build it "
                "whole, with sizes that are given, and on the CPU"
            )
        if parameter.dtype != torch.float32:
            raise UserError(f"the model {model.path}: {name} is {parameter.dtype}, not float32")
    return module


def trainable(module: nn.Module) -> Mapping[str, nn.Parameter]:
    """By name, in the order in which they lie in the vector; one that is shared comes once."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


class ModuleLoss:
    """A LossFunction: the mean loss in nats of the module with the given weights."""

    def __init__(self, path: str | None, module: nn.Module) -> None:
        self.module = module
        self._path = path
        self._bound = _Bound(path, module)

    def __call__(self, views: Views, inputs: Tensor, targets: Tensor) -> Tensor:
        """Raises TrainerFailed for whatever the module raises, or returns that is no loss."""
        loss = self._bound.call("forward", views, inputs, targets)
        if not isinstance(loss, Tensor) or loss.ndim != 0:
            raise TrainerFailed(f"{self._path}: forward returned {_said(loss)}, not a scalar loss")
        return loss


class ModuleLogits:
    """What the module makes of each next token, where it is a language model."""

    def __init__(self, path: str | None, module: nn.Module) -> None:
        """Raises UserError for a module that has no logits."""
        if not callable(getattr(module, "logits", None)):
            raise UserError(f"the model {path} has no method logits(inputs), and so writes no text")
        self._path = path
        self._bound = _Bound(path, module)

    def __call__(self, views: Views, tokens_BT: Tensor) -> Tensor:
        """(B, T, V). Raises TrainerFailed."""
        logits = self._bound.call("logits", views, tokens_BT)
        if not isinstance(logits, Tensor) or logits.shape[:-1] != tokens_BT.shape:
            raise TrainerFailed(f"{self._path}: logits returned {_said(logits)}")
        return logits


class _Bound:
    """The module, whose parameters lie in a flat vector from the first call on."""

    def __init__(self, path: str | None, module: nn.Module) -> None:
        self._path = path
        self._module = module
        self._parameters = trainable(module)
        self._views: Views | None = None

    def call(self, method: str, views: Views, *inputs: Tensor) -> Any:
        """Raises TrainerFailed for whatever the module raises."""
        self._see(views)
        is_training = not torch.is_inference_mode_enabled()
        if self._module.training != is_training:
            self._module.train(is_training)
        # by a call of the module itself its hooks run, too
        called = self._module if method == "forward" else getattr(self._module, method)
        try:
            return called(*inputs)
        except Exception as fault:
            raise TrainerFailed(f"{self._path}: {type(fault).__name__}: {fault}") from fault

    def _see(self, views: Views) -> None:
        if self._views is not views:
            with torch.inference_mode(False):  # what is made there could never be trained
                self._module.to(next(iter(views.values())).device)
                for name, view in views.items():
                    self._parameters[name].data = view.detach()
                    self._parameters[name].grad = view.grad
            self._views = views
        for name, view in views.items():
            parameter = self._parameters[name]
            if parameter.data_ptr() != view.data_ptr() or parameter.grad is not view.grad:
                raise TrainerFailed(f"{self._path}: the module has put another tensor for {name}")


def _said(value: object) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:80]


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
