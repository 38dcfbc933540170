"""The warm parent of training workers: imports torch once, and forks a worker whenever asked.

A daemon asks over a Unix socket and passes the worker's end of their own line. While the connection
is open the daemon lives: when it closes, its worker is killed, as a daemon's own child would be by
the kernel. A worker joins its daemon's process group, so that both are suspended together.
"""

import gc
import os
import resource
import select
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from simnet.processes import kernel

BACKLOG = 64
FREE_DESCRIPTORS_FROM = 3
_UCRED_BYTES = 12  # pid, uid, gid

# (our end of the daemon's line, parent, what the daemon says of the worker): its whole life
Serve = Callable[[int, int, kernel.Message], None]


class Workers:
    """Serves daemons at `path` until its own parent ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._daemons: dict[int, socket.socket] = {}  # by descriptor
        self._worker_of: dict[int, int] = {}  # descriptor of a daemon's line -> pid
        self._ends: dict[int, tuple[int, int]] = {}  # pidfd -> (pid, descriptor of the line)

    def run(self) -> None:
        """Never returns by itself."""
        from simnet.processes.handicaps import serve

        gc.collect()
        gc.freeze()
        threads = len(os.listdir("/proc/self/task"))
        assert threads == 1, f"{threads} threads: a fork would copy one and leave the others' locks"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(str(self._path))
            door.listen(BACKLOG)
            while True:
                watched = [door.fileno(), *self._daemons, *self._ends]
                ready, _, _ = select.select(watched, [], [])
                for source in ready:
                    if source == door.fileno():
                        line, _ = door.accept()
                        self._daemons[line.fileno()] = line
                    elif source in self._ends:
                        self._bury(source)
                    elif source in self._daemons:
                        self._hear(source, serve)

    def _hear(self, source: int, serve: Serve) -> None:
        line = self._daemons[source]
        message, descriptors = kernel.receive(line)
        if message is None:
            del self._daemons[source]
            pid = self._worker_of.pop(source, None)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)  # ours until we have buried it
            line.close()
            return
        theirs, log = descriptors
        credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED_BYTES)
        daemon = int.from_bytes(credentials[:4], "little")
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            try:
                _be_born(parent, daemon, theirs, log)
                serve(FREE_DESCRIPTORS_FROM, parent, message)
            finally:
                os._exit(1)
        os.close(theirs)
        os.close(log)
        self._worker_of[source] = pid
        self._ends[os.pidfd_open(pid)] = pid, source
        kernel.send(line, {"pid": pid})

    def _bury(self, descriptor: int) -> None:
        pid, source = self._ends.pop(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        if self._worker_of.get(source) == pid:
            del self._worker_of[source]
            with suppress(OSError):  # the daemon is just ending
                kernel.send(self._daemons[source], {"ended": os.waitstatus_to_exitcode(status)})


def _be_born(parent: int, daemon: int, theirs: int, log: int) -> None:
    kernel.die_with_parent(parent)
    os.setpgid(0, os.getpgid(daemon))
    # a full disk is full for the worker, too
    resource.setrlimit(resource.RLIMIT_FSIZE, resource.prlimit(daemon, resource.RLIMIT_FSIZE))
    nothing = os.open(os.devnull, os.O_RDONLY)
    theirs = os.dup(theirs)  # none of the numbers that are given anew below
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.dup2(theirs, FREE_DESCRIPTORS_FROM)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > FREE_DESCRIPTORS_FROM:
            with suppress(OSError):  # the one that listed the others is closed already
                os.close(descriptor)


class WarmWorker:
    """A daemon's handle of a worker that another process has forked for it."""

    def __init__(self, line: socket.socket, pid: int) -> None:
        self._line = line
        self._code: int | None = None
        self.pid = pid

    def kill(self) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self._code is None:
            ready, _, _ = select.select([self._line], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            message, _ = kernel.receive(self._line)
            self._code = -signal.SIGKILL if message is None else int(message["ended"])
            self._line.close()
        return self._code


class SpawnWarm:
    """How a daemon starts a worker where a warm parent serves at `path`."""

    def __init__(self, path: Path, slowness: float, mislabelled: bool) -> None:
        self._path = path
        self._order = {"slowness": slowness, "mislabelled": mislabelled}

    def __call__(self, _threads: int, log_path: Path) -> tuple[WarmWorker, socket.socket]:
        """Raises OSError when the warm parent is gone."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours, theirs = socket.socketpair()
        try:
            line.connect(str(self._path))
            with theirs, log_path.open("wb") as log:
                kernel.send(line, self._order, [theirs.fileno(), log.fileno()])
            message, _ = kernel.receive(line)
            if message is None:
                raise ConnectionResetError("the warm parent of workers is gone")
        except OSError:
            line.close()
            ours.close()
            raise
        return WarmWorker(line, message["pid"]), ours
