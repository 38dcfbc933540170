"""The first weights of a network, without torch: what the genesis vertex stands for."""

from collections.abc import Iterator

from daa_node.tensors import Int32Array
from daa_node.training.model_config import ModelConfig
from daa_node.updates.initial_weights import initial_pieces, initial_weights

SEED_BYTES = 8


def genesis_weights(model: ModelConfig, seed: int, out_D: Int32Array | None = None) -> Int32Array:
    """Grid weights, shape (D,), in `out_D` if given; their outer momentum is all zeros."""
    return initial_weights(seed.to_bytes(SEED_BYTES, "big"), model.inits(), out_D)


def genesis_pieces(model: ModelConfig, seed: int) -> Iterator[Int32Array]:
    """The same weights, chunk by chunk as a state is cut, so that they need not be in memory."""
    return initial_pieces(seed.to_bytes(SEED_BYTES, "big"), model.inits())
