"""A round's boundaries on their way to the daemon: a file each, in the order of their steps.

All but the last are hashed and written as training passes them. The last is hashed at once, for the
Offer names it, and written when the answer is out. Nothing is hashed twice: a round begins with
what an earlier one has left, and the residual stays the same until the seal.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from daa_dag.chunking import Manifest
from daa_node.tensors import Float32Array
from daa_node.training.boundaries import RESIDUAL, Boundary, Ends, joined


class BoundaryFiles:
    """Those of one training, in a directory that is its own."""

    def __init__(self, directory: Path, ends: Ends | None = None) -> None:
        """`ends` passes from a round's files to the next one's. None: there are no rounds."""
        self._directory = directory
        self._ends: Ends = {} if ends is None else ends
        self._begun_with: int | None = None  # the memory_id of the first
        self._residual_D: Float32Array | None = None
        self._residual: Manifest | None = None
        self._last: Boundary | None = None  # to be written
        self.manifests: list[Manifest] = []

    def add(self, boundary: Boundary) -> None:
        """Raises OSError."""
        self._write(boundary)
        if not self.manifests:
            self._begun_with = boundary.memory_id
        self._hash(boundary)

    def end_with(self, boundary: Boundary) -> None:
        """Its arrays stay as they are until `write_last`."""
        parts = self._hash(boundary)
        if boundary.memory_id is not None:
            self._ends[boundary.memory_id] = parts
            # The next round begins with this one's end, or as this one did if that is not merged.
            for memory_id in self._ends.keys() - {self._begun_with, boundary.memory_id}:
                del self._ends[memory_id]
        self._last = boundary

    def is_in(self, directory: Path) -> bool:
        return self._directory == directory

    @property
    def is_last_due(self) -> bool:
        return self._last is not None

    def write_last(self) -> None:
        """Raises OSError."""
        assert self._last is not None, "training has ended"
        self._write(self._last, len(self.manifests) - 1)
        self._last = None

    def _hash(self, boundary: Boundary) -> list[Manifest]:
        """Of its parts; `manifests` gets the whole."""
        known: dict[int, Manifest] = {}
        if boundary.memory_id is not None and boundary.memory_id in self._ends:
            known = dict(enumerate(self._ends[boundary.memory_id][1:], start=1))  # but the weights
            if boundary.revealed is not None:
                del known[max(known)]  # these batches are this round's
        elif boundary.residual_D is self._residual_D and self._residual is not None:
            known = {RESIDUAL: self._residual}
        parts = boundary.part_manifests(known)
        if boundary.residual_D is not None:
            self._residual_D, self._residual = boundary.residual_D, parts[RESIDUAL]
        self.manifests.append(joined(parts))
        return parts

    def _write(self, boundary: Boundary, index: int | None = None) -> None:
        """Into a fresh file, or over a retired one."""
        path = file_of(self._directory, len(self.manifests) if index is None else index)
        with path.open("r+b" if path.exists() else "xb", buffering=0) as file:
            for part in boundary.parts():
                while part:
                    part = part[file.write(part) :]
            file.truncate()


def left_in(directory: Path, count: int, open_: Callable[[Path], Boundary]) -> list[bytes]:
    """Manifests of what a lost process has left of so many, empty where there is nothing.

    `open_` raises ValueError for what is no boundary.
    """
    manifests = []
    for index in range(count):
        manifests.append(b"")
        with suppress(FileNotFoundError, ValueError):  # it had not come so far
            manifests[-1] = open_(file_of(directory, index)).manifest().encode()
    return manifests


def file_sizes(count: int, size_bytes: int) -> dict[str, int]:
    """Names of so many boundaries' files, with what each takes."""
    return {file_of(Path(), index).name: size_bytes for index in range(count)}


def file_of(directory: Path, index: int) -> Path:
    """Where the boundary of that number lies, counted from the round's start."""
    return directory / f"boundary-{index}"
