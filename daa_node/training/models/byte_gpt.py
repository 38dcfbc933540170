"""A small decoder-only transformer over bytes (Radford et al. 2019), as pure functions.

Pre-norm with RMSNorm without gain (Zhang and Sennrich 2019), squared ReLU in the MLP (So et al.
2021), learned positions, and the embedding used again as the output matrix. No biases.

Legend: B windows, T tokens of a window, W width, V vocabulary, H heads.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from daa_node.training.model_config import ModelConfig
from daa_node.training.models.parameters import LossFunction, Views


def gpt_loss(config: ModelConfig) -> LossFunction:
    """Mean next-token loss in nats; inputs and targets (B, T) int64, T at most the context."""
    logits = gpt_logits(config)

    def loss(views: Views, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        return F.cross_entropy(logits(views, inputs_BT).flatten(0, 1), targets_BT.flatten())

    return loss


def gpt_logits(config: ModelConfig) -> Callable[[Views, Tensor], Tensor]:
    """(views, tokens of (B, T)) -> (B, T, V)."""
    width, heads, depth = config.width, config.heads, config.depth

    def attention(views: Views, block: str, normed_BTW: Tensor) -> Tensor:
        batch, tokens, _ = normed_BTW.shape
        qkv = (normed_BTW @ views[block + "attention.qkv"]).view(batch, tokens, 3, heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, T, W / H)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined_BTW = mixed.transpose(1, 2).reshape(batch, tokens, width)
        return joined_BTW @ views[block + "attention.out"]

    def logits(views: Views, inputs_BT: Tensor) -> Tensor:
        stream_BTW = F.embedding(inputs_BT, views["embedding"])
        stream_BTW = stream_BTW + views["position"][: inputs_BT.shape[1]]
        for layer in range(depth):
            block = f"blocks.{layer}."
            stream_BTW = stream_BTW + attention(views, block, F.rms_norm(stream_BTW, (width,)))
            hidden = F.relu(F.rms_norm(stream_BTW, (width,)) @ views[block + "mlp.up"]).square()
            stream_BTW = stream_BTW + hidden @ views[block + "mlp.down"]
        return F.rms_norm(stream_BTW, (width,)) @ views["embedding"].T

    return logits
