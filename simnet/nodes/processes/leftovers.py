"""What a run has made beside its processes: a scratch directory, which goes with it or after it.

Processes, namespaces and devices end with the tool, by the kernel. A scratch directory lies in the
user's own folder, and its owner holds a lock on it as long as it lives: the next start, or `simnet
cluster down`, removes those that nobody holds any more.
"""

import fcntl
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from daa_node.errors import UserError

ENDS = (signal.SIGTERM, signal.SIGHUP)  # asked to end, or our terminal is gone


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that goes with the run; what dead runs have left is removed first."""
    clear_dead()
    with _lock(folder()):
        # a short name: sockets lie in it
        directory = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=folder()))
        held = lock(directory)
    assert held is not None, "nobody else looks while the folder is locked"
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(held)


def clear_dead() -> list[str]:
    """Remove what dead owners have left; what was removed."""
    cleared = []
    with _lock(folder()):
        for directory in sorted(path for path in folder().iterdir() if path.is_dir()):
            held = lock(directory)
            if held is not None:
                shutil.rmtree(directory, ignore_errors=True)
                cleared.append(str(directory))
                os.close(held)
    return cleared


def lock(path: Path, wait: bool = False) -> int | None:
    """A descriptor that holds the file or directory until it is closed; None if somebody else does.

    The kernel lets go when the owner ends, however that is.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def folder() -> Path:
    """This user's own. Raises UserError when somebody else has taken the name."""
    path = Path(tempfile.gettempdir()) / f"daa-simnet-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UserError(f"{path} is not ours alone: remove it, or set TMPDIR")
    return path


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    held = lock(path, wait=True)
    assert held is not None
    try:
        yield
    finally:
        os.close(held)


@contextmanager
def heard() -> Iterator[None]:
    """Who asks us to end, other than by Ctrl-C, is heard as an exception: what we made goes, too.

    Does nothing but in the main thread, which alone hears signals.
    """

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    # `nohup` has said that nobody is to be heard
    heeded = [number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heeded}
    try:
        yield
    finally:
        for number, its_own in before.items():
            signal.signal(number, its_own)
