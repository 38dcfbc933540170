"""Files that outlast a power cut: synced, renamed, and their directory synced.

What a sync has failed on is removed: the kernel may call lost pages clean from then on, and the
next sync succeed for nothing (Rebello et al., "Can Applications Recover from fsync Failures?",
USENIX ATC 2020). Raises OSError, unless it says otherwise.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from daa_node.adapters.descriptors import is_lack
from daa_node.errors import StorageFailed


def sync(path: Path) -> None:
    """A file's bytes, or the names in a directory."""
    with _opened(path) as handle:
        os.fsync(handle)


def move_durably(source: Path, target: Path) -> None:
    """Sync `source` and give it the name `target`, where there is a durable directory for it."""
    try:
        sync(source)
    except OSError as fault:
        if not is_lack(fault):
            source.unlink(missing_ok=True)
        raise
    with _opened(target.parent) as handle:  # before the change, which a lack must not follow
        is_new = not target.exists()
        os.replace(source, target)
        try:
            os.fsync(handle)
        except OSError:
            if is_new:  # or whoever finds it there takes it for durable
                target.unlink(missing_ok=True)
            raise


def open_file(path: Path) -> FileIO:
    """To read from; nothing is waited for, as it would be at a pipe."""
    return FileIO(path, opener=_open_file)


def _open_file(path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(handle).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # of a folder Python has words
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no file", str(path))
    return handle


@contextmanager
def storage(what: str) -> Iterator[None]:
    """StorageFailed in place of OSError."""
    # Full, read-only, failing: to a caller these are one thing, and the message keeps the cause.
    try:
        yield
    except OSError as fault:
        raise StorageFailed(f"cannot {what}: {fault.strerror or fault}") from fault


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)
