"""How many bytes the files below a directory have: walked through once, and kept from then on.

Whoever changes a file there says so, by its path: its size before and after is asked of the file
system, which costs some microseconds. What changes during the walk may be counted twice or not at
all: so it is asked for before others begin to write (see BlobDirectory.sweep), and each start walks
anew.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daa_node.adapters.durable_files import storage


class DirectoryTally:
    """Of one directory; any thread may call. Raises StorageFailed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._bytes: int | None = None  # None: nobody has asked yet
        self._counting = threading.Lock()

    def total(self) -> int:
        """In bytes, as the files say; what a file system adds to each is not in it."""
        if self._bytes is None:
            with storage(f"count the files in {self._root}"):
                counted = sum(
                    _size_of(Path(folder) / name)
                    for folder, _, names in os.walk(self._root)
                    for name in names
                )
            with self._counting:
                self._bytes = counted
        return self._bytes

    @contextmanager
    def changes(self, path: Path) -> Iterator[None]:
        """Within the block this file comes, goes, or becomes another. Raises OSError."""
        if self._bytes is None:
            yield
            return
        before = _size_of(path)
        try:
            yield
        finally:
            change = _size_of(path) - before
            with self._counting:
                self._bytes += change


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
