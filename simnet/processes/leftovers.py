"""What a run has made, written down while it lives, so that a crash of the tool leaves nothing.

Processes, namespaces and devices end with the tool by themselves; what can stay is a directory, or
a process that the kernel could not end in time. A note in the user's own folder names both, and who
owns them. The next start, or `simnet cluster down`, clears the notes of owners that are dead, and
touches nothing of one that lives: a process is known by its pid and the moment it started.
"""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daa_node.errors import UserError
from simnet.processes import kernel
from simnet.processes.family import signal_process


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

    def _write(self) -> None:
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self._said))
        beside.replace(self._path)


@contextmanager
def noted(name: str) -> Iterator[Note]:
    """A note for as long as the run lasts; what dead runs have left is cleared first."""
    clear_dead()
    path = folder() / f"{name}-{os.getpid()}.json"
    note = Note(path)
    try:
        yield note
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def scratch(note: Note) -> Iterator[Path]:
    """A directory that goes with the run."""
    directory = Path(tempfile.mkdtemp(prefix="daa-", dir=folder()))
    note.add_directory(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


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
