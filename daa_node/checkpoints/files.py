"""A chain's files, read by who trusts nobody: commands, never the daemon.

Every entry is looked at once and nothing is followed: a symlink, a socket or a stray directory is
named as a problem. Contents are read with a limit and judged by the caller.
"""

import errno
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from daa_dag.errors import DagError
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    CHUNKS,
    DELTAS,
    KINDS,
    MANIFESTS,
    NOTE,
    NOTE_BYTES_MAX,
    PUBLISHING,
    VERTICES,
    Group,
    decode_note,
    unsettled,
)

# A running daemon may add files while we list; a listing settles between two rounds.
LISTINGS_MAX = 50

_DIGEST_NAME = re.compile(r"[0-9a-f]{64}")
_CERTIFICATE_NAME = re.compile(r"[0-9a-f]{64}\.(exec|final)")
_NAMES = {
    VERTICES: _DIGEST_NAME,
    BLOCKS: _DIGEST_NAME,
    CERTIFICATES: _CERTIFICATE_NAME,
    DELTAS: _DIGEST_NAME,
    MANIFESTS: _DIGEST_NAME,
    CHUNKS: _DIGEST_NAME,
}


class Unreadable(Exception):
    """A file that cannot be had, or is longer than anything of its kind; says so in words."""


class _Gone(Unreadable):
    """No such file."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`where` is a file's path relative to the chain directory."""

    what: str
    where: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What the directory held at one moment."""

    sizes: dict[str, int]  # bytes by `kind/name`, of files whose names fit
    strange: tuple[Problem, ...]
    arriving: frozenset[str]  # names of groups that are not whole: there or not, they do not count
    leaving: frozenset[str]  # names of groups on their way out: treated as gone

    def names(self, kind: str) -> list[str]:
        """`kind/name` of every file of this kind, sorted."""
        return sorted(name for name in self.sizes if name.startswith(kind + "/"))


class ChainReader(Protocol):
    """Where a chain's files are, on a disk or in memory."""

    def listing(self) -> Listing: ...

    def read(self, name: str, size_bytes_max: int) -> bytes:
        """The file's bytes. Raises Unreadable, in words for the report."""
        ...


class ChainFiles:
    """Reads `directory`, a chain/; the publishing note lies in work/ beside it."""

    def __init__(self, directory: Path, on_bytes: Callable[[int], None] = lambda count: None):
        self.directory = directory
        self._on_bytes = on_bytes

    def listing(self) -> Listing:
        """A consistent listing, even while a daemon is writing."""
        before = self._listed()
        for _ in range(LISTINGS_MAX):
            again = self._listed()
            if again == before:
                break
            before = again
        return before

    def read(self, name: str, size_bytes_max: int) -> bytes:
        payload = _read_plain(self.directory / name, size_bytes_max)
        self._on_bytes(len(payload))
        return payload

    def _listed(self) -> Listing:
        sizes: dict[str, int] = {}
        strange: list[Problem] = []
        groups = self._note(strange)
        for entry in _entries(self.directory, "", strange):
            if entry.name not in KINDS or not entry.is_dir(follow_symlinks=False):
                nature = _nature(entry.stat(follow_symlinks=False))
                strange.append(Problem(f"{nature} does not belong here", _shown(entry.name)))
                continue
            for item in _entries(Path(entry.path), entry.name, strange):
                name = f"{entry.name}/{item.name}"
                try:
                    found = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # a running daemon just deleted it
                if not stat.S_ISREG(found.st_mode):
                    strange.append(Problem(f"{_nature(found)} does not belong here", _shown(name)))
                else:
                    sizes[name] = found.st_size
        return listing_of(sizes, groups, strange)

    def _note(self, strange: list[Problem]) -> list[Group]:
        path = self.directory.parent / "work" / PUBLISHING / NOTE
        if not os.path.lexists(path):
            return []
        try:
            return groups_of(_read_plain(path, NOTE_BYTES_MAX), strange)
        except _Gone:
            return []  # a running daemon just deleted it
        except Unreadable as fault:
            strange.append(_damaged_note(fault))
            return []


def listing_of(sizes: dict[str, int], groups: list[Group], strange: list[Problem]) -> Listing:
    """Of plain files by `kind/name`, and the groups of a publishing note."""
    fitting = {}
    for name, size_bytes in sizes.items():
        kind, _, rest = name.partition("/")
        if kind in _NAMES and _NAMES[kind].fullmatch(rest):
            fitting[name] = size_bytes
        else:
            strange.append(Problem("no file of a chain has such a name", _shown(name)))
    arriving, leaving = unsettled(groups, fitting)
    for name in leaving:
        fitting.pop(name, None)
    return Listing(fitting, tuple(strange), frozenset(arriving), frozenset(leaving))


def _shown(name: str) -> str:
    """Whoever gave us the directory chose it, and a terminal obeys some characters."""
    return name if name.isprintable() else ascii(name)


def groups_of(note: bytes, strange: list[Problem]) -> list[Group]:
    """What a publishing note names; none if it is damaged, which is a problem."""
    try:
        return decode_note(note)
    except DagError as fault:
        strange.append(_damaged_note(fault))
        return []


def _damaged_note(fault: Exception) -> Problem:
    where = f"../work/{PUBLISHING}/{NOTE}"
    return Problem(f"the note of an unfinished write is damaged: {fault}", where)


def _read_plain(path: Path, size_bytes_max: int) -> bytes:
    """The bytes of a plain file; nothing is followed, and nothing is waited for.

    Raises Unreadable, in words for the report.
    """
    try:
        # Not to wait for whoever writes into a pipe.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise Unreadable(f"is {_nature(found)}, not a plain file")
            payload = file.read(size_bytes_max + 1)
    except FileNotFoundError:
        raise _Gone("is missing") from None
    except OSError as fault:
        if fault.errno == errno.ELOOP:
            raise Unreadable("is a symbolic link, not a plain file") from None
        raise Unreadable(f"cannot be read: {fault.strerror or fault}") from None
    if len(payload) > size_bytes_max:
        raise Unreadable(f"is longer than {size_bytes_max} bytes, the most it may have")
    return payload


def _entries(directory: Path, name: str, strange: list[Problem]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as fault:
        strange.append(Problem(f"cannot be listed: {fault.strerror or fault}", name or "."))
        return []


def _nature(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return "a symbolic link"
    if stat.S_ISDIR(found.st_mode):
        return "a directory"
    return "a file" if stat.S_ISREG(found.st_mode) else "a special file"
