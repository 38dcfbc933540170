"""The hub of the netem backend: builds the cables between namespaces, and tells the kernel.

    built --line: links--> the kernel's qdiscs changed --line: counts--> what they did

It lives in a namespace of its own, with a port for each node; when it and the warm parent have
ended, the kernel takes namespaces, cables and qdiscs away.
"""

import os
import socket
import subprocess
from collections.abc import Sequence

from simnet.processes import kernel, qdiscs
from simnet.processes.namespaces import Namespace, enter_new
from simnet.processes.switch import LinkState
from simnet.processes.weather import Ends

PROGRAM_TIMEOUT_S = 30.0  # for a thousand links on a busy machine


def make_namespaces(count: int) -> list[Namespace]:
    """One for each node, and the hub's as the last, all wired, every link cut. We stay in the hub.

    Must be called by a process with a single thread. Raises OSError.
    """
    made = [enter_new() for _ in range(count + 1)]
    nodes, hub = made[:count], made[count]
    run("ip", qdiscs.hub_wires(node.descriptor for node in nodes), [n.descriptor for n in nodes])
    for index, node in enumerate(nodes):
        kernel.set_namespace(node.descriptor)
        run("ip", qdiscs.node_wires(index))
    kernel.set_namespace(hub.descriptor)
    run("tc", qdiscs.made(count))
    return made


def run(program: str, lines: Sequence[str], descriptors: Sequence[int] = ()) -> None:
    """A batch of `ip` or `tc` where we are. Raises OSError with what it said."""
    _ask([program, "-batch", "-"], "".join(f"{line}\n" for line in lines), descriptors)


def _ask(order: list[str], said: str = "", descriptors: Sequence[int] = ()) -> str:
    try:
        done = subprocess.run(
            order,
            input=said,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROGRAM_TIMEOUT_S,
            pass_fds=descriptors,
        )
    except subprocess.TimeoutExpired as hung:
        raise OSError(f"{order[0]} hangs: {hung}") from None
    if done.returncode:
        raise OSError(f"{order[0]}: {' '.join(done.stderr.split())}")
    return done.stdout


class Hub:
    """Changes links between namespaces as the tool says, until it closes the line."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._states: dict[Ends, LinkState] = {}
        self._seen: dict[Ends, tuple[int, int]] = {}  # passed and lost so far
        self._delivered = self._lost = self._cut = 0

    def run(self) -> None:
        while True:
            message, _ = kernel.receive(self._line)
            if message is None:
                return
            try:
                self.obey(message)
                answer = self.counts()
            except OSError as refused:
                os.write(2, f"{refused}\n".encode())
                raise SystemExit(1) from None
            kernel.send(self._line, answer)

    def obey(self, message: kernel.Message) -> None:
        """Raises OSError."""
        self._read()  # what was lost so far was lost under the old states
        lines = []
        for sender, receiver, fields in message.get("links", []):
            ends, now = (sender, receiver), LinkState.from_message(fields)
            lines += qdiscs.changed(ends, self._states.get(ends), now)
            self._states[ends] = now
        if lines:
            run("tc", lines)

    def counts(self) -> kernel.Message:
        """Raises OSError."""
        self._read()
        return {"delivered": self._delivered, "lost": self._lost, "cut": self._cut}

    def _read(self) -> None:
        for ends, (passed, lost) in qdiscs.read_counts(_ask(["tc", "-s", "-j", "qdisc"])).items():
            passed_before, lost_before = self._seen.get(ends, (0, 0))
            self._seen[ends] = passed, lost
            self._delivered += passed - passed_before
            state = self._states.get(ends)
            if state is not None and state.is_open:
                self._lost += lost - lost_before
            else:
                self._cut += lost - lost_before
