"""Short looks at this host: who listens on a port, how fast the disk is, how many threads are left.

Each is bounded, and leaves nothing behind. What the system does not tell, it says to know not.
"""

import os
import re
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median

PROC = Path("/proc")
PROCESSES_MAX = 32_768  # looked at; Linux has no more by default
LISTENING = "0A"  # the state of a socket in /proc/net/tcp
PROBE_BYTES = 4 * 2**20  # of one file: more than a disk's own small buffers, and gone in a moment
SYNCS, SYNC_BYTES = 5, 4096  # a vote is as small as that
PROBE_NAME = ".doctor-{}"
FILES_LOOKED_AT_MAX = 1_000_000  # of a directory whose size is asked for
_SOCKET = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class DiskPace:
    """What a file system did with a small file."""

    sync_s: float  # the median of a few small writes, each until it is durable
    bytes_per_s: float  # of one larger write, until it is durable


@dataclass(frozen=True, slots=True)
class DiskLeft:
    """What a file system gives to who is not root; `files_left` None where it counts no files."""

    bytes_left: int
    files_left: int | None


@dataclass(frozen=True, slots=True)
class ThreadRoom:
    """How many threads may come beside those that are there."""

    left: int
    limit: str  # what bounds them, in words


def disk_pace(directory: Path) -> DiskPace:
    """Writes PROBE_BYTES into a file of that directory, and removes it. Raises OSError."""
    path = directory / PROBE_NAME.format(os.getpid())
    path.unlink(missing_ok=True)  # of one that was killed: in a container pids come again
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        syncs_s = [_timed_write(descriptor, os.urandom(SYNC_BYTES)) for _ in range(SYNCS)]
        whole_s = _timed_write(descriptor, os.urandom(PROBE_BYTES))
    finally:
        os.close(descriptor)
        path.unlink()
    return DiskPace(median(syncs_s), PROBE_BYTES / max(whole_s, 1e-9))


def _timed_write(descriptor: int, payload: bytes) -> float:
    started_s = time.perf_counter()
    left = memoryview(payload)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)
    return time.perf_counter() - started_s


def free_bytes(directory: Path) -> int:
    """What the file system there gives to who is not root. Raises OSError."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def disk_left(path: Path) -> DiskLeft:
    """Raises OSError."""
    found = os.statvfs(path)
    files_left = found.f_favail if found.f_files else None
    return DiskLeft(found.f_bavail * found.f_frsize, files_left)


def held_bytes(directories: list[Path]) -> int:
    """What the files below take up; those that go meanwhile count as nothing."""
    return sum(islice(_sizes(directories), FILES_LOOKED_AT_MAX))


def _sizes(directories: list[Path]) -> Iterator[int]:
    for directory in directories:
        for folder, _, names in os.walk(directory):
            for name in names:
                with suppress(OSError):
                    yield os.lstat(os.path.join(folder, name)).st_size


def port_holder(port: int) -> str | None:
    """`pid 17 (nginx)` of who listens on that TCP port; None where the system does not tell us."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listening(table, port)}
    for process in islice(PROC.glob("[0-9]*"), PROCESSES_MAX):
        try:
            if not inodes.isdisjoint(_sockets_of(process)):
                return f"pid {process.name} ({(process / 'comm').read_text().strip()})"
        except OSError:
            continue  # of another user, or gone
    return None


def _sockets_of(process: Path) -> Iterator[str]:
    """Inodes of its sockets. Raises OSError for a process of another user, or one that is gone."""
    for entry in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if match := _SOCKET.fullmatch(os.readlink(entry)):
                yield match[1]


def _listening(table: str, port: int) -> Iterator[str]:
    """Inodes of the sockets that listen on the port."""
    try:
        lines = (PROC / "net" / table).read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def is_stopped(pid: int) -> bool:
    """Whether that process waits for SIGCONT; False where the system does not tell."""
    try:
        state = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError, UnicodeDecodeError):
        return False
    return state in ("T", "t")


def files_max() -> int:
    """How many descriptors a process started here may have; RLIM_INFINITY for no limit."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def thread_room() -> ThreadRoom | None:
    """The narrowest of the limits that the system tells of; None where it tells of none."""
    found = [room for room in (_of_user(), _of_group(), _of_host()) if room is not None]
    return min(found, key=lambda room: room.left) if found else None


def _of_user() -> ThreadRoom | None:
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard == resource.RLIM_INFINITY or os.geteuid() == 0 or not PROC.is_dir():
        return None  # the kernel holds root to no such limit
    used = 0
    for process in islice(PROC.glob("[0-9]*"), PROCESSES_MAX):
        try:
            if process.stat().st_uid == os.geteuid():
                used += sum(1 for _ in (process / "task").iterdir())
        except OSError:
            continue  # gone
    return ThreadRoom(hard - used, f"`ulimit -u` {hard}, of which this user has {used}")


def _of_group() -> ThreadRoom | None:
    try:
        group = (PROC / "self" / "cgroup").read_text().strip().rpartition("::")[2]
        folder = Path("/sys/fs/cgroup") / group.lstrip("/")
        most = int((folder / "pids.max").read_text())  # "max" is no number: no limit
        used = int((folder / "pids.current").read_text())
    except (OSError, ValueError):
        return None
    return ThreadRoom(most - used, f"pids.max {most} of this control group, {used} are there")


def _of_host() -> ThreadRoom | None:
    try:
        most = int((PROC / "sys" / "kernel" / "threads-max").read_text())
        used = int((PROC / "loadavg").read_text().split()[3].rpartition("/")[2])
    except (OSError, ValueError, IndexError):
        return None
    return ThreadRoom(most - used, f"kernel.threads-max {most} of this host, {used} are there")
