"""What a model trains on, seen as numbered examples: the one face of every data set.

Legend: B examples of a batch, T tokens of a window, F features.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from daa_node.errors import UserError
from daa_node.tensors import Int64Array

AnyArray = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs and what should follow from them: (B, T) and (B, T) tokens, or (B, F) and (B,)."""

    inputs: AnyArray
    targets: Int64Array


class Examples(Protocol):
    """Numbered training and held-out examples; reading one twice gives the same."""

    @property
    def train_count(self) -> int: ...

    @property
    def heldout_count(self) -> int: ...

    @property
    def tokens_each(self) -> int:
        """How many predictions one example asks for: tokens of a window, 1 for a picture."""

    def train(self, indices_B: Int64Array) -> Batch: ...

    def heldout(self, indices_B: Int64Array) -> Batch: ...


@dataclass(frozen=True, slots=True)
class Split:
    """Every `every`-th block of `block` items is held out; the rest is for training.

    Starts are numbered over all runs of neighbouring blocks of one side, so that a window of
    `span` items never crosses from one side to the other.
    """

    train_starts: Int64Array  # first item of each run
    train_ends: Int64Array  # how many windows start in the runs up to and with this one
    heldout_starts: Int64Array
    heldout_ends: Int64Array

    @property
    def train_count(self) -> int:
        return int(self.train_ends[-1])

    @property
    def heldout_count(self) -> int:
        return int(self.heldout_ends[-1])

    def train_offsets(self, indices_B: Int64Array) -> Int64Array:
        return _offsets(indices_B, self.train_starts, self.train_ends)

    def heldout_offsets(self, indices_B: Int64Array) -> Int64Array:
        return _offsets(indices_B, self.heldout_starts, self.heldout_ends)


def split(item_count: int, block: int, every: int, span: int, what: str) -> Split:
    """Divides `item_count` items; `what` names the data in the error.

    The last block, whole or not, belongs to the side that its number says. Raises UserError when
    either side has no room for a single window of `span` items.
    """
    block_count = -(-item_count // block)
    heldout = np.arange(block_count) % every == every - 1
    changes = np.flatnonzero(np.diff(heldout)) + 1
    first_blocks = np.concatenate([[0], changes]).astype(np.int64)
    starts = first_blocks * block
    stops = np.minimum(np.append(first_blocks[1:], block_count) * block, item_count)
    windows = np.maximum(stops - starts - span + 1, 0)
    sides = []
    for side in (~heldout[first_blocks], heldout[first_blocks]):
        keep = side & (windows > 0)
        if not keep.any():
            raise UserError(
                f"{what} has {item_count} items: too few. With one block of {block} in {every} "
                f"held out it takes at least {block * (every - 1) + span} for windows of {span}; "
                "use more data or lower heldout_block, heldout_every or context"
            )
        sides += [starts[keep], np.cumsum(windows[keep])]
    return Split(*sides)


def undivided(item_count: int, span: int, what: str) -> Split:
    """All items on either side, for data that serve one of them alone.

    Raises UserError when there is no room for a single window of `span` items.
    """
    windows = item_count - span + 1
    if windows < 1:
        raise UserError(f"{what} has {item_count} items: too few for a single window of {span}")
    start, end = np.zeros(1, np.int64), np.array([windows], np.int64)
    return Split(start, end, start, end)


class OwnExamples:
    """What this host alone has to train on, and what all hold out. Both undivided."""

    def __init__(self, own: Examples, heldout: Examples) -> None:
        self._own = own
        self._heldout = heldout

    @property
    def train_count(self) -> int:
        return self._own.train_count

    @property
    def heldout_count(self) -> int:
        return self._heldout.heldout_count

    @property
    def tokens_each(self) -> int:
        return self._own.tokens_each

    def train(self, indices_B: Int64Array) -> Batch:
        return self._own.train(indices_B)

    def heldout(self, indices_B: Int64Array) -> Batch:
        return self._heldout.heldout(indices_B)


def _offsets(indices_B: Int64Array, starts: Int64Array, ends: Int64Array) -> Int64Array:
    runs_B = np.searchsorted(ends, indices_B, side="right")
    before_B = np.where(runs_B > 0, ends[runs_B - 1], 0)
    offsets: Int64Array = starts[runs_B] + indices_B - before_B
    return offsets
