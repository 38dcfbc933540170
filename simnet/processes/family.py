"""The tool's side of its helpers: start the warm parent and the switch, and hear of ends.

Everything started here dies with the tool, however that ends: helpers when it does (the kernel
sees to it), daemons with the warm parent.
"""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from daa_node.adapters.trainer_process import ALLOCATION
from daa_node.errors import Unavailable, UserError
from simnet.processes import kernel
from simnet.processes.daemon import Nature

ZYGOTE_MODULE = "simnet.processes.zygote"
ANSWER_TIMEOUT_S = 60.0  # a warm-up on a busy machine takes five
END_TIMEOUT_S = 5.0


@dataclass(slots=True)
class Line:
    """Our end of a line to a process that answers."""

    name: str
    end: socket.socket

    def ask(
        self, message: kernel.Message, descriptors: Sequence[int] = ()
    ) -> tuple[kernel.Message, list[int]]:
        """Its answer. Raises Unavailable when it has died or hangs."""
        try:
            kernel.send(self.end, message, descriptors)
        except OSError as gone:
            raise Unavailable(f"the {self.name} is gone: {gone}") from None
        return self.hear(ANSWER_TIMEOUT_S)

    def hear(self, timeout_s: float) -> tuple[kernel.Message, list[int]]:
        """Its next message. Raises Unavailable."""
        ready, _, _ = select.select([self.end], [], [], timeout_s)
        message, passed = kernel.receive(self.end) if ready else (None, [])
        if message is None:
            why = "has ended" if ready else f"says nothing for {timeout_s:g} s"
            raise Unavailable(f"the {self.name} {why}")
        return message, passed

    def close(self) -> None:
        """Hang up."""
        self.end.close()


@dataclass(slots=True)
class Helper:
    """A process of ours with a line to it."""

    process: "subprocess.Popen[bytes]"
    line: Line

    def end(self) -> None:
        """Hang up, and wait until it is gone."""
        self.line.close()
        try:
            self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_helper(name: str, module: str, log: Path, *arguments: str) -> Helper:
    """`python -m MODULE` with a line to it."""
    ours, theirs = kernel.pair()
    root = str(Path(__file__).parents[2])
    path = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    with theirs, log.open("ab") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--fd", str(theirs.fileno())]
            + ["--parent", str(os.getpid()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
            pass_fds=[theirs.fileno()],
            # one thread each: whoever forks must have no other
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path),
                "OPENBLAS_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                **ALLOCATION,
            },
            start_new_session=True,  # Ctrl-C is the tool's to handle, in order
        )
    return Helper(process, Line(name, ours))


class Zygote:
    """The warm parent, and what has become of its children."""

    def __init__(self, log: Path, on_child: Callable[[int], None] = lambda pid: None) -> None:
        """`on_child` is told the pid of everything that is forked."""
        self._log = log
        self._on_child = on_child
        self.helper = start_helper("warm parent", ZYGOTE_MODULE, log)
        self._codes: dict[int, int] = {}  # of children that have ended

    def make_tun_world(self, count: int, device: str, user_namespace: bool) -> list[int]:
        """Descriptors of TUN devices, one in each namespace. Raises UserError."""
        order = {"do": "tun world", "count": count, "user_namespace": user_namespace}
        return self._ask({**order, "device": device})[1]

    def make_cabled_world(self, count: int, user_namespace: bool) -> None:
        """Namespaces with cables to a hub in one of its own. Raises UserError."""
        self._ask({"do": "cabled world", "count": count, "user_namespace": user_namespace})

    def spawn_hub(self, count: int, line: socket.socket) -> int:
        """The hub's process; its namespace comes after those of the `count` nodes."""
        order = {"do": "hub", "node": count, "log": str(self._log)}
        return int(self._ask(order, [line.fileno()])[0]["pid"])

    def warm(self) -> float:
        """Import what daemons need; how long that took."""
        return float(self._ask({"do": "warm"})[0]["warm_s"])

    def start_workers(self, path: Path) -> int:
        """A warm parent of training workers, which will serve daemons at `path`."""
        order = {"do": "workers", "path": str(path), "log": str(self._log)}
        return int(self._ask(order)[0]["pid"])

    def spawn_daemon(self, node: int, nature: Nature, log: Path) -> int:
        """The pid of the node's daemon, in its namespace; also its process group."""
        order = {"do": "daemon", "node": node, "log": str(log), "nature": nature.as_message()}
        return int(self._ask(order)[0]["pid"])

    def spawn(self, node: int, arguments: Sequence[str], log: Path) -> int:
        """The pid of a `daa-node ARGUMENTS` in the node's namespace; also its process group."""
        order = {"do": "command", "node": node, "arguments": [*arguments], "log": str(log)}
        return int(self._ask(order)[0]["pid"])

    def spawn_probe(self, node: int, address: str, line: socket.socket) -> int:
        order = {"do": "probe", "node": node, "address": address, "log": str(self._log)}
        return int(self._ask(order, [line.fileno()])[0]["pid"])

    def code_of(self, pid: int) -> int | None:
        """How a child ended, negative for a signal; None while it runs."""
        while pid not in self._codes:
            ready, _, _ = select.select([self.helper.line.end], [], [], 0)
            if not ready:
                return None
            self._note(self.helper.line.hear(0)[0])
        return self._codes[pid]

    def wait(self, pid: int, timeout_s: float) -> int | None:
        """How the child ended; None if it has not in time."""
        deadline_s = monotonic() + timeout_s
        while (code := self.code_of(pid)) is None:
            left_s = deadline_s - monotonic()
            if left_s <= 0:
                return None
            select.select([self.helper.line.end], [], [], left_s)
        return code

    def kill_group(self, pid: int, number: int) -> None:
        """Signal a child and all of its group; nothing if it has ended."""
        if self.code_of(pid) is None:
            try:
                os.killpg(pid, number)
            except ProcessLookupError:
                return

    def end(self) -> None:
        self.helper.end()

    def _ask(
        self, order: kernel.Message, descriptors: Sequence[int] = ()
    ) -> tuple[kernel.Message, list[int]]:
        answer, passed = self.helper.line.ask(order, descriptors)
        while "ended" in answer:
            self._note(answer)
            answer, passed = self.helper.line.hear(ANSWER_TIMEOUT_S)
        if "refused" in answer:
            raise UserError(f"the system refuses: {answer['refused']}", exit_code=1)
        if "pid" in answer:
            self._on_child(answer["pid"])
        return answer, passed

    def _note(self, message: kernel.Message) -> None:
        if "ended" in message:
            self._codes[message["ended"]] = message["code"]


def signal_process(pid: int, ticks: int, number: int = signal.SIGTERM) -> bool:
    """Signal the process that started at `ticks`; False if that one is no more."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if kernel.start_ticks(pid) != ticks:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True
