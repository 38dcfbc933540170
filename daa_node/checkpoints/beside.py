"""Room beside what is to be written, so that nothing has its name before it is whole.

It is on the disk of what is written, which has to have the place anyway, and it has a name that
nobody has: no file of anybody's is touched. A process that is killed leaves it there, and the same
user's next one that wants room in that folder takes it away: whose room it is holds a lock on it,
which the kernel ends with the process.

Others may write in that folder too, and give a room's name to what they like, a folder of that
user's included. So a room is known by its owner and by what is in it, and only what was looked at
is emptied, whatever has its name by then.
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
INSIDE = "daa-export"  # all that a room has in it; nobody else can put it there
TRIES_MAX = 16  # a new room is taken for one that was left behind once for each who looks just then


@contextmanager
def room_beside(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, gone afterwards. Raises UserError, for OSErrors inside too."""
    if not os.path.isdir(target.parent):
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
    for left in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            _clear_away(left)
    room, handle = _new_room(folder)
    try:
        yield room / INSIDE
    finally:
        _remove(room, handle)


def _new_room(folder: Path) -> tuple[Path, int]:
    """A folder, and what holds it until it is closed. Raises OSError."""
    for _ in range(TRIES_MAX):
        room = Path(mkdtemp(prefix=PREFIX, dir=folder))
        try:
            handle = _open(room)
        except FileNotFoundError:
            continue  # taken for one that was left behind
        try:
            _lock(handle)
            os.mkdir(INSIDE, 0o700, dir_fd=handle)
        except (FileNotFoundError, BlockingIOError):
            os.close(handle)  # the same, a moment later
        except OSError:
            _remove(room, handle)
            raise
        else:
            return room, handle
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(folder))


def _clear_away(left: Path) -> None:
    """A room that a killed process of this user's has left. Raises OSError."""
    handle = _open(left)
    try:
        is_own = os.fstat(handle).st_uid == os.geteuid()
        if not is_own or not _lock(handle) or {*os.listdir(handle)} - {INSIDE}:
            os.close(handle)
            return
    except OSError:
        os.close(handle)
        raise
    _remove(left, handle)


def _remove(room: Path, handle: int) -> None:
    shutil.rmtree(INSIDE, ignore_errors=True, dir_fd=handle)
    with suppress(OSError):
        room.rmdir()
    os.close(handle)


def _open(room: Path) -> int:
    """Raises OSError, for what is no folder too."""
    return os.open(room, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _lock(handle: int) -> bool:
    """False where nothing can be locked: nobody takes anything away. Raises BlockingIOError."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
