"""One worker process, from its start to its end, and the talk with it.

STARTING --ready--> SERVING --end of stream, silence, kill--> LOST
    +----refused: what is configured cannot be trained; UserError
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import trio

import daa_node
from daa_node.errors import TrainerFailed, UserError
from daa_node.training.endings import how_ended
from daa_node.training.messages import RECEIVE_BYTES, Message, Unpacker, pack

# A daemon that was itself suspended finds every deadline passed and the beats still unread.
LAST_LOOK_S = 0.5
# Whoever is suspended sends no beats; that can be seen long before the silence tells. Three looks:
# when a whole group of processes is continued, the daemon may run a little before its worker.
LOOK_S, SUSPENDED_LOOKS = 0.5, 3
# What an orderly end may take, beside what the size of the model adds to every deadline: the
# worker saves its optimiser's state.
ENDING_S = 5.0
# Memory that a step frees is not handed back to the kernel, only to be asked for again by the next
# one (measured: 135 instead of 18 ms for one pass over 10M parameters). glibc reads these.
ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2**27)}
# What takes so long is begun anew each time: without more time it never comes to an end.
SLOW_START = (
    "Large data are read, unpacked and converted first, and a model's base is read: give "
    "trainer.start_timeout_s in config.yaml more"
)
LOG_TAIL_BYTES = 1000  # of the worker's standard error, in the event that says why it was lost
WORKER_MODULE = "daa_node.training.worker"  # named, not imported: it imports torch
LIGHT_WORKER_MODULE = "daa_node.training.light_worker"


class WorkerProcess(Protocol):
    """As much of a process as its supervisor needs."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises subprocess.TimeoutExpired."""


# (threads, log) -> a worker and our end of its socket. Raises OSError.
Spawn = Callable[[int, Path], tuple[WorkerProcess, socket.socket]]


class Worker:
    """One worker, and those who wait for its answers."""

    def __init__(self, process: WorkerProcess, stream: trio.SocketStream) -> None:
        self.process = process
        self._waiting: dict[int, trio.MemorySendChannel[Message]] = {}
        self.why_lost = ""
        self._stream = stream
        self._unpacker = Unpacker()
        self._sending = trio.Lock()

    async def send(self, message: Message) -> None:
        """A worker that is gone takes nothing; the reader finds out and says so."""
        try:
            async with self._sending:
                await self._stream.send_all(pack(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.process.kill()

    async def carry_out(self, order: int, verb: str, fields: Message, timeout_s: float) -> Message:
        """Its answer to an order. Raises TrainerFailed; who overruns is killed."""
        send, receive = trio.open_memory_channel[Message](1)
        self._waiting[order] = send
        try:
            await self.send({"order": order, "verb": verb, **fields})
            with trio.move_on_after(timeout_s):
                message = await receive.receive()
                if "failed" in message:
                    raise TrainerFailed(f"{verb}: {message['why']}")
                return message
            self.kill(f"{verb} took more than {timeout_s:g} s")
            raise TrainerFailed(self.why_lost)
        except trio.EndOfChannel:
            raise TrainerFailed(f"{verb}: {self.why_lost}") from None
        except trio.Cancelled:
            # Nobody waits for it now: the next order must not queue behind it.
            with trio.CancelScope(shield=True), trio.move_on_after(LAST_LOOK_S):
                await self.send({"cancel": order})
            raise
        finally:
            self._waiting.pop(order, None)

    async def _receive(self) -> list[Message]:
        """At least one message; none at the end of the stream."""
        while True:
            try:
                received = await self._stream.receive_some(RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return []
            if not received:
                return []
            if messages := self._unpacker.feed(bytes(received)):
                return messages

    async def until_ready(self, timeout_s: float) -> Message | None:
        """What it says of itself; None if it was lost. Raises UserError if it refuses its job."""
        with trio.move_on_after(timeout_s):
            while messages := await self._receive():
                for message in messages:
                    if "refused" in message:
                        raise UserError(message["refused"])
                    if "ready" in message:
                        ready: Message = message["ready"]
                        return ready
            return None
        self.kill(f"not ready within {timeout_s:g} s. {SLOW_START}")
        return None

    async def serve_until_lost(
        self, heartbeat_timeout_s: float, on_unsaved: Callable[[str], None]
    ) -> None:
        """Hands answers to those who wait. Returns when the worker is lost."""
        while messages := await self._receive_in_time(heartbeat_timeout_s):
            for message in messages:
                if "unsaved" in message:
                    on_unsaved(message["unsaved"])
                order = message.get("done", message.get("failed"))
                if order is not None and (waiting := self._waiting.pop(order, None)) is not None:
                    waiting.send_nowait(message)

    async def _receive_in_time(self, heartbeat_timeout_s: float) -> list[Message]:
        """The next messages; none from a worker that is gone, suspended or silent for too long."""
        silent_s, suspended_looks = 0.0, 0
        while silent_s < heartbeat_timeout_s:
            look_s = min(LOOK_S, heartbeat_timeout_s - silent_s)
            with trio.move_on_after(look_s):
                return await self._receive()
            silent_s += look_s
            suspended_looks = suspended_looks + 1 if _is_suspended(self.process.pid) else 0
            if suspended_looks == SUSPENDED_LOOKS:
                self.kill(f"suspended, and silent for {silent_s:g} s")
                return []
        with trio.move_on_after(LAST_LOOK_S):
            return await self._receive()
        self.kill(f"no heartbeat for {heartbeat_timeout_s:g} s: hung or suspended")
        return []

    def kill(self, why: str) -> None:
        """The reader then meets the end of the stream."""
        self.why_lost = self.why_lost or why
        self.process.kill()

    async def end(self, log_path: Path, longer_s: float = 0.0) -> str:
        """Hangs up, waits until the process is gone; returns, and tells those who wait, why it is.

        A worker that is not at work saves its state first; one that takes too long is killed.
        """
        with trio.CancelScope(shield=True):
            await self._stream.aclose()
            # In a thread, since waiting blocks; a killed process ends within milliseconds.
            returncode = await trio.to_thread.run_sync(self._wait, ENDING_S + longer_s)
        if not self.why_lost:
            self.why_lost = f"the worker ended: {how_ended(returncode)}{_last_words(log_path)}"
        for waiting in self._waiting.values():
            waiting.close()
        return self.why_lost

    def _wait(self, timeout_s: float) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def interpreter_of(module: str, threads: int) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a fresh interpreter that runs a module of ours.

    It imports nothing from the directory that it is started in.
    """
    package_root = str(Path(daa_node.__file__).resolve().parents[1])
    search_path = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(search_path),
        "OMP_NUM_THREADS": str(threads),
        **ALLOCATION,
    }
    return [sys.executable, "-P", "-m", module], environment


def spawn_interpreter(
    threads: int, log_path: Path, module: str = WORKER_MODULE
) -> tuple[WorkerProcess, socket.socket]:
    """A fresh interpreter."""
    ours, theirs = socket.socketpair()
    command, environment = interpreter_of(module, threads)
    # Popen and not trio's own: the kernel's death signal follows the thread that forked, and
    # trio forks in a pool thread that ends when idle. It blocks for some milliseconds.
    try:
        with theirs, log_path.open("wb") as log:
            process = subprocess.Popen(
                [*command, "--fd", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=environment,
            )
    except OSError:
        ours.close()
        raise
    return process, ours


def spawn_light(threads: int, log_path: Path) -> tuple[WorkerProcess, socket.socket]:
    """A fresh interpreter, of a worker that never trains."""
    return spawn_interpreter(threads, log_path, LIGHT_WORKER_MODULE)


def _last_words(log_path: Path) -> str:
    try:
        tail = log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        return ""
    return f"; it said: {tail}" if tail else ""


def _is_suspended(pid: int) -> bool:
    """Whether the process was stopped by a signal, where the system tells."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False  # no such file system, or the process is gone: its stream tells
    return stat.rpartition(") ")[2].startswith("T")
