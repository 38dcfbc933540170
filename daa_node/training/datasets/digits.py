"""Handwritten digits, 1,797 pictures of 8 x 8 pixels in ten classes: small work for unit tests.

The UCI data set of Alpaydin and Kaynak (1998) as scikit-learn ships it; see SOURCE.md.
"""

import gzip
from pathlib import Path

import numpy as np

from daa_node.errors import UserError
from daa_node.tensors import Int64Array
from daa_node.training.datasets.examples import Batch, split

PACKED = Path(__file__).with_name("digits.csv.gz")
PICTURES, FEATURES, PIXEL_MAX = 1797, 64, 16


class Digits:
    """Examples of (64 features in -0.5..0.5, class 0..9)."""

    def __init__(self, heldout_every: int, heldout_block: int) -> None:
        table = _read_table()
        self._features = (table[:, :FEATURES] / np.float32(PIXEL_MAX) - np.float32(0.5)).astype(
            np.float32
        )
        self._classes = table[:, FEATURES].astype(np.int64)
        self._split = split(PICTURES, heldout_block, heldout_every, 1, "the digits data set")

    @property
    def train_count(self) -> int:
        return self._split.train_count

    @property
    def heldout_count(self) -> int:
        return self._split.heldout_count

    @property
    def tokens_each(self) -> int:
        return 1

    def train(self, indices_B: Int64Array) -> Batch:
        return self._at(self._split.train_offsets(indices_B))

    def heldout(self, indices_B: Int64Array) -> Batch:
        return self._at(self._split.heldout_offsets(indices_B))

    def _at(self, rows_B: Int64Array) -> Batch:
        return Batch(self._features[rows_B], self._classes[rows_B])


def _read_table() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    try:
        with gzip.open(PACKED, "rt") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    except (OSError, EOFError, ValueError) as fault:
        raise UserError(f"{PACKED}:1: {fault}; reinstall the package") from None
    if table.shape != (PICTURES, FEATURES + 1):
        raise UserError(f"{PACKED}:1: has the shape {table.shape}; reinstall the package")
    return table
