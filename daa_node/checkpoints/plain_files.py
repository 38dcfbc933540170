"""One file, read by who trusts nobody: nothing is followed, and nothing is waited for."""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path

PIECE_BYTES = 2**20
GONE = "is missing"


class Unreadable(Exception):
    """A file that cannot be had, or is longer than anything of its kind; says so in words."""


class Gone(Unreadable):
    """No such file."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`where` is a file's path relative to the chain directory."""

    what: str
    where: str


def open_plain(path: Path) -> FileIO:
    """A plain file, to read. Raises Unreadable, in words for the report."""
    try:
        # Not to wait for whoever writes into a pipe.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Gone(GONE) from None
    except OSError as fault:
        if fault.errno == errno.ELOOP:
            raise Unreadable("is a symbolic link, not a plain file") from None
        raise unreadable(fault) from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise Unreadable(f"is {nature_of(found)}, not a plain file")
    return FileIO(handle)


def read_plain(path: Path, size_bytes_max: int) -> bytes:
    """The bytes of a plain file. Raises Unreadable, in words for the report."""
    with open_plain(path) as file:
        try:
            payload = BufferedReader(file).read(size_bytes_max + 1)
        except OSError as fault:
            raise unreadable(fault) from None
    if len(payload) > size_bytes_max:
        raise Unreadable(f"is longer than {size_bytes_max} bytes, the most it may have")
    return payload


def plain_pieces(path: Path, size_bytes_max: int) -> Iterator[bytes]:
    """The same, PIECE_BYTES at a time. Raises Unreadable, and Gone before anything else."""
    with open_plain(path) as file:
        left = size_bytes_max
        while True:
            try:
                piece = file.read(PIECE_BYTES)
            except OSError as fault:
                raise unreadable(fault) from None
            if not piece:
                return
            left -= len(piece)
            if left < 0:
                raise Unreadable(f"is longer than {size_bytes_max} bytes, the most it may have")
            yield piece


def unreadable(fault: OSError) -> Unreadable:
    """What the system says, in words."""
    return Unreadable(f"cannot be read: {fault.strerror or fault}")


def shown(name: str) -> str:
    """Whoever gave us the directory chose it, and a terminal obeys some characters."""
    return name if name.isprintable() else ascii(name)


def nature_of(found: os.stat_result) -> str:
    """What it is, in words."""
    if stat.S_ISLNK(found.st_mode):
        return "a symbolic link"
    if stat.S_ISDIR(found.st_mode):
        return "a directory"
    return "a file" if stat.S_ISREG(found.st_mode) else "a special file"
