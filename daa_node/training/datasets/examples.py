"""What a model trains on, seen as numbered examples: the one face of every data set.

Legend: B examples of a batch, T tokens of a window, F features.
"""

from dataclasses import dataclass
from typing import Any, Protocol

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
class Side:
    """Windows of the runs of items that belong to one side; runs lie `period` items apart.

    The last run may have fewer windows. No window crosses from one run to the next.
    """

    first: int  # item where the first run starts
    period: int
    windows: int  # that start in a whole run
    count: int  # that start in all of them

    def offsets(self, indices_B: Int64Array) -> Int64Array:
        """The first item of each window, 0..count-1."""
        offsets: Int64Array = self.first + indices_B // self.windows * self.period
        return offsets + indices_B % self.windows


@dataclass(frozen=True, slots=True)
class Split:
    """Which windows are for training and which are held out, however many there are."""

    train: Side
    heldout: Side

    @property
    def train_count(self) -> int:
        return self.train.count

    @property
    def heldout_count(self) -> int:
        return self.heldout.count

    def train_offsets(self, indices_B: Int64Array) -> Int64Array:
        return self.train.offsets(indices_B)

    def heldout_offsets(self, indices_B: Int64Array) -> Int64Array:
        return self.heldout.offsets(indices_B)


def split(item_count: int, block: int, every: int, span: int, what: str) -> Split:
    """Divides `item_count` items: the last of every `every` blocks of `block` is held out.

    `what` names the data in the error. The last block, whole or not, belongs to the side that its
    number says. Raises UserError when either side has no room for a window of `span` items.
    """
    period, trained = every * block, (every - 1) * block
    periods, rest = divmod(item_count, period)
    sides = []
    for first, size, last in (
        (0, trained, min(rest, trained)),
        (trained, block, rest - trained),
    ):
        windows = size - span + 1
        count = periods * windows + max(0, last - span + 1)
        if windows < 1 or count < 1:
            raise UserError(
                f"{what} has {item_count} items: too few. With one block of {block} in {every} "
                f"held out it takes at least {trained + span} for windows of {span}; "
                "use more data or lower heldout_block, heldout_every or context"
            )
        sides.append(Side(first, period, windows, count))
    return Split(*sides)


def undivided(item_count: int, span: int, what: str) -> Split:
    """All items on either side, for data that serve one of them alone.

    Raises UserError when there is no room for a single window of `span` items.
    """
    windows = item_count - span + 1
    if windows < 1:
        raise UserError(f"{what} has {item_count} items: too few for a single window of {span}")
    side = Side(0, item_count, windows, windows)
    return Split(side, side)


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
