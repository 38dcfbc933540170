"""A round's boundaries on their way to the daemon: a file each, in the order of their steps.

All but the last are hashed and written as training passes them. The last is hashed at once, for the
Offer names it, and written when the answer is out.
"""

from pathlib import Path

from daa_dag.chunking import Manifest
from daa_node.training.boundaries import Boundary


class BoundaryFiles:
    """Those of one training, in a directory that is its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._last: Boundary | None = None  # to be written
        self.manifests: list[Manifest] = []

    def add(self, boundary: Boundary) -> None:
        """Raises OSError."""
        self._write(boundary)
        self.manifests.append(boundary.manifest())

    def end_with(self, boundary: Boundary) -> None:
        """Its arrays stay as they are until `write_last`."""
        self.manifests.append(boundary.manifest())
        self._last = boundary

    @property
    def is_last_due(self) -> bool:
        return self._last is not None

    def write_last(self) -> None:
        """Raises OSError."""
        assert self._last is not None, "training has ended"
        self._write(self._last, len(self.manifests) - 1)
        self._last = None

    def _write(self, boundary: Boundary, index: int | None = None) -> None:
        """Into a fresh file, or over a retired one."""
        path = file_of(self._directory, len(self.manifests) if index is None else index)
        with path.open("r+b" if path.exists() else "xb", buffering=0) as file:
            for part in boundary.parts():
                while part:
                    part = part[file.write(part) :]
            file.truncate()


def file_sizes(count: int, size_bytes: int) -> dict[str, int]:
    """Names of so many boundaries' files, with what each takes."""
    return {file_of(Path(), index).name: size_bytes for index in range(count)}


def file_of(directory: Path, index: int) -> Path:
    """Where the boundary of that number lies, counted from the round's start."""
    return directory / f"boundary-{index}"
