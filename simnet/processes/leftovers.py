"""What a run has made, written down while it lives, so that a crash of the tool leaves nothing.

Processes, namespaces and devices end with the tool by themselves; what can stay is a directory, or
a process that the kernel could not end in time. A note in the user's own folder names both, and who
owns them. The next start, or `simnet cluster down`, clears the notes of owners that are dead, and
touches nothing of one that lives: a process is known by its pid and the moment it started. A note
goes last, and stays while anything stays that it names: whoever interrupts the end of a run once
more leaves something for the next start, not for ever.
"""

import json
import os
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from daa_node.errors import UserError
from simnet.processes import kernel
from simnet.processes.family import signal_process

ENDS = (signal.SIGTERM, signal.SIGHUP)  # asked to end, or our terminal is gone


class Note:
    """One run's note: every change is on disk at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said: dict[str, Any] = {
            "owner": _process(os.getpid()),
            "processes": [],
            "directories": [],
        }
        self._write()

    def add_process(self, pid: int) -> None:
        self._said["processes"].append(_process(pid))
        self._write()

    def add_directory(self, directory: Path) -> None:
        """One that is to go with the run."""
        self._said["directories"].append(str(directory))
        self._write()

    def end(self) -> None:
        """There is nothing more to tell, unless a directory is left."""
        if not any(Path(directory).exists() for directory in self._said["directories"]):
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self._said))
        beside.replace(self._path)


@contextmanager
def noted(name: str) -> Iterator[Note]:
    """A note for as long as the run lasts; what dead runs have left is cleared first."""
    clear_dead()
    note = Note(folder() / f"{name}-{os.getpid()}.json")
    try:
        yield note
    finally:
        note.end()


@contextmanager
def scratch(note: Note) -> Iterator[Path]:
    """A directory that goes with the run."""
    directory = folder() / f"daa-{secrets.token_hex(8)}"
    note.add_directory(directory)
    try:
        directory.mkdir(mode=0o700)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def heard() -> Iterator[None]:
    """Who asks us to end, other than by Ctrl-C, is heard as an exception: what we made goes, too.

    Does nothing but in the main thread, which alone hears signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # `nohup` has said so
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def unheard() -> Iterator[None]:
    """Interrupts that come meanwhile are heard at the end: a process that we start must be known.

    Masking them would not do: another thread, of a library, would take them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, *ENDS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for interrupt in came:
            signal.raise_signal(interrupt)


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def clear_dead() -> list[str]:
    """Remove what dead owners have left; what was removed, in words."""
    cleared = []
    for path in sorted(folder().glob("*.json")):
        try:
            said = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # just removed by its owner, or not ours to judge
        if _lives(said["owner"]):
            continue
        for process in said["processes"]:
            if signal_process(process["pid"], process["ticks"], signal.SIGKILL):
                cleared.append(f"process {process['pid']}")
        for directory in map(Path, said["directories"]):
            if directory.parent == folder() and directory.exists():
                shutil.rmtree(directory, ignore_errors=True)
                cleared.append(str(directory))
        path.unlink(missing_ok=True)
    return cleared


def folder() -> Path:
    """This user's own. Raises UserError when somebody else has taken the name."""
    path = Path(tempfile.gettempdir()) / f"daa-simnet-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UserError(f"{path} is not ours alone: remove it, or set TMPDIR")
    return path


def _lives(process: dict[str, int]) -> bool:
    return kernel.start_ticks(process["pid"]) == process["ticks"]


def _process(pid: int) -> dict[str, int]:
    return {"pid": pid, "ticks": kernel.start_ticks(pid) or 0}
