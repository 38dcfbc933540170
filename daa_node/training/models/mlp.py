"""A plain perceptron with ReLU layers that tells ten digits apart: small work for unit tests.

Legend: B pictures, F features of a picture.
"""

import torch.nn.functional as F
from torch import Tensor

from daa_node.training.model_config import ModelConfig
from daa_node.training.models.parameters import LossFunction, Views


def mlp_loss(config: ModelConfig) -> LossFunction:
    """Mean loss in nats a picture; inputs (B, F) fp32, targets (B,) int64 classes."""

    def loss(views: Views, inputs_BF: Tensor, targets_B: Tensor) -> Tensor:
        hidden = inputs_BF
        for layer in range(config.depth):
            weight, bias = views[f"layers.{layer}.weight"], views[f"layers.{layer}.bias"]
            hidden = F.relu(hidden @ weight + bias)
        return F.cross_entropy(hidden @ views["head.weight"] + views["head.bias"], targets_B)

    return loss
