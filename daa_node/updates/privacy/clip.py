"""L2 clipping of one node's pseudo-gradient: its share in a round is bounded before it is sealed.

Source: McMahan et al. 2018 (clipped federated averaging). Floats: one node alone sees this.
"""

import numpy as np

from daa_node.tensors import Float32Array


def squared_norm(values_C: Float32Array) -> float:
    """Sum of squares in float64; not finite if any value is not."""
    # np.dot would wake BLAS's threads for it, and they spin: 20 times the CPU on two busy cores
    return float(np.square(values_C, dtype=np.float64).sum())


def clip_factor(norm: float, clip_norm: float | None) -> float:
    """What to multiply by so that the norm is at most `clip_norm`; 1.0 if it already is."""
    return 1.0 if clip_norm is None or norm <= clip_norm else clip_norm / norm
