"""Messages between the processes of one run: pickled, whole, with descriptors where need be.

All processes of a run were started by the tool, or by one that it started: nobody else writes here.
"""

import pickle
import select
import socket
from collections.abc import Sequence
from typing import Any

from daa_node.errors import Unavailable

MESSAGE_BYTES_MAX = 1 << 20  # the links of 32 nodes are 80 kB
DESCRIPTORS_MAX = 250  # of one message; the kernel's SCM_MAX_FD is 253
ANSWER_TIMEOUT_S = 60.0  # a warm-up on a busy machine takes five


class Line:
    """Our end; `name` is that of the process at the other one."""

    def __init__(self, name: str, end: socket.socket) -> None:
        self.name = name
        self._end = end
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES_MAX)

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Raises Unavailable when nobody listens any more."""
        try:
            socket.send_fds(self._end, [pickle.dumps(message)], descriptors)
        except OSError as gone:
            raise Unavailable(f"the {self.name} is gone: {gone}") from None

    def receive(self) -> tuple[Any, list[int]]:
        """The next message, however long it takes. Raises EOFError when the other side ended."""
        try:
            payload, descriptors, _, _ = socket.recv_fds(
                self._end, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX
            )
        except ConnectionResetError:
            payload, descriptors = b"", []
        if not payload:
            raise EOFError(f"the {self.name} has ended")
        return pickle.loads(payload), descriptors

    def hear(self, timeout_s: float = ANSWER_TIMEOUT_S) -> tuple[Any, list[int]]:
        """The next message. Raises Unavailable when the other side has died or hangs."""
        if not select.select([self], [], [], timeout_s)[0]:
            raise Unavailable(f"the {self.name} says nothing for {timeout_s:g} s")
        try:
            return self.receive()
        except EOFError as ended:
            raise Unavailable(str(ended)) from None

    def ask(self, message: object, descriptors: Sequence[int] = ()) -> Any:
        """What it answers. Raises Unavailable."""
        self.send(message, descriptors)
        return self.hear()[0]

    def close(self) -> None:
        """Hang up: whoever serves us ends."""
        self._end.close()


def pair(name: str) -> tuple[Line, socket.socket]:
    """Our end of a line to `name`, and the other one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Line(name, ours), theirs
