"""What changed between two vertices of a chain: each tensor, and who did it.

Weights are integers on the grid, so the sums here are exact on every machine: squares are added as
whole numbers, and only a ratio is rounded, down, to parts of a billion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from daa_dag.checkpoint import Vertex
from daa_dag.ids import NodeId
from daa_node.tensors import Int32Array, TensorSpec, slots_of

BILLION = 10**9
PIECE = 1 << 20  # values at a time: 8 MiB as int64
_HALF_BITS = 16  # a difference of two int32 has 33 bits: its square does not fit 64


@dataclass(frozen=True, slots=True)
class TensorChange:
    """Of one tensor, in units of the grid. `largest` is with its sign, and `at` where it is."""

    name: str
    parameters: int
    squared_change: int
    squared_base: int
    largest: int
    at: int

    @property
    def relative_ppb(self) -> int | None:
        """|B - A| over |A|, in parts of a billion; None where A is all zeros."""
        return relative_ppb(self.squared_change, self.squared_base)


@dataclass(frozen=True, slots=True)
class Share:
    """What one author did on the way: rounds in which it counts, and their tokens and steps."""

    author: NodeId
    rounds: int
    tokens: int
    steps: int


@dataclass(frozen=True, slots=True)
class Rule:
    """How updates were merged, and how many times on the way."""

    name: str
    f_agg: int
    rounds: int


def tensor_changes(
    tensors: Sequence[TensorSpec], base_D: Int32Array, later_D: Int32Array
) -> list[TensorChange]:
    """Both have shape (D,), as the tensors follow each other."""
    return [
        _change(slot.spec.name, base_D[slot.start : slot.stop], later_D[slot.start : slot.stop])
        for slot in slots_of(tensors)
    ]


def relative_ppb(squared_change: int, squared_base: int) -> int | None:
    """The root of the quotient, rounded down."""
    if squared_base == 0:
        return None
    return isqrt(squared_change * BILLION**2 // squared_base)


def shares(steps: Sequence[Vertex]) -> list[Share]:
    """Who contributed to these vertices, most tokens first, then by author."""
    found: dict[NodeId, Share] = {}
    for vertex in steps:
        for one in vertex.contributors:
            if not one.weight:
                continue  # another's work under its name, or none: it counts for nothing
            had = found.get(one.author, Share(one.author, 0, 0, 0))
            found[one.author] = Share(
                one.author, had.rounds + 1, had.tokens + one.tokens, had.steps + one.steps
            )
    return sorted(found.values(), key=lambda share: (-share.tokens, share.author))


def rules(steps: Sequence[Vertex]) -> list[Rule]:
    """By which rules these vertices came about, in the order in which they first did."""
    counts: dict[tuple[str, int], int] = {}
    for vertex in steps:
        key = (vertex.rule, vertex.f_agg)
        counts[key] = counts.get(key, 0) + 1
    return [Rule(name, f_agg, count) for (name, f_agg), count in counts.items()]


def _change(name: str, base: Int32Array, later: Int32Array) -> TensorChange:
    squared_change = squared_base = largest = at = 0
    for start in range(0, base.size, PIECE):
        piece = base[start : start + PIECE].astype(np.int64)
        moved = later[start : start + PIECE].astype(np.int64) - piece
        squared_change += _squared_sum(moved)
        squared_base += _squared_sum(piece)
        place = int(np.argmax(np.abs(moved)))
        if abs(int(moved[place])) > abs(largest):
            largest, at = int(moved[place]), start + place
    return TensorChange(name, base.size, squared_change, squared_base, largest, at)


def _squared_sum(values: NDArray[np.int64]) -> int:
    """Exact. Of halves: each product has 34 bits, and a piece of them fits 64."""
    high, low = values >> _HALF_BITS, values & ((1 << _HALF_BITS) - 1)
    squares = int(np.dot(high, high)) << (2 * _HALF_BITS)
    crossed = int(np.dot(high, low)) << (_HALF_BITS + 1)
    return squares + crossed + int(np.dot(low, low))
