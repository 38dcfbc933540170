"""Which examples a step sees: a pure function of the parent vertex's seed, round, author and step.

Counter-based: no generator is carried along, so that anybody recomputes any one step of anybody.
"""

from collections.abc import Iterator

import numpy as np
from blake3 import blake3

from daa_dag import canonical
from daa_dag.ids import Digest, NodeId
from daa_node.tensors import Int64Array

DRAW_BYTES = 8


def batch_indices(
    seed: Digest, round: int, author: NodeId, step: int, batch_size: int, example_count: int
) -> Int64Array:
    """Indices of one step's examples, shape (batch_size,), each in 0..example_count-1.

    Drawn with replacement. A 64-bit draw modulo the count favours no example by more than
    2^-34 for a billion of them.
    """
    assert example_count > 0, "a data set without examples is refused when it is opened"
    key = canonical.encode(["daa/v1/batch", seed, round, author, step])
    draws = np.frombuffer(blake3(key).digest(length=DRAW_BYTES * batch_size), dtype="<u8")
    return (draws % np.uint64(example_count)).astype(np.int64)


def batch_plan(
    seed: Digest, round: int, author: NodeId, batch_size: int, example_count: int
) -> Iterator[Int64Array]:
    """The batches of steps 0, 1, 2, ... of one author in one round, without end."""
    step = 0
    while True:
        yield batch_indices(seed, round, author, step, batch_size, example_count)
        step += 1
