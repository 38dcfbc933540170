"""How a worker process lives: it takes orders from its daemon's socket, and ends with its daemon.

One thread carries out orders, one reads the socket, one sends heartbeats. Between orders it takes
steps of the next round, where the job has it train on. What a restart needs is saved while nobody
waits: after a short idleness, before the next training, or at the end. It dies with its daemon: the
socket's end stops it, at once if it is at work, and on Linux the kernel kills it even while it is
suspended. It ignores SIGINT and SIGTERM, which a terminal or a supervisor sends to the whole group:
the daemon decides when a round may end. What it does with numbers is an OrderTaker's.
"""

import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

from daa_dag.errors import DagError
from daa_node.errors import NodeError, TrainerFailed, UserError
from daa_node.training.base_files import Marks, check_unchanged
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.messages import HEARTBEAT_S, RECEIVE_BYTES, Message, Unpacker, pack
from daa_node.training.parent_death import die_with

ORDERS_MAX = 64  # the daemon sends one at a time; cancelled ones may wait behind a long one
# The aggregation of a round that closes soon must not wait for the disk.
SAVE_AFTER_IDLE_S = 2.0
END = "end"  # the reader's own order: the daemon has hung up
BASE_CHANGED = 65  # an exit code: EX_DATAERR

# What an order can die of without the process being in doubt: the daemon is told and goes on.
# Anything else is a bug of ours, ends the process, and the daemon starts another.
EXPECTED_FAULTS = (NodeError, DagError, OSError, ValueError, RuntimeError, MemoryError)
WHY_CHARS_MAX = 2000


class Line:
    """The socket to the daemon; any thread may send."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unpacker = Unpacker()
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        frame = pack(message)
        try:
            with self._lock:
                self._connection.sendall(frame)
        except OSError:
            pass  # the daemon is gone: the reader finds out, and decides how we end

    def receive(self) -> list[Message]:
        """At least one message; none when the daemon has closed its end."""
        while True:
            try:
                received = self._connection.recv(RECEIVE_BYTES)
            except OSError:
                received = b""
            if not received:
                return []
            if messages := self._unpacker.feed(received):
                return messages


class Inbox:
    """Orders waiting for the main thread, and which of them nobody waits for any more."""

    def __init__(self) -> None:
        self.orders: queue.Queue[Message] = queue.Queue(ORDERS_MAX)
        self._current: int | None = None
        self._cancelled: set[int] = set()
        self._lock = threading.Lock()

    @property
    def at_work(self) -> bool:
        with self._lock:
            return self._current is not None

    def begin(self, order: int) -> None:
        with self._lock:
            self._current = order
            # Ids grow: a cancellation that came after its order was done means nothing now.
            self._cancelled = {late for late in self._cancelled if late >= order}

    def cancel(self, order: int) -> None:
        with self._lock:
            self._cancelled.add(order)

    def is_cancelled(self) -> bool:
        with self._lock:
            return self._current in self._cancelled

    def end(self) -> None:
        with self._lock:
            self._current = None


class OrderTaker(Protocol):
    """Carries out orders, one after another."""

    unsaved: bool  # whether a restart would lose what was learnt since
    marks: Marks  # of the model's base, as it was opened

    @property
    def told_device(self) -> str:
        """What it computes on, in words."""

    def restore(self) -> str:
        """Take up what the last worker left; says in words whether it could."""

    def save(self) -> None:
        """Raises OSError."""

    def carry_out(self, order: Message) -> Message:
        """The answer's fields. Raises EXPECTED_FAULTS."""

    def train_on(self) -> bool:
        """A step of the next round; False if none is left."""

    def finish(self) -> None:
        """What an order leaves to do when its answer is out. Raises OSError."""


# (job, settings, the worker's own directory, inbox) -> what takes orders. Raises UserError.
OpenWorker = Callable[[TrainingJob, TrainerConfig, Path, Inbox], OrderTaker]


def serve(fd: int, open_worker: OpenWorker, parent_pid: int | None = None) -> None:
    """The whole life of a worker. `parent_pid` is whose death is ours, if not the daemon's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    line = Line(socket.socket(fileno=fd))
    messages = line.receive()
    if not messages:
        return
    start = messages[0]["start"]
    die_with(start["daemon_pid"] if parent_pid is None else parent_pid)
    inbox = Inbox()
    threading.Thread(target=_read, args=(line, inbox), daemon=True).start()
    try:
        job = TrainingJob.model_validate_json(start["job"])
        config = TrainerConfig.model_validate_json(start["trainer"])
        worker = open_worker(job, config, Path(start["directory"]), inbox)
        restored = worker.restore()
    except UserError as refused:
        line.send({"refused": str(refused)})
        return
    ready = {"pid": os.getpid(), "device": worker.told_device, "inner_state": restored}
    line.send({"ready": ready})
    threading.Thread(target=_beat, args=(line,), daemon=True).start()
    while True:
        _serve_one(worker, inbox, line)


def next_order(worker: OrderTaker, inbox: Inbox, save: Callable[[], None]) -> Message:
    """Steps are taken and what is unsaved is saved until one comes."""
    began_s = monotonic()
    while True:
        waited_s = monotonic() - began_s
        steps_on = inbox.orders.empty() and worker.train_on()
        if worker.unsaved and waited_s > SAVE_AFTER_IDLE_S:
            save()
        try:
            if steps_on:
                return inbox.orders.get_nowait()
            return inbox.orders.get(timeout=SAVE_AFTER_IDLE_S if worker.unsaved else None)
        except queue.Empty:
            if not steps_on:
                save()


def _serve_one(worker: OrderTaker, inbox: Inbox, line: Line) -> None:
    message = next_order(worker, inbox, partial(_save, worker, line))
    if worker.unsaved and message["verb"] in ("train_and_seal", END):
        _save(worker, line)
    if message["verb"] == END:
        os._exit(0)
    order = message["order"]
    inbox.begin(order)
    try:
        if inbox.is_cancelled():
            raise TrainerFailed("cancelled before it began")
        answer = {"done": order, **worker.carry_out(message)}
        _end_if_changed(worker.marks)
    except EXPECTED_FAULTS as fault:
        answer = {"failed": order, "why": f"{type(fault).__name__}: {fault}"[:WHY_CHARS_MAX]}
    inbox.end()
    line.send(answer)
    try:
        worker.finish()
    except OSError as fault:
        line.send({"unsaved": f"the inner state that the newest update ends in: {fault}"})


def _end_if_changed(marks: Marks) -> None:
    """Nothing that comes of another base leaves us. Whoever starts next compares its digests."""
    try:
        check_unchanged(marks)
    except UserError as fault:
        sys.stderr.write(f"{fault}\n")
        sys.stderr.flush()
        os._exit(BASE_CHANGED)


def _save(worker: OrderTaker, line: Line) -> None:
    try:
        worker.save()
    except OSError as fault:
        line.send({"unsaved": f"the inner optimiser's state: {fault}"})


def _read(line: Line, inbox: Inbox) -> None:
    while messages := line.receive():
        for message in messages:
            if "cancel" in message:
                inbox.cancel(message["cancel"])
            else:
                inbox.orders.put(message)
    if inbox.at_work:
        os._exit(0)  # nobody wants its result any more
    inbox.orders.put({"verb": END})


def _beat(line: Line) -> None:
    while True:
        line.send({"beat": os.getpid()})
        sleep(HEARTBEAT_S)
