"""The other ranks of a site, as its first one sees them: started, told, heard, and their end."""

import os
import queue
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import NoReturn

from daa_node.training.endings import how_ended
from daa_node.training.messages import RECEIVE_BYTES, Message, Unpacker, pack

RANK_MODULE = "daa_node.training.site.rank"
BROKEN = 70  # the exit code of a worker whose site broke: EX_SOFTWARE
ANSWERS_MAX = 4  # a follower answers one question at a time
# Who ended is the cause; that others miss it may be heard before.
CAUSE_FIRST_S = 1.0


class Follower:
    """Another rank, and the thread that hears it."""

    def __init__(self, rank: int, ranks: int, board: int) -> None:
        """`board` is the descriptor that it maps. Raises OSError."""
        self.name = f"rank {rank} of {ranks}"
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", RANK_MODULE, "--fd", str(theirs.fileno())]
            self._process = subprocess.Popen(
                [*command, "--parent", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), board],
            )
        self._line = ours
        self._answers: queue.Queue[Message] = queue.Queue(ANSWERS_MAX)
        threading.Thread(target=self._hear, daemon=True).start()

    def tell(self, message: Message) -> None:
        with suppress(OSError):  # it has ended, which its own thread finds out
            self._line.sendall(pack(message))

    def answer(self, timeout_s: float) -> Message:
        """The next that it says; the worker ends if nothing comes."""
        try:
            return self._answers.get(timeout=timeout_s)
        except queue.Empty:
            end_worker(f"{self._said()} gave no answer within {timeout_s:g} s")

    def _hear(self) -> None:
        unpacker, is_refused = Unpacker(), False
        while received := self._received():
            for message in unpacker.feed(received):
                if "failed" in message:
                    end_after_cause(f"{self._said()} failed: {message['failed']}")
                is_refused = "refused" in message
                self._answers.put(message)
        code = self._process.wait()
        if not is_refused:
            end_worker(f"{self._said()} ended: {how_ended(code)}")

    def _received(self) -> bytes:
        """Nothing once it has ended: who is killed with words of ours unread resets the line."""
        try:
            return self._line.recv(RECEIVE_BYTES)
        except ConnectionResetError:
            return b""

    def _said(self) -> str:
        return f"{self.name}, pid {self._process.pid},"


def end_worker(why: str) -> NoReturn:
    """From any thread: this process, and with it all that follow it."""
    sys.stderr.write(f"the site is broken: {why}\n")
    sys.stderr.flush()
    os._exit(BROKEN)


def end_after_cause(why: str) -> NoReturn:
    """The same, unless another thread has a cause to name first."""
    threading.Event().wait(CAUSE_FIRST_S)
    end_worker(why)
