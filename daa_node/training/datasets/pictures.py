"""Pictures in the formats of MNIST (idx) and CIFAR (binary), mapped not read.

    idx     big-endian: 0x00000803, count, rows, columns, then a byte a pixel, row by row
            and in another file: 0x00000801, count, then a byte a label  (LeCun, Cortes and Burges)
    CIFAR   records without a header: labels of a byte each (one; of CIFAR-100 two, the finer one
            last), then 32 x 32 bytes of red, of green and of blue  (Krizhevsky 2009)

Files of CIFAR are joined by writing one behind the other. Legend: N pictures, F pixels of a
picture, channel by channel.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daa_node.errors import UserError
from daa_node.tensors import Int64Array
from daa_node.training.datasets.examples import Batch, Split
from daa_node.training.datasets.files import Content

UInt8Pictures = NDArray[np.uint8]

PICTURES_HEAD = struct.Struct(">IIII")
LABELS_HEAD = struct.Struct(">II")
PICTURES_MAGIC, LABELS_MAGIC = 0x803, 0x801  # unsigned bytes in three dimensions, in one
CIFAR_SIDE, CIFAR_PIXELS = 32, 3 * 32 * 32
PIXEL_MAX = np.float32(255)
SCAN_LABELS = 1 << 20


@dataclass(frozen=True, slots=True)
class Labelled:
    """Pixels (N, F) and labels (N,), both mapped."""

    pixels_NF: UInt8Pictures
    labels_N: UInt8Pictures

    def check_classes(self, classes: int, where: Path) -> None:
        """Raises UserError if a label is not below `classes`."""
        for start in range(0, len(self.labels_N), SCAN_LABELS):
            piece = self.labels_N[start : start + SCAN_LABELS]
            if int(piece.max()) >= classes:
                at = start + int(np.argmax(piece >= classes))
                raise UserError(
                    f"{where}:1: the label of picture {at} is {int(self.labels_N[at])}, the model "
                    f"knows only {classes} classes; raise model.classes or use another file"
                )


def map_idx(pictures: Content, labels: Content, side: int) -> Labelled:
    """Square pictures of so many rows, and their labels. Raises UserError."""
    found, count, rows, columns = _idx_head(pictures, PICTURES_HEAD, PICTURES_MAGIC, "pictures")
    if (rows, columns) != (side, side):
        raise UserError(
            f"{pictures.source}:1: its pictures have {rows} x {columns} pixels, and the model is "
            f"for {side} x {side}: set model.picture_side, or use another file"
        )
    pixels_NF = _mapped(found, pictures, PICTURES_HEAD.size, (count, rows * columns))
    found, label_count = _idx_head(labels, LABELS_HEAD, LABELS_MAGIC, "labels")
    if label_count != count:
        raise UserError(
            f"{labels.source}:1: {label_count} labels, and {pictures.source} has {count} pictures: "
            "they are not of each other"
        )
    return Labelled(pixels_NF, _mapped(found, labels, LABELS_HEAD.size, (count,)))


def map_cifar(records: Content, label_bytes: int) -> Labelled:
    """Pictures of three colours. Raises UserError."""
    size, record = records.path.stat().st_size, label_bytes + CIFAR_PIXELS
    if size == 0 or size % record:
        raise UserError(
            f"{records.source}:1: {size} bytes are no whole number of CIFAR records of {record} "
            "(1 + 3072 of CIFAR-10, 2 + 3072 of CIFAR-100, without a header); it was cut, or is of "
            "the other kind"
        )
    table = _mapped(size, records, 0, (size // record, record))
    return Labelled(table[:, label_bytes:], table[:, label_bytes - 1])


class Pictures:
    """Examples of (F features in -0.5..0.5, label)."""

    def __init__(self, found: Labelled, split: Split) -> None:
        self._found = found
        self._split = split

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
        # a division and a difference, each rounded once: the same bits on every machine
        features_BF = self._found.pixels_NF[rows_B].astype(np.float32) / PIXEL_MAX
        labels_B = self._found.labels_N[rows_B].astype(np.int64)
        return Batch(features_BF - np.float32(0.5), labels_B)


def _idx_head(content: Content, head: struct.Struct, magic: int, what: str) -> tuple[int, ...]:
    """(size of the file in bytes, each number of the header but the first)."""
    with content.path.open("rb") as file:
        read = file.read(head.size)
    size = content.path.stat().st_size
    if len(read) < head.size or head.unpack(read)[0] != magic:
        raise UserError(
            f"{content.source}:1: no {what} in idx (it starts with {read[:4].hex(' ')}, not "
            f"{magic:08x}); see docs/data.md for what fits data of kind idx"
        )
    return size, *head.unpack(read)[1:]


def _mapped(size: int, content: Content, head: int, shape: tuple[int, ...]) -> UInt8Pictures:
    promised = head + int(np.prod(shape, dtype=object))
    if size != promised or promised == head:
        raise UserError(
            f"{content.source}:1: its header promises {promised} bytes, it has {size}; it was cut "
            "or is still being written"
        )
    return np.memmap(content.path, np.uint8, "r", head, shape)
