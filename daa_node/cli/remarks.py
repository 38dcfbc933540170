"""What a daemon says on standard error while it runs: on a thread, as no round waits for a reader.

A terminal that stands still (Ctrl-S, a connection that hangs), or a pipe that nobody reads, costs
lines. The event log has them all.
"""

import os
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread

from daa_node.cli import report

WAITING_MAX = 64  # lines: the newest
END_S = 3.0  # a daemon that stops waits no longer for its last ones to be taken


class Remarks:
    """In the order in which they were said."""

    def __init__(self, write: Callable[[str], None]) -> None:
        """`write` may block for as long as it likes."""
        self._write = write
        self._waiting: deque[str] = deque(maxlen=WAITING_MAX)
        self._changed = Condition()
        self._is_writing = False
        self._thread: Thread | None = None

    def say(self, line: str) -> None:
        """At once, as long as they are taken."""
        with self._changed:
            self._waiting.append(line)
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():  # or lost in a fork
                self._thread = Thread(target=self._run, name="remarks", daemon=True)
                self._thread.start()

    def finish(self, within_s: float = END_S) -> None:
        """Let them be taken."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._is_writing, within_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                line, self._is_writing = self._waiting.popleft(), True
            self._write(line)


def _put(line: str) -> None:
    """Past Python's own buffer: who waits with its lock keeps the process from ending."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed from the start, or of a test
        report.note(line)
        return
    left = f"{line}\n".encode(errors="backslashreplace")
    with suppress(OSError):
        while left:
            left = left[os.write(descriptor, left) :]


_remarks = Remarks(_put)
finish = _remarks.finish


def remark(line: str) -> None:
    """Say it for this process, over whatever is drawn."""
    _remarks.say(f"{report.undrawn()}{report.plain(line)}")
