"""The first weights of a network, without torch: what the genesis vertex stands for."""

from daa_node.tensors import Int32Array
from daa_node.training.model_config import ModelConfig
from daa_node.updates.initial_weights import initial_weights

SEED_BYTES = 8


def genesis_weights(model: ModelConfig, seed: int, out_D: Int32Array | None = None) -> Int32Array:
    """Grid weights, shape (D,), in `out_D` if given; their outer momentum is all zeros."""
    return initial_weights(seed.to_bytes(SEED_BYTES, "big"), model.inits(), out_D)
