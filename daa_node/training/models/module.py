"""A model that somebody brings, any `torch.nn.Module`, behind the same face as the models here.

Its contract: `build(**arguments)` returns a module whose `forward(inputs, targets)` returns the
mean loss in nats a prediction, a scalar. Its trainable parameters are fp32, and they are all that a
step changes: no buffer, and nothing by chance. See docs/models.md.

The parameters share the flat vector's memory: the module keeps its own objects, which some modules
hold twice, and only where their numbers lie is changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from daa_node.errors import TrainerFailed, UserError
from daa_node.training.models.parameters import Views


@dataclass(frozen=True, slots=True)
class Opened:
    """A module on the CPU, and its trainable parameters as a genesis names and orders them."""

    label: str  # what errors call it
    module: nn.Module
    parameters: Mapping[str, nn.Parameter]


class ModuleLoss:
    """A LossFunction: the mean loss in nats of the module with the given weights."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self._label = opened.label
        self._bound = _Bound(opened)

    def __call__(self, views: Views, inputs: Tensor, targets: Tensor) -> Tensor:
        """Raises TrainerFailed for whatever the module raises, or returns that is no loss."""
        loss = self._bound.call("forward", views, inputs, targets)
        if not isinstance(loss, Tensor) or loss.ndim != 0:
            raise TrainerFailed(f"{self._label}: forward returned {_said(loss)}, not a scalar loss")
        return loss


class ModuleLogits:
    """What the module makes of each next token, where it is a language model."""

    def __init__(self, opened: Opened) -> None:
        """Raises UserError for a module that has no logits."""
        if not callable(getattr(opened.module, "logits", None)):
            raise UserError(
                f"the model {opened.label} has no method logits(inputs), and so writes no text"
            )
        self._label = opened.label
        self._bound = _Bound(opened)

    def __call__(self, views: Views, tokens_BT: Tensor) -> Tensor:
        """(B, T, V). Raises TrainerFailed."""
        logits = self._bound.call("logits", views, tokens_BT)
        if not isinstance(logits, Tensor) or logits.shape[:-1] != tokens_BT.shape:
            raise TrainerFailed(f"{self._label}: logits returned {_said(logits)}")
        return logits


class _Bound:
    """The module, whose parameters lie in a flat vector from the first call on."""

    def __init__(self, opened: Opened) -> None:
        self._label = opened.label
        self._module = opened.module
        self._parameters = opened.parameters
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
            raise TrainerFailed(f"{self._label}: {type(fault).__name__}: {fault}") from fault

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
                raise TrainerFailed(f"{self._label}: the module has put another tensor for {name}")


def _said(value: object) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:80]
