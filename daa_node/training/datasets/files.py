"""Files of the operator's own, opened only if what is in them is what the genesis names.

A file is read once in pieces for its digest, and mapped after that. Of a file that gzip has packed
the content counts: it is unpacked into the worker's cache once, so that one host may have it packed
and another one not.
"""

import errno
import fcntl
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO

from blake3 import blake3

from daa_node.errors import UserError
from daa_node.training.datasets.examples import AnyArray

READ_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
UNPACKED_BYTES_MAX = 1 << 40  # a terabyte: more than a worker's cache is meant for
NAME_CHARACTERS = 32  # of a digest, in the name of a cached file
_NAMED = re.compile(rf".+-[0-9a-f]{{{NAME_CHARACTERS}}}(\.tokens)?")
LOCK = ".lock"  # of a cache; all other hidden files there are half made


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file as the job names it; `setting` is where config.yaml says where it lies."""

    path: Path | None
    digest: str | None
    setting: str


@dataclass(frozen=True, slots=True)
class Content:
    """What was found: a plain file with the blake3 of its bytes, and the file it came from."""

    path: Path
    digest: str
    source: Path


def open_wanted(wanted: Wanted, cache_dir: Path) -> Content:
    """Raises UserError, with the digest that the file should have and where it lies."""
    with _refusing(wanted) as source:
        if is_packed(source):
            path, found = _unpacked(source, cache_dir)
        else:
            path, found = source, digest_of_content(source)
        if wanted.digest not in (None, found):
            if path != source:
                path.unlink(missing_ok=True)  # nobody wants it
            raise UserError(
                f"{source}:1: the blake3 of its content is {found}, the genesis names "
                f"{wanted.digest}; copy the file that the network was made for, or say in "
                f"config.yaml, {wanted.setting}, where it lies"
            )
    return Content(path, found, source)


def check_there(wanted: Wanted) -> None:
    """Raises UserError as `open_wanted` does, for what cannot be read; it may be the wrong one."""
    with _refusing(wanted) as source, open_regular(source) as file:
        file.read(1)


@contextmanager
def _refusing(wanted: Wanted) -> Iterator[Path]:
    """Where it lies. What is raised inside names the digest that the file should have, too."""
    try:
        if wanted.path is None:
            raise UserError(_without_place(wanted))
        yield wanted.path
    except OSError as fault:
        told = (
            f"{wanted.path}:1: cannot read the file: {fault.strerror or fault}; put it there, or "
            f"say in config.yaml, {wanted.setting}, where it lies on this host"
        )
    except UserError as refused:
        told = str(refused)
    else:
        return
    if wanted.digest is not None and wanted.digest not in told:
        told = f"{told}. Its content should have the blake3 {wanted.digest}"
    raise UserError(told) from None


def _without_place(wanted: Wanted) -> str:
    why = "a file of this host's own has no place"
    if wanted.digest is not None:
        why = f"the genesis names data by their blake3 {wanted.digest}, and no place"
    return f"{why}: say in config.yaml, {wanted.setting}, where they lie on this host"


def is_packed(path: Path) -> bool:
    """Whether gzip made it, by its name and its beginning. Raises OSError.

    By its beginning alone some file of tokens would be taken for one.
    """
    if path.suffix != ".gz":
        return False
    with open_regular(path) as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def digest_of_content(path: Path) -> str:
    """The blake3 of what is in a file, unpacked if it is packed, in hex.

    Raises OSError, and UserError for a file that only looks packed.
    """
    return _digest(_unpacking(path) if is_packed(path) else _pieces(path))


def digest_of_array(array: AnyArray) -> str:
    """The blake3 of a long array's bytes, in hex; it may be a mapped file."""
    hasher = blake3()
    for start in range(0, len(array), READ_BYTES):
        hasher.update(array[start : start + READ_BYTES].data.cast("B"))
    return hasher.hexdigest()


def kept_or_made(
    cache_dir: Path, name: str, suffix: str, what: str, make: Callable[[Path], object]
) -> tuple[Path, str]:
    """A cached file and its digest, which its name has, so that a damaged one is made again.

    `make` writes it, and is called only if it is not there; `what` it does, in an error's words.
    Raises UserError, as `make` may.
    """
    try:
        known = _kept(cache_dir, name, suffix)
        if known is None:
            with _alone_in(cache_dir):
                known = _kept(cache_dir, name, suffix)  # whom we waited for may have made it
                if known is None:
                    scratch = cache_dir / f".{name}"
                    make(scratch)
                    digest = digest_of_content(scratch)
                    known = _named(cache_dir, name, digest, suffix), digest
                    os.replace(scratch, known[0])
    except OSError as fault:
        raise UserError(
            f"cannot {what} in {cache_dir}: {fault.strerror or fault}; see that the directory can "
            "be written and that its disk has room"
        ) from None
    return known


@contextmanager
def keeping_what_is_used(cache_dir: Path) -> Iterator[None]:
    """Of the cached files those go that nobody has opened within the block, if that ends well.

    Else each change of a host's own data would leave a copy of them for good. What goes and is
    mapped by somebody stays until that one ends. A disk that takes nothing is left as it is.
    """
    since_ns = 0
    with suppress(OSError):
        cache_dir.mkdir(parents=True, exist_ok=True)
        (cache_dir / LOCK).touch()
        since_ns = (cache_dir / LOCK).stat().st_mtime_ns  # by the clock of its file system
    yield
    with suppress(OSError):
        for kept in filter(_is_ours, cache_dir.glob("[!.]*")):
            if kept.stat().st_atime_ns < since_ns:
                kept.unlink()


def _note_use(known: Path, cache_dir: Path) -> None:
    """Read since the block above began: many file systems note that once a day, or never."""
    with suppress(OSError):
        begun_ns = (cache_dir / LOCK).stat().st_mtime_ns
        os.utime(known, ns=(begun_ns, known.stat().st_mtime_ns))


@contextmanager
def _alone_in(cache_dir: Path) -> Iterator[None]:
    """One process at a time; what one that was killed has left goes first. Raises OSError."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    with (cache_dir / LOCK).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel ends it with the process
        _sweep(cache_dir)
        try:
            yield
        finally:
            _sweep(cache_dir)


def _sweep(cache_dir: Path) -> None:
    for left in cache_dir.glob(".*"):
        if left.name != LOCK:
            with suppress(OSError):  # a folder, or what a file server keeps while it is mapped
                left.unlink()


def _kept(cache_dir: Path, name: str, suffix: str) -> tuple[Path, str] | None:
    for known in sorted(cache_dir.glob(f"{name}-*{suffix}")):
        digest = digest_of_content(known)
        if known == _named(cache_dir, name, digest, suffix):
            _note_use(known, cache_dir)
            return known, digest
        known.unlink(missing_ok=True)
    return None


def _is_ours(path: Path) -> bool:
    """Whether its name is one that `_named` gives: a person may put data of their own here."""
    return _NAMED.fullmatch(path.name) is not None


def _named(cache_dir: Path, name: str, digest: str, suffix: str) -> Path:
    return cache_dir / f"{name}-{digest[:NAME_CHARACTERS]}{suffix}"


def _unpacked(path: Path, cache_dir: Path) -> tuple[Path, str]:
    """What is in the file, in the cache, and its digest. Raises OSError, UserError."""
    name = f"unpacked-{_digest(_pieces(path))[:NAME_CHARACTERS]}"

    def unpack(scratch: Path) -> None:
        with scratch.open("wb") as file:
            for piece in _unpacking(path):
                file.write(piece)

    return kept_or_made(cache_dir, name, "", f"unpack {path}", unpack)


def _unpacking(path: Path) -> Iterator[bytes]:
    size_bytes = 0
    try:
        with gzip.open(path, "rb") as file:
            while piece := file.read(READ_BYTES):
                size_bytes += len(piece)
                if size_bytes > UNPACKED_BYTES_MAX:
                    raise UserError(f"{path}:1: unpacks to more than {UNPACKED_BYTES_MAX} bytes")
                yield piece
    except (gzip.BadGzipFile, EOFError, zlib.error) as fault:
        raise UserError(
            f"{path}:1: gzip cannot unpack it: {fault}; it was damaged on its way: copy it again"
        ) from None


def _digest(pieces: Iterator[bytes]) -> str:
    hasher = blake3()
    for piece in pieces:
        hasher.update(piece)
    return hasher.hexdigest()


def _pieces(path: Path) -> Iterator[bytes]:
    with open_regular(path) as file:
        while piece := file.read(READ_BYTES):
            yield piece


def open_regular(path: Path) -> BinaryIO:
    """Raises OSError, also for what would never end, or never begin: a device or a pipe."""
    mode = path.stat().st_mode
    if not S_ISREG(mode) and not S_ISDIR(mode):  # to open a directory says what is wrong
        raise OSError(errno.EINVAL, "a pipe, a socket or a device is no file of data", str(path))
    return path.open("rb")
