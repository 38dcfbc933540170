"""An optimiser's memory in a mapped file, for moments that are larger than a host's memory.

The kernel writes pages of it out and reads them again as it has to, so none of it is anonymous. The
file is what a restart goes on from, too: nothing is copied to save it, and what names its content
is in `inner_state`. Layout: first moment, second moment, residual, each of D little-endian fp32.
"""

from pathlib import Path
from typing import Literal

import numpy as np

from daa_node.errors import UserError
from daa_node.system_calls import hold_room
from daa_node.tensors import Float32Array, reserve

FP32 = np.dtype("<f4")
VECTORS = 3
NAMES = ("memory-0", "memory-1")  # of the two in a worker's directory


class MemoryFile:
    """One memory. Its vectors, of shape (D,), are the file: what is written there stays."""

    def __init__(self, path: Path, parameter_count: int, owes: bool) -> None:
        """`owes` is whether the residual is ever written; else it takes no room.

        Raises UserError where the disk has no room for it.
        """
        self.path = path
        self.owes = owes
        vector_bytes = parameter_count * FP32.itemsize
        self._size_bytes = VECTORS * vector_bytes
        self._room_bytes = self._size_bytes if owes else self._size_bytes - vector_bytes
        try:
            if not path.is_file() or path.stat().st_size != self._size_bytes:
                reserve(path, self._size_bytes, self._room_bytes)
            self.hold()
        except OSError as fault:
            raise UserError(
                f"{path}: {fault.strerror}. trainer.optimiser_in is files, which takes "
                f"{2 * self._room_bytes:,} bytes there: make room, or set it to memory"
            ) from None
        self.first_D, self.second_D, self.residual_D = map_memory(path, parameter_count, "r+")

    def hold(self) -> None:
        """Room on the disk for all that will be written, before any of it is. Raises OSError.

        A copy with holes, or one that was cleared on a full disk, has the size and not the room.
        """
        with self.path.open("r+b") as file:
            hold_room(file.fileno(), self._room_bytes)

    def clear(self) -> None:
        """Zeros, in the maps of everybody, without writing any. Raises OSError, after that too."""
        with self.path.open("r+b") as file:
            file.truncate(0)
            file.truncate(self._size_bytes)
        self.hold()


def map_memory(
    path: Path, parameter_count: int, mode: Literal["c", "r+"] = "c"
) -> tuple[Float32Array, Float32Array, Float32Array]:
    """The three vectors. Raises OSError, and ValueError for a file that is shorter."""
    shape = (VECTORS, parameter_count)
    first_D, second_D, residual_D = np.memmap(path, FP32, mode, shape=shape).view(np.ndarray)
    return first_D, second_D, residual_D
