"""A small convolutional network without pooling (Springenberg et al. 2014), for pictures.

Each layer is a convolution of 3 x 3 places with a stride of 2, a bias and a ReLU; a linear head
reads all that is left. Strides have no ties, where the largest of equal numbers would be a matter
of the device.

Legend: B pictures, F features of a picture, C channels, S side, K = 9 C, O channels of the result.
"""

import torch.nn.functional as F
from torch import Tensor

from daa_node.training.model_config import ModelConfig
from daa_node.training.models.parameters import LossFunction, Views


def cnn_loss(config: ModelConfig) -> LossFunction:
    """Mean loss in nats a picture; inputs (B, F) fp32, channel by channel, targets (B,) int64."""
    channels, side = config.picture_channels, config.picture_side

    def loss(views: Views, inputs_BF: Tensor, targets_B: Tensor) -> Tensor:
        hidden_BCSS = inputs_BF.view(-1, channels, side, side)
        for layer in range(config.depth):
            weight_KO, bias_O = views[f"layers.{layer}.weight"], views[f"layers.{layer}.bias"]
            kernel_OC33 = weight_KO.view(3, 3, hidden_BCSS.shape[1], -1).permute(3, 2, 0, 1)
            sums = F.conv2d(hidden_BCSS, kernel_OC33, bias_O, stride=2, padding=1)
            hidden_BCSS = F.relu(sums)
        hidden_BF = hidden_BCSS.permute(0, 2, 3, 1).flatten(1)
        return F.cross_entropy(hidden_BF @ views["head.weight"] + views["head.bias"], targets_B)

    return loss
