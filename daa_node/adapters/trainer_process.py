"""The Trainer seam over a supervised worker process; the daemon itself never imports torch.

The worker is started, watched and, when it dies, falls silent or overruns, killed and started anew
after a pause that doubles. Whoever waits for it then gets TrainerFailed; the next order finds the
new one. Parameters cross as files: the worker maps a state's blob where the store keeps it, writes
what it makes into a directory of its own for each order, and the store takes finished files in by
renaming them.

    STARTING --ready--> SERVING --end of stream, silence, overrun--> LOST --pause--> STARTING
        +----refused: what is configured cannot be trained; run() raises UserError
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import trio

import daa_node
from daa_dag.chunking import Manifest, decode_manifest
from daa_dag.ids import BlobRoot, Digest
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.errors import PeerFault, StorageFailed, TrainerFailed, UserError
from daa_node.observability.events import (
    TRAINER_LOST,
    TRAINER_STARTED,
    TRAINER_UNSAVED,
    EventLog,
    EventName,
)
from daa_node.seams import AggregateOrder, SealedUpdate, StateRef, SteppedState, TrainOrder
from daa_node.tensors import GRID_ITEM_BYTES
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.messages import RECEIVE_BYTES, Message, Unpacker, pack
from daa_node.updates.compression.codec import codec_named
from daa_node.updates.outer_step import DELTA_CODEC

RESTART_PAUSE_S_MIN, RESTART_PAUSE_S_MAX = 0.25, 30.0
# A daemon that was itself suspended finds every deadline passed and the beats still unread.
LAST_LOOK_S = 0.5
# Whoever is suspended sends no beats; that can be seen long before the silence tells. Three looks:
# when a whole group of processes is continued, the daemon may run a little before its worker.
LOOK_S, SUSPENDED_LOOKS = 0.5, 3
# What an orderly end may take: the worker saves its optimiser's state, 1 s a GB.
ENDING_S = 5.0
# Memory that a step frees is not handed back to the kernel, only to be asked for again by the next
# one (measured: 135 instead of 18 ms for one pass over 10M parameters). glibc reads these.
ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2**27)}
LOG_TAIL_BYTES = 1000  # of the worker's standard error, in the event that says why it was lost
STATES, UPDATES = "states", "updates"
WORKER_MODULE = "daa_node.training.worker"  # named, not imported: it imports torch


class WorkerProcess(Protocol):
    """As much of a process as its supervisor needs."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises subprocess.TimeoutExpired."""


# (threads, log) -> a worker and our end of its socket. Raises OSError.
Spawn = Callable[[int, Path], tuple[WorkerProcess, socket.socket]]


class _Life:
    """One worker process from its start to its end."""

    def __init__(self, process: WorkerProcess, stream: trio.SocketStream) -> None:
        self.process = process
        self.waiting: dict[int, trio.MemorySendChannel[Message]] = {}
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

    async def receive(self) -> list[Message]:
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
            while messages := await self.receive():
                for message in messages:
                    if "refused" in message:
                        raise UserError(message["refused"])
                    if "ready" in message:
                        ready: Message = message["ready"]
                        return ready
            return None
        self.kill(f"not ready within {timeout_s:g} s")
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
                if order is not None and (waiting := self.waiting.pop(order, None)) is not None:
                    waiting.send_nowait(message)

    async def _receive_in_time(self, heartbeat_timeout_s: float) -> list[Message]:
        """The next messages; none from a worker that is gone, suspended or silent for too long."""
        silent_s, suspended_looks = 0.0, 0
        while silent_s < heartbeat_timeout_s:
            look_s = min(LOOK_S, heartbeat_timeout_s - silent_s)
            with trio.move_on_after(look_s):
                return await self.receive()
            silent_s += look_s
            suspended_looks = suspended_looks + 1 if _is_suspended(self.process.pid) else 0
            if suspended_looks == SUSPENDED_LOOKS:
                self.kill(f"suspended, and silent for {silent_s:g} s")
                return []
        with trio.move_on_after(LAST_LOOK_S):
            return await self.receive()
        self.kill(f"no heartbeat for {heartbeat_timeout_s:g} s: hung or suspended")
        return []

    def kill(self, why: str) -> None:
        """The reader then meets the end of the stream."""
        self.why_lost = self.why_lost or why
        self.process.kill()

    async def end(self, log_path: Path) -> str:
        """Hangs up, waits until the process is gone; returns, and tells those who wait, why it is.

        A worker that is not at work saves its state first; one that takes too long is killed.
        """
        with trio.CancelScope(shield=True):
            await self._stream.aclose()
            # In a thread, since waiting blocks; a killed process ends within milliseconds.
            returncode = await trio.to_thread.run_sync(self._wait)
        if not self.why_lost:
            self.why_lost = f"the worker ended: {_in_words(returncode)}{_last_words(log_path)}"
        for waiting in self.waiting.values():
            waiting.close()
        return self.why_lost

    def _wait(self) -> int:
        try:
            return self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class TrainerProcess:
    """A Trainer. `run` must be running in a nursery of the caller's while verbs are awaited."""

    def __init__(
        self,
        job: TrainingJob,
        config: TrainerConfig,
        store: DiskBlobStore,
        directory: Path,
        events: EventLog | None = None,
        spawn: Spawn | None = None,
    ) -> None:
        """`store` holds the states and updates; `directory` is ours alone, on its file system.

        `spawn` None starts a fresh interpreter for each worker.
        """
        self._job = job
        self._parameter_count = job.model.parameter_count()
        state_bytes = self._parameter_count * GRID_ITEM_BYTES
        self._state_sizes_bytes = {"model": state_bytes, "outer": state_bytes}
        self._config = config
        self._store = store
        self._directory = directory
        self._orders_directory = directory / "orders"
        self._log_path = directory / "worker.log"
        self._events = events
        self._spawn = spawn or _spawn
        self._life: _Life | None = None
        self._ready: trio.Event = trio.Event()
        self._turn = trio.StrictFIFOLock()
        self._order_count = 0
        self._outputs_count = 0
        self._restarts = 0
        self._inner_state = "unknown"

    @property
    def pid(self) -> int | None:
        """The worker's process id while it is ready for orders."""
        return self._life.process.pid if self._life is not None else None

    @property
    def restarts(self) -> int:
        """How many workers were lost since run() began."""
        return self._restarts

    @property
    def inner_state(self) -> str:
        """What the newest worker found of its optimiser's state: fresh, resumed ..., or lost ..."""
        return self._inner_state

    # The verbs

    async def initial_state(self) -> StateRef:
        async with self._outputs() as out:
            done = await self._order("initial_state", _state_outs(out))
            return await self._adopt_state(done, out)

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        try:
            size_bytes = codec_named(order.codec).encoded_size_bytes(self._parameter_count)
        except PeerFault as fault:
            raise TrainerFailed(f"order of round {order.round}: {fault.detail}") from None
        ordered_s = trio.current_time()
        await self._ready_life()
        # A worker that was still starting has as much less time: the round goes on without it.
        stop_after_s = max(0.0, order.stop_after_s - (trio.current_time() - ordered_s))
        async with self._outputs(sealed=size_bytes) as out:
            fields = {
                "model": self._blob(STATES, order.base.model_root),
                "sealed_out": str(out / "sealed"),
                "train": {
                    "model_root": order.base.model_root,
                    "outer_root": order.base.outer_root,
                    "seed": order.seed,
                    "round": order.round,
                    "author": order.author,
                    "steps_max": order.steps_max,
                    "stop_after_s": stop_after_s,
                    "codec": order.codec,
                    "first_step": order.first_step,
                    "merged_round": order.merged_round,
                },
            }
            done = await self._order("train_and_seal", fields, stop_after_s)
            answered_s = trio.current_time()
            manifest = await self._adopt(UPDATES, done["manifest"], out / "sealed")
        return SealedUpdate(
            blob_root=manifest.root,
            size_bytes=manifest.size_bytes,
            codec=order.codec,
            steps=done["steps"],
            tokens=done["tokens"],
            us_per_step=done["us_per_step"],
            loss_nats=done["loss_nats"],
            snapshot_roots=tuple(Digest(root) for root in done["snapshot_roots"]),
            seal_s=done["seal_s"] + trio.current_time() - answered_s,
        )

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState:
        size_bytes = DELTA_CODEC.encoded_size_bytes(self._parameter_count)
        async with self._outputs(delta=size_bytes, **self._state_sizes_bytes) as out:
            updates = [
                {
                    "path": self._blob(UPDATES, update.blob_root),
                    "codec": update.codec,
                    "weight": update.weight,
                }
                for update in order.updates
            ]
            fields = {
                **self._base(order.base),
                "updates": updates,
                "rule": order.rule,
                "f_agg": order.f_agg,
                "delta_out": str(out / "delta"),
                **_state_outs(out),
            }
            done = await self._order("aggregate_and_step", fields)
            # The delta first: a state that is there implies the delta that made it.
            delta = await self._adopt(UPDATES, done["delta"], out / "delta")
            return SteppedState(await self._adopt_state(done, out), delta.root)

    async def apply_delta(self, base: StateRef, delta_root: BlobRoot) -> StateRef:
        async with self._outputs(**self._state_sizes_bytes) as out:
            delta = {"delta": self._blob(UPDATES, delta_root)}
            fields = {**self._base(base), **delta, **_state_outs(out)}
            return await self._adopt_state(await self._order("apply_delta", fields), out)

    async def evaluate(self, state: StateRef) -> float:
        done = await self._order("evaluate", {"model": self._blob(STATES, state.model_root)})
        return float(done["loss_nats"])

    # Supervision

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps a worker alive until cancelled. Raises UserError when it refuses its job."""
        shutil.rmtree(self._orders_directory, ignore_errors=True)
        try:
            self._orders_directory.mkdir(parents=True)
        except OSError as fault:
            raise StorageFailed(f"{self._orders_directory}: {fault.strerror}") from fault
        task_status.started()
        pause_s = RESTART_PAUSE_S_MIN
        while True:
            orders_before = self._order_count
            await self._live_once()
            self._restarts += 1
            served = self._order_count > orders_before
            pause_s = RESTART_PAUSE_S_MIN if served else min(pause_s * 2, RESTART_PAUSE_S_MAX)
            await trio.sleep(pause_s)

    async def _live_once(self) -> None:
        try:
            process, ours = self._spawn(self._config.threads, self._log_path)
        except OSError as fault:  # no memory, no descriptors, a full disk: it may pass
            self._emit(TRAINER_LOST, why=f"cannot start the worker: {fault}")
            return
        ours.setblocking(False)
        life = _Life(process, trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
        try:
            start = {
                "daemon_pid": os.getpid(),
                "job": self._job.model_dump_json(),
                "trainer": self._config.model_dump_json(),
                "directory": str(self._directory),
            }
            await life.send({"start": start})
            ready = await life.until_ready(self._config.start_timeout_s)
            if ready is not None:
                self._inner_state = ready["inner_state"]
                self._emit(TRAINER_STARTED, **ready)
                self._life = life
                self._ready.set()
                await life.serve_until_lost(
                    self._config.heartbeat_timeout_s,
                    lambda why: self._emit(TRAINER_UNSAVED, why=why),
                )
        finally:
            self._retire(life)
            why = await life.end(self._log_path)
        self._emit(TRAINER_LOST, why=why)

    # One order

    async def _order(self, verb: str, fields: Message, stop_after_s: float = 0.0) -> Message:
        timeout_s = stop_after_s + self._config.order_timeout_s
        async with self._turn:
            life = await self._ready_life()
            self._order_count += 1
            order = self._order_count
            send, receive = trio.open_memory_channel[Message](1)
            life.waiting[order] = send
            try:
                await life.send({"order": order, "verb": verb, **fields})
                with trio.move_on_after(timeout_s):
                    message = await receive.receive()
                    if "failed" in message:
                        raise TrainerFailed(f"{verb}: {message['why']}")
                    return message
                life.kill(f"{verb} took more than {timeout_s:g} s")
                self._retire(life)  # at once: the next order must not go to the dying one
                raise TrainerFailed(life.why_lost)
            except trio.EndOfChannel:
                raise TrainerFailed(f"{verb}: {life.why_lost}") from None
            except trio.Cancelled:
                # Nobody waits for it now: the next order must not queue behind it.
                with trio.CancelScope(shield=True), trio.move_on_after(LAST_LOOK_S):
                    await life.send({"cancel": order})
                raise
            finally:
                life.waiting.pop(order, None)

    def _retire(self, life: _Life) -> None:
        if self._life is life:
            self._life, self._ready = None, trio.Event()

    async def _ready_life(self) -> _Life:
        with trio.move_on_after(self._config.start_timeout_s):
            while self._life is None:
                await self._ready.wait()
            return self._life
        raise TrainerFailed(f"no worker within {self._config.start_timeout_s} s")

    @asynccontextmanager
    async def _outputs(self, **sizes_bytes: int) -> AsyncIterator[Path]:
        """A directory for one order; what the worker still writes once it is gone must fail.

        Where the store has a spare of the size that an output will have, it lies there already.
        """
        self._outputs_count += 1
        out = self._orders_directory / str(self._outputs_count)
        try:
            out.mkdir()
            for name, size_bytes in sizes_bytes.items():
                self._store.directory.spares.take(size_bytes, out / name)
        except OSError as fault:
            raise StorageFailed(f"cannot make {out}: {fault.strerror}") from fault
        try:
            yield out
        finally:
            shutil.rmtree(out, ignore_errors=True)

    def _blob(self, kind: str, root: BlobRoot) -> str:
        path = self._store.directory.path_of(kind, root)
        if not path.is_file():
            raise TrainerFailed(f"{kind}/{root.hex()} is not in the store")
        return str(path)

    def _base(self, base: StateRef) -> Message:
        return {
            "model": self._blob(STATES, base.model_root),
            "outer": self._blob(STATES, base.outer_root),
        }

    async def _adopt(self, kind: str, encoded: bytes, path: Path) -> Manifest:
        manifest = decode_manifest(encoded)
        await self._store.adopt_file(kind, path, manifest)
        return manifest

    async def _adopt_state(self, done: Message, out: Path) -> StateRef:
        model = await self._adopt(STATES, done["model"], out / "model")
        outer = await self._adopt(STATES, done["outer"], out / "outer")
        return StateRef(model.root, outer.root)

    def _emit(self, name: EventName, **fields: object) -> None:
        if self._events is not None:
            self._events.emit(name, **fields)


def _spawn(threads: int, log_path: Path) -> tuple[WorkerProcess, socket.socket]:
    """A fresh interpreter."""
    ours, theirs = socket.socketpair()
    package_root = str(Path(daa_node.__file__).resolve().parents[1])
    search_path = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(search_path),
        "OMP_NUM_THREADS": str(threads),
        **ALLOCATION,
    }
    # Popen and not trio's own: the kernel's death signal follows the thread that forked, and
    # trio forks in a pool thread that ends when idle. It blocks for some milliseconds.
    try:
        with theirs, log_path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", WORKER_MODULE, "--fd", str(theirs.fileno())],
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


def _state_outs(out: Path) -> Message:
    return {"model_out": str(out / "model"), "outer_out": str(out / "outer")}


def _in_words(returncode: int) -> str:
    return f"killed by signal {-returncode}" if returncode < 0 else f"exit code {returncode}"


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
