"""Retired files that later ones are written over: their pages are in memory already.

Where every round retires files as large as those that the next one makes, that saves the kernel's
work on fresh pages (measured for 40 MB: 7 instead of 90 ms of CPU). A retired file keeps what it
held until it is written over, so whoever takes one writes all of it.
"""

import os
from collections import defaultdict
from itertools import count
from pathlib import Path

SPARE_SUFFIX = ".spare"
SPARE_BYTES_MIN = 64 * 1024  # a smaller file costs more to keep in mind than to make
SPARE_BYTES_MAX = 2**30  # and a larger one lies on the disk alone, whose room others need
SPARES_A_SIZE_MAX = 16  # a round retires two states, and an update a contributor


class SpareFiles:
    """The spares of one directory; any thread may retire and take. Both raise OSError."""

    def __init__(self, directory: Path) -> None:
        """They lie in `directory`, on the file system of whatever is retired."""
        self._directory = directory
        self._by_size: defaultdict[int, list[Path]] = defaultdict(list)  # in bytes
        self._numbers = count()

    def retire(self, path: Path) -> None:
        """The file leaves its name: kept as a spare, or deleted if there is no use for it."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return
        spares = self._by_size[found.st_size]
        linked = found.st_nlink > 1  # another name still means the content
        is_fit = SPARE_BYTES_MIN <= found.st_size <= SPARE_BYTES_MAX
        if linked or not is_fit or len(spares) >= SPARES_A_SIZE_MAX:
            path.unlink(missing_ok=True)
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        spare = self._directory / f"{found.st_size}.{next(self._numbers)}{SPARE_SUFFIX}"
        os.replace(path, spare)
        spares.append(spare)

    def take(self, size_bytes: int, path: Path) -> bool:
        """Move a spare of that size to `path`; False if there is none."""
        spares = self._by_size[size_bytes]
        while spares:
            try:
                os.replace(spares.pop(), path)
            except (IndexError, FileNotFoundError):
                continue  # another thread took it, or somebody tidied up
            return True
        return False
