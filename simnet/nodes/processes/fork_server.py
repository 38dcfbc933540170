"""Warm parents: processes that import everything once, and fork a child whenever asked.

A child is a process of its own: own process group, own log, own network namespace, and the kernel
kills it when the warm parent ends. Whoever ordered it hears of its end on the line of the order;
who hangs up has its children killed. Forking needs a single thread, so nothing here starts one, and
no event loop runs before a fork.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import simnet
from daa_node import collector
from daa_node.adapters.worker_process import ALLOCATION
from daa_node.errors import Unavailable, UserError
from simnet.nodes.processes import kernel
from simnet.nodes.processes.lines import Line, pair

BACKLOG = 64
END_TIMEOUT_S = 5.0
STANDARD = 3  # descriptors below are those of input, output and errors


@dataclass(frozen=True, slots=True)
class Fork:
    """An order for a child, answered by its pid; its end is told as Ended."""

    life: Callable[..., object]  # called with the descriptors that came along
    log: Path
    group: int = 0  # that the child joins; 0: one of its own
    enters: bool = False  # the first descriptor is the network namespace that it lives in


@dataclass(frozen=True, slots=True)
class Call:
    """An order for the warm parent itself, answered by the descriptors that this gives."""

    function: Callable[[], list[int]]


@dataclass(frozen=True, slots=True)
class Ended:
    """A child is no more; `code` is negative for a signal."""

    pid: int
    code: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The system does not let us."""

    why: str


class Server:
    """Obeys the orders of the tool, until that hangs up, and of whoever calls at the door."""

    def __init__(self, tool: Line, door: socket.socket | None) -> None:
        self._tool = tool
        self._lines = {tool.fileno(): tool}
        self._door = door
        self._children: dict[int, tuple[int, Line]] = {}  # by the descriptor that tells of its end

    def run(self) -> None:
        while self._tool.fileno() >= 0:
            doors = [self._door.fileno()] if self._door else []
            ready, _, _ = select.select([*doors, *self._lines, *self._children], [], [])
            for source in ready:
                if source in self._children:
                    self._bury(source)
                elif source in self._lines:
                    self._hear(self._lines[source])
                elif self._door:
                    accepted = Line("daemon", self._door.accept()[0])
                    self._lines[accepted.fileno()] = accepted

    def _hear(self, line: Line) -> None:
        try:
            order, descriptors = line.receive()
        except EOFError:
            for pid, of_line in self._children.values():
                if of_line is line:
                    os.kill(pid, signal.SIGKILL)  # ours until we have buried it
            del self._lines[line.fileno()]
            line.close()
            return
        answer: object
        passed: list[int] = []
        try:
            if isinstance(order, Fork):
                answer = self._fork(order, descriptors, line)
            else:
                passed = order.function()
                answer = None
        except OSError as refused:
            answer = Refused(str(refused))
        with suppress(Unavailable):  # it is just ending: the next message tells
            line.send(answer, passed)
        for descriptor in (*descriptors, *passed):
            os.close(descriptor)

    def _fork(self, order: Fork, descriptors: list[int], line: Line) -> int:
        threads = len(os.listdir("/proc/self/task"))
        assert threads == 1, f"{threads} threads: a fork would copy one and leave the others' locks"
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            code = 1
            try:
                _be_born(order, descriptors, parent)
                order.life(*descriptors[order.enters :])
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            finally:
                if sys.exc_info()[0] is not None:
                    traceback.print_exc()
                _flush()
                os._exit(code)  # what our parent has set up to run at its exit is not ours to run
        with suppress(OSError):  # as the child does, but before anybody may signal its group
            os.setpgid(pid, order.group or pid)
        self._children[os.pidfd_open(pid)] = pid, line
        return pid

    def _bury(self, descriptor: int) -> None:
        pid, line = self._children.pop(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        with suppress(Unavailable, OSError):  # whoever ordered it is gone
            line.send(Ended(pid, os.waitstatus_to_exitcode(status)))


def _be_born(order: Fork, descriptors: list[int], parent: int) -> None:
    """In the child: everything that makes it a process of its own."""
    kernel.die_with_parent(parent)
    os.setpgid(0, order.group)
    if order.enters:
        kernel.enter_namespace(descriptors[0])
    log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor >= STANDARD and descriptor not in descriptors[order.enters :]:
            with suppress(OSError):  # the one that listed the others is closed already
                os.close(descriptor)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or gone with its reader
            stream.flush()


def with_line(life: Callable[[Line], object], descriptor: int) -> None:
    """What a child does that has a line to the tool, and ends with it."""
    with suppress(EOFError):
        life(Line("tool", socket.socket(fileno=descriptor)))


class ForkServer:
    """The tool's side: a warm parent, and what has become of its children."""

    def __init__(self, log: Path, door: Path | None = None, modules: Sequence[str] = ()) -> None:
        """It imports `modules` first; whoever calls at `door` may order children, too."""
        self._log = log
        self._codes: dict[int, int] = {}  # of children that have ended
        self._line, theirs = pair("warm parent")
        root = str(Path(simnet.__file__).parents[1])
        words = str(theirs.fileno()), str(os.getpid()), str(door or ""), *modules
        with theirs, log.open("ab") as told:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, *words],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                pass_fds=[theirs.fileno()],
                # one thread each: whoever forks must have no other
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, [root, os.getenv("PYTHONPATH")])),
                    "OPENBLAS_NUM_THREADS": "1",
                    "OMP_NUM_THREADS": "1",
                    **ALLOCATION,
                },
                process_group=0,  # Ctrl-C is the tool's to handle, in order
            )

    def call(self, function: Callable[[], list[int]]) -> list[int]:
        """Have the warm parent do this; the descriptors that it gives. Raises UserError."""
        return self._ask(Call(function), ())[1]

    def fork(
        self,
        life: Callable[..., object],
        log: Path | None = None,
        namespace: int | None = None,
        descriptors: Sequence[int] = (),
    ) -> int:
        """The pid of a child, which leads a process group. Raises UserError.

        `life` is called with the descriptors, inside of the network namespace.
        """
        order = Fork(life, log or self._log, enters=namespace is not None)
        places = [] if namespace is None else [namespace]
        return int(self._ask(order, [*places, *descriptors])[0])

    def fork_helper(
        self, name: str, life: Callable[[Line], object], namespace: int | None = None
    ) -> Line:
        """A line to a child that lives as long as we keep it open. Raises UserError."""
        ours, theirs = pair(name)
        with theirs:
            self.fork(partial(with_line, life), None, namespace, [theirs.fileno()])
        return ours

    def code_of(self, pid: int) -> int | None:
        """How a child ended, negative for a signal; None while it runs."""
        while pid not in self._codes and select.select([self._line], [], [], 0)[0]:
            self._note(self._line.hear()[0])
        return self._codes.get(pid)

    def wait(self, pid: int, timeout_s: float) -> int | None:
        """How the child ended; None if it has not in time."""
        deadline_s = monotonic() + timeout_s
        while (code := self.code_of(pid)) is None:
            left_s = deadline_s - monotonic()
            if left_s <= 0:
                return None
            select.select([self._line], [], [], left_s)
        return code

    def kill_group(self, pid: int, number: int) -> None:
        """Signal a child and all of its group; nothing if it has ended."""
        if self.code_of(pid) is None:
            with suppress(ProcessLookupError):
                os.killpg(pid, number)

    def end(self) -> None:
        """Hang up, and wait until it is gone; all its children go with it."""
        self._line.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, order: Fork | Call, descriptors: Sequence[int]) -> tuple[Any, list[int]]:
        self._line.send(order, descriptors)
        while isinstance((answer := self._line.hear())[0], Ended):
            self._note(answer[0])
        if isinstance(answer[0], Refused):
            raise UserError(f"the system refuses: {answer[0].why}", exit_code=1)
        return answer

    def _note(self, ended: Ended) -> None:
        self._codes[ended.pid] = ended.code


# By its name, not as __main__: what is pickled here must be found there.
_MAIN = "import sys; from simnet.nodes.processes.fork_server import main; main(*sys.argv[1:])"


def main(descriptor: str, parent_pid: str, path: str, *modules: str) -> None:
    """The warm parent: started by the tool alone."""
    kernel.die_with_parent(int(parent_pid))
    tool, door = Line("tool", socket.socket(fileno=int(descriptor))), None
    if path:
        door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        door.bind(path)
        door.listen(BACKLOG)
    collector.spare_imports()
    for name in modules:
        import_module(name)
    collector.end_imports()  # nor will a child's collector touch them
    Server(tool, door).run()
