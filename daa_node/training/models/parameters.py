"""A flat vector seen as named tensors, with gradients that gather in a second flat vector.

The tensors share the vector's memory: the optimiser steps one long vector, the model reads views.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from daa_node.tensors import TensorSpec, parameter_count_of, slots_of
from daa_node.updates.grid import Weights, float32_piece

PIECE_PARAMETERS = 1 << 22  # 16 MiB on its way to a GPU at a time

Views = Mapping[str, Tensor]
# (views, inputs, targets) -> the mean loss in nats a prediction, a scalar tensor
LossFunction = Callable[[Views, Tensor, Tensor], Tensor]


class FlatParameters:
    """Weights of shape (D,), fp32, on one device, and their gradient of the same shape."""

    def __init__(self, specs: Sequence[TensorSpec], device: torch.device) -> None:
        size = parameter_count_of(specs)
        self.values_D = torch.zeros(size, dtype=torch.float32, device=device)
        self.gradient_D = torch.zeros_like(self.values_D)
        self.views: dict[str, Tensor] = {}
        for slot in slots_of(specs):
            view = self.values_D[slot.start : slot.stop].view(slot.spec.shape)
            view.requires_grad_(True)
            # backward() adds into an existing .grad in place, that is into the flat vector
            view.grad = self.gradient_D[slot.start : slot.stop].view(slot.spec.shape)
            self.views[slot.spec.name] = view

    def load(self, values_D: Tensor) -> None:
        with torch.no_grad():
            self.values_D.copy_(values_D)

    def load_pieces(self, weights_D: Weights) -> None:
        """The same of a vector that may be on the grid: no whole copy of it is made."""
        with torch.no_grad():
            for start in range(0, weights_D.size, PIECE_PARAMETERS):
                stop = min(start + PIECE_PARAMETERS, weights_D.size)
                piece = torch.from_numpy(float32_piece(weights_D, start, stop))
                self.values_D[start:stop].copy_(piece)
