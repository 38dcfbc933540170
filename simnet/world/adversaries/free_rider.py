"""A free rider: wants the reward of a contributor without the work.

    nothing      an update of zeros, at no cost
    whisper      noise of the size of an honest update, which looks like work
    copied       another node's blob under its own name

Met by weights that follow from planned tokens and never from claims, by the trimmed mean (zeros lie
inside of what honest nodes say), by roots that bind author and base (a copy counts as one of
f_agg), and, for all three, only by recomputing some of the steps: batches depend on the author.
"""

from dataclasses import replace

import numpy as np

from daa_consensus.bft.messages import OfferBody
from daa_dag.ids import NodeId
from daa_node.tensors import Float32Array


def nothing(parameter_count: int) -> Float32Array:
    return np.zeros(parameter_count, np.float32)


def whisper(like_D: Float32Array, chance: np.random.Generator) -> Float32Array:
    """Noise with the root mean square of a vector that it has seen."""
    deviation = float(np.sqrt(np.mean(np.square(like_D, dtype=np.float64))))
    return chance.normal(0.0, deviation, like_D.size).astype(np.float32)


def copied(offer: OfferBody, author: NodeId) -> OfferBody:
    """Another node's contribution, as the copier's own: its blob can be fetched, so nobody asks."""
    return replace(offer, author=author)
