"""Room beside what is to be written, so that nothing has its name before it is whole.

It is on the disk of what is written, which has to have the place anyway, and it has a name that
nobody has: no file of anybody's is touched. A process that is killed leaves it there, and whoever
next wants room in that folder takes it away: whose room it is holds a lock on it, which the kernel
ends with the process.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from daa_node.errors import UserError

PREFIX = ".daa-export-"
TRIES_MAX = 16  # a new room is taken for one that was left behind once for each who looks just then


@contextmanager
def room_beside(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, gone afterwards. Raises UserError, for OSErrors inside too."""
    if not target.parent.is_dir():
        raise UserError(
            f"{target}: {target.parent} is no directory: make it, or choose another place"
        )
    try:
        with _room_in(target.parent) as room:
            yield room
    except OSError as fault:
        raise UserError(f"cannot write {target}: {fault.strerror or fault}", exit_code=1) from None


@contextmanager
def temporary_room() -> Iterator[Path]:
    """The same among temporary files, for what nobody keeps. Raises UserError in the same way."""
    try:
        with _room_in(Path(gettempdir())) as room:
            yield room
    except OSError as fault:
        why = f"{fault.filename}: {fault.strerror}" if fault.filename else str(fault)
        raise UserError(
            f"no room for temporary files: {why}. Set TMPDIR to a folder on a disk that has some: "
            "a model's state takes 9 bytes a parameter there, and diff has two",
            exit_code=1,
        ) from None


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Where to make a file or a folder that gets the name `target` in the end. Raises UserError.

    Once it has the name it outlasts a power cut.
    """
    with room_beside(target) as room:
        partial = room / target.name
        yield partial
        for path in (*partial.rglob("*"), partial):
            _sync(path)
        os.replace(partial, target)
        _sync(target.parent)


@contextmanager
def _room_in(folder: Path) -> Iterator[Path]:
    """Raises OSError."""
    _clear_away(folder)
    room, lock = _new_room(folder)
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _new_room(folder: Path) -> tuple[Path, int | None]:
    """A folder, and what holds it until it is closed. Raises OSError."""
    for _ in range(TRIES_MAX):
        room = Path(mkdtemp(prefix=PREFIX, dir=folder))
        try:
            lock = _lock(room)
        except (FileNotFoundError, BlockingIOError):
            continue  # taken for one that was left behind
        except OSError:
            return room, None  # nothing can be locked there: nobody takes anything away
        if room.exists():
            return room, lock
        os.close(lock)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(folder))


def _clear_away(folder: Path) -> None:
    """What killed processes have left; another user's stays."""
    for room in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = _lock(room)
            shutil.rmtree(room, ignore_errors=True)
            os.close(lock)


def _lock(room: Path) -> int:
    """A descriptor that holds it. Raises BlockingIOError if somebody else does, and OSError."""
    handle = os.open(room, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
