"""Daemons and workers of tests, forked from a parent that has imported everything already.

A daemon with its worker is some seconds of CPU before it does anything, nearly all of them imports.
Under `warmed`, whoever starts one by its usual command (`python -m daa_node ...`) is given a child
that begins right behind the imports: by the same entry point, with the same arguments, environment,
descriptors, group, limits and signals. It is a child indeed, to be waited for. What such a child
starts itself comes from a parent of its own, forked when it was born.

Three things differ. Torch is among its modules, which a daemon never loads; /proc has the command
of the warm parent; and all children of one parent order their sets alike, as they have one seed of
hashes. The demo and the networks of the README start their processes anew.

Forking needs a single thread. A child is forked twice, so that the kernel gives it to the process
that asked, which takes in orphans for that moment. Where there is no Linux, all is started anew.
"""

import ctypes
import fcntl
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from time import sleep
from types import ModuleType
from typing import Any

from trio._core import _run

from daa_node import collector
from daa_node.training.parent_death import die_with

ROOT = Path(__file__).parent.parent
RUN = ("daa_node.training.worker", "daa_node.training.site.rank")
# What may be started so; the last one tells of itself, to be compared.
MODULES = ("daa_node", *RUN, "tests.telling_process")
IMPORTED = (
    *("daa_node.cli.main", "daa_node.cli.compose", "daa_node.cli.checkpoint"),
    *("daa_node.training.site.engine", "daa_node.training.torch_worker", *RUN),
)
CHILDLESS = (
    "checkpoint", "status", "peers", "rounds", "logs", "pause", "resume", "drain", "validators",
    "trainers",
)  # fmt: skip
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # that reach a group; parents ignore them
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
# glibc reads these when a process begins, and may be told later: names of its mallopt.
ALLOCATION = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3}
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
ORDER_BYTES_MAX, DESCRIPTORS_MAX = 2**17, 64
ADOPTED_LOOK_S = 0.0005
STANDARD = 3  # descriptors below are those of input, output and errors
# In the order in which Popen hands them to what starts a child.
GIVEN = (
    *("args", "executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo"),
    *("creationflags", "shell", "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread"),
    *("errwrite", "restore_signals", "gid", "gids", "uid", "umask", "start_new_session"),
    "process_group",
)
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
USUAL: dict[str, object] = {
    **dict.fromkeys(("executable", "preexec_fn", "startupinfo", "gid", "gids", "uid")),
    **{"close_fds": True, "shell": False, "umask": -1},
}


ANEW = subprocess.Popen  # as always, also where others are warm


@dataclass(frozen=True, slots=True)
class Order:
    """All that a child has from who starts it, but for the descriptors that come along."""

    owner: int
    module: str  # empty: a program, which is the first word
    words: list[str]
    safe_path: bool  # -P: nothing is imported from where it starts
    directory: str
    environment: dict[str, str]
    targets: list[int]  # the number of each descriptor there
    session: bool  # one of its own
    group: int  # 0: one of its own
    ignored: list[int]  # signals
    limits: list[tuple[int, int]]


# The side of those who start processes.


class WarmParent:
    """Gives children to the process that it belongs to."""

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self._lock = threading.Lock()

    @property
    def is_there(self) -> bool:
        return self._door.fileno() >= 0

    def bear(self, order: Order, descriptors: Sequence[int]) -> int:
        """The pid of a child of ours. Raises OSError."""
        with self._lock:
            try:
                with _orphans_taken_in():
                    socket.send_fds(self._door, [json.dumps(asdict(order)).encode()], descriptors)
                    answer = json.loads(self._door.recv(ORDER_BYTES_MAX) or "null")
                if answer is None:
                    raise OSError("the warm parent is gone")
            except BaseException:
                self._door.close()  # what it answers now would be taken for the next one's
                raise
        pid, refused = answer
        if refused is not None:
            os.waitpid(pid, 0)
            raise OSError(*refused)
        return int(pid)


@contextmanager
def _orphans_taken_in() -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(SUBREAPER, 1) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    try:
        yield
    finally:
        libc.prctl(SUBREAPER, 0)


class WarmPopen(subprocess.Popen[Any]):
    """Popen, but that what is started by a usual command of MODULES comes from a warm parent."""

    programs = False

    def _execute_child(self, *given: Any) -> None:
        named = dict(zip(GIVEN, given, strict=True))
        order = _order(named, self.programs)
        if order is None:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        pipes = named["p2cread"], named["c2pwrite"], named["errwrite"]
        standard = [own if pipe == -1 else pipe for own, pipe in enumerate(pipes)]
        self.pid = _parent().bear(order, [*standard, *order.targets[STANDARD:]])
        this: Any = self  # its types do not tell of what Popen keeps
        this._child_created = True
        this._close_pipe_fds(*(named[name] for name in PIPES))


class WarmPrograms(WarmPopen):
    """And whatever is told to Python as a program, by -c."""

    programs = True


def _order(named: dict[str, Any], programs: bool) -> Order | None:
    """None if it is started anew."""
    words = named["args"]
    if isinstance(words, str | bytes | os.PathLike) or sys.platform != "linux":
        return None
    words = [os.fspath(word) for word in words]
    safe = words[1:2] == ["-P"]
    if len(words) < 3 + safe or words[0] != sys.executable:
        return None
    option, *words = words[1 + safe :]
    is_module = option == "-m" and words[0] in MODULES
    if not (is_module or (option == "-c" and programs)):
        return None
    if any(named[key] != USUAL[key] for key in USUAL):
        return None
    if not _parents and threading.current_thread() is not threading.main_thread():
        return None  # the kernel would end a parent with the thread that had started it
    environment = dict(os.environ if named["env"] is None else named["env"])
    group = named["process_group"]
    return Order(
        os.getpid(),
        words.pop(0) if is_module else "",
        words,
        safe,
        os.path.abspath(named["cwd"] or "."),
        environment,
        [*range(STANDARD), *sorted(named["pass_fds"])],
        named["start_new_session"],
        os.getpgid(0) if group == -1 else group,
        [each for each in SIGNALS if signal.getsignal(each) is signal.SIG_IGN],
        [resource.getrlimit(limit) for limit in LIMITS],
    )


_parents: list[WarmParent] = []  # of this process: one at most
_kept: list[object] = []  # who started one keeps its handle, which else complains that it runs


def _parent() -> WarmParent:
    if _parents and not _parents[0].is_there:
        _parents.clear()
    if not _parents:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        search_path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            begun = ANEW(
                [sys.executable, "-P", "-c", "from tests.warm import main; main()"]
                + [str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(search_path)},
            )
        _kept.append(begun)
        _parents.append(WarmParent(ours))
    return _parents[0]


@contextmanager
def warmed(start: type[WarmPopen] = WarmPopen) -> Iterator[None]:
    """Within it a usual command gives a warm child, and so does all that such a child starts."""
    before = subprocess.Popen
    subprocess.Popen = start  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = before  # type: ignore[misc]


# The side of warm parents.


def main() -> None:
    """The whole life of a warm parent, and of each process that comes of it."""
    door = socket.socket(fileno=int(sys.argv[1]))
    told = os.environ["PYTHONPATH"].split(os.pathsep)
    usual_path = [place for place in sys.path if place not in told]
    collector.spare_imports()
    for name in IMPORTED:
        import_module(name)
    for name in RUN:
        del sys.modules[name]  # it is run by its name, as if nobody had imported it
    collector.end_imports()  # nor will a child's collector touch them
    _attend(int(sys.argv[2]), door)
    while (received := _next_child(door)) is not None:
        order, descriptors = received
        _be_born(order, descriptors, door, usual_path)
        if order.module == "daa_node" and order.words[:1] in [[word] for word in CHILDLESS]:
            _live(order)
            return
        ours, door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        owner = os.getpid()
        if os.fork() != 0:
            door.close()
            _parents.append(WarmParent(ours))
            with warmed():
                _live(order)
            return
        ours.close()
        _attend(owner, door)


def _attend(owner: int, door: socket.socket) -> None:
    """Live for the owner's children, hold nothing else of it, and end with it."""
    die_with(owner)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(STANDARD):
        os.dup2(nothing, standard)
    _close_all_but(*range(STANDARD), door.fileno())
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


def _close_all_but(*descriptors: int) -> None:
    for each in map(int, os.listdir("/proc/self/fd")):
        if each not in descriptors:
            with suppress(OSError):  # the one that listed the others is closed already
                os.close(each)


def _next_child(door: socket.socket) -> tuple[Order, list[int]] | None:
    """In each child, what it is to be; in the parent None, once its owner is gone."""
    while True:
        words, descriptors, _, _ = socket.recv_fds(door, ORDER_BYTES_MAX, DESCRIPTORS_MAX)
        if not words:
            return None
        threads = len(os.listdir("/proc/self/task"))
        assert threads == 1, f"{threads} threads: a fork would copy one and leave the others' locks"
        between = os.fork()
        if between == 0:
            between = os.getpid()
            if os.fork() != 0:
                os._exit(0)
            while os.getppid() == between:
                sleep(ADOPTED_LOOK_S)
            return Order(**json.loads(words)), descriptors
        os.waitpid(between, 0)
        for each in descriptors:
            os.close(each)


def _be_born(
    order: Order, descriptors: list[int], door: socket.socket, usual_path: list[str]
) -> None:
    """Be all that a process is that was started anew, and say so."""
    if os.getppid() != order.owner:
        os._exit(0)  # it is gone
    refused = None
    try:
        _take_place(order)
    except OSError as fault:
        refused = [fault.errno, fault.strerror]
    above = max(order.targets) + 1  # where nothing is in the way
    line = fcntl.fcntl(door.detach(), fcntl.F_DUPFD, above)
    held = [fcntl.fcntl(each, fcntl.F_DUPFD, above) for each in descriptors]
    for source, target in zip(held, order.targets, strict=True):
        os.dup2(source, target)
    _close_all_but(*order.targets, line)
    os.environ.clear()
    os.environ.update(order.environment)
    told = filter(None, order.environment.get("PYTHONPATH", "").split(os.pathsep))
    first = [] if order.safe_path else [os.getcwd() if order.module else ""]
    sys.path[:] = [*first, *told, *usual_path]
    sys.argv[1:] = order.words
    _run._r.seed()  # trio's order of tasks; Python itself sees to its own dice
    with socket.socket(fileno=line) as said:
        said.send(json.dumps([os.getpid(), refused]).encode())
    if refused is not None:
        os._exit(1)


def _take_place(order: Order) -> None:
    os.chdir(order.directory)
    if order.session:
        os.setsid()
    elif os.getpgid(0) != order.group:
        os.setpgid(0, order.group)
    for limit, bounds in zip(LIMITS, order.limits, strict=True):
        resource.setrlimit(limit, bounds)
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN if each in order.ignored else signal.SIG_DFL)
    if signal.SIGINT not in order.ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    mallopt = ctypes.CDLL(None).mallopt
    for name, number in ALLOCATION.items():
        if name in order.environment:
            mallopt(number, int(order.environment[name]))


def _live(order: Order) -> None:
    if order.module:
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)
    else:
        program = sys.argv.pop(1)
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), vars(main))
