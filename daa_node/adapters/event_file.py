"""The event log on disk: lines appended to one file, rotated by size, so it never fills a disk.

A disk that refuses costs events, not the daemon: that it does is told at once, and what could not
be written is counted and said in the file once the disk takes lines again. Of a line for which the
room ends in its middle nothing stays, nor of one that a killed process or a power cut has left so:
what is written next would go on where it breaks off.
"""

import json
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from daa_node.observability.config import LogConfig

LINE_BYTES_MAX = 1 << 16  # looked at for where the last whole line ends


class EventFile:
    """Appends lines at `path`. Writes are small and go to the page cache, so they do not block."""

    def __init__(
        self,
        path: Path,
        limits: Callable[[], LogConfig],
        on_lost: Callable[[str], None] = lambda why: None,
        mode: int = 0o666,
    ) -> None:
        """`on_lost` hears of the first line of a row that the disk refuses.

        `mode`: of a file that is new, less what the process' umask takes off.
        """
        self._path = path
        self._on_lost = on_lost
        self._mode = mode
        self._limits = limits  # asked at every line: SIGHUP may change them
        self._file: FileIO | None = None
        self._size_bytes = 0
        self._lost = 0

    def write_line(self, line: str) -> None:
        """Append `line` and a newline. Never raises."""
        payload = line.encode() + b"\n"
        try:
            file = self._open()
            if self._size_bytes + len(payload) > self._limits().file_bytes_max:
                self._rotate()
                file = self._open()
            if self._lost:
                gap = json.dumps({"name": "events_lost", "count": self._lost})
                self._append(file, gap.encode() + b"\n")
                self._lost = 0
            self._append(file, payload)
        except OSError as failure:
            self._lost += 1
            if self._lost == 1:
                self._on_lost(f"cannot write {self._path}: {failure.strerror}; events are lost")

    def _append(self, file: FileIO, payload: bytes) -> None:
        """All of it or nothing. Raises OSError."""
        left = memoryview(payload)
        try:
            while left:  # what a full disk still takes comes first, and then its reason
                left = left[file.write(left) :]
        except OSError:
            file.truncate(self._size_bytes)
            raise
        self._size_bytes += len(payload)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> FileIO:
        if self._file is None:
            # unbuffered: a killed daemon leaves its last words
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = FileIO(os.open(self._path, flags, self._mode), "a")
            self._size_bytes = _whole_bytes(self._path)
            self._file.truncate(self._size_bytes)
        return self._file

    def _rotate(self) -> None:
        self.close()
        files_max = self._limits().files_max
        number = files_max
        while self._numbered(number).exists():  # more than one where there may be fewer by now
            self._numbered(number).unlink()
            number += 1
        for number in range(files_max - 1, 0, -1):
            if self._numbered(number).exists():
                self._numbered(number).rename(self._numbered(number + 1))
        self._path.rename(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _whole_bytes(path: Path) -> int:
    """Up to the end of the last line that is whole. Raises OSError."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        start = max(0, size_bytes - LINE_BYTES_MAX)
        file.seek(start)
        end = file.read().rfind(b"\n") + 1
    return start + end if end or not start else size_bytes
