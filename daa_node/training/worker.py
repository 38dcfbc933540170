"""The worker process: `python -m daa_node.training.worker --fd N`, started by its daemon alone.

One thread carries out orders, one reads the socket, one sends heartbeats. Between orders it takes
steps of the next round, where the job has it train on. What a restart needs of
the optimiser is saved while nobody waits: after a short idleness, before the next training, or at
the end. It dies with its daemon: the socket's end stops it, at once if it is at work, and on Linux
the kernel kills it even while it is suspended. It ignores SIGINT and SIGTERM, which a terminal or a
supervisor sends to the whole group: the daemon decides when a round may end.
"""

import argparse
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter, sleep

import numpy as np
import torch

from daa_dag.chunking import Manifest, cut, manifest_of
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.errors import NodeError, TrainerFailed, UserError
from daa_node.seams import SegmentOrder, StateRef, TrainOrder
from daa_node.tensors import (
    Int32Array,
    UInt8Array,
    grid_sizes_bytes,
    open_grid_vector,
    reuse_grid_vector,
)
from daa_node.training import inner_state
from daa_node.training.base_files import Marks, check_unchanged, marks_of
from daa_node.training.boundaries import Boundary, Ends, open_boundary
from daa_node.training.boundary_files import BoundaryFiles, left_in
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.core import Core, choose_device, multiply_in_full, open_core
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.messages import HEARTBEAT_S, RECEIVE_BYTES, Message, Unpacker, pack
from daa_node.training.module_source import ModuleAccess
from daa_node.training.parent_death import die_with
from daa_node.training.segment_check import Claim, ClaimedSeal
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.outer_step import (
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
    apply_delta,
)
from daa_node.updates.torch_kernels import TorchKernels

ORDERS_MAX = 64  # the daemon sends one at a time; cancelled ones may wait behind a long one
# The aggregation of a round that closes soon must not wait for the disk.
SAVE_AFTER_IDLE_S = 2.0
END = "end"  # the reader's own order: the daemon has hung up
BASE_CHANGED = 65  # an exit code: EX_DATAERR

# What an order can die of without the process being in doubt: the daemon is told and goes on.
# Anything else is a bug of ours, ends the process, and the daemon starts another.
EXPECTED_FAULTS = (NodeError, DagError, OSError, ValueError, RuntimeError, MemoryError)
WHY_CHARS_MAX = 2000

OpenCore = Callable[[TrainingJob, torch.device, Path, ModuleAccess, Path | None], Core]


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


class Worker:
    """Carries out orders, one after another."""

    def __init__(self, core: Core, job: TrainingJob, state_path: Path, inbox: Inbox) -> None:
        self._core = core
        self._job = job
        self._state_path = state_path
        self._inbox = inbox
        self.unsaved = False  # whether a restart would lose what the optimiser learnt since
        self.marks: Marks = {}  # of the model's base, as it was opened
        self._boundaries: BoundaryFiles | None = None  # of the update sealed last, if it has any
        self._ends: Ends = {}
        self._parameter_count = job.model.parameter_count()
        self._chunks = cut(grid_sizes_bytes(job.model.tensors()))
        self._rates = OuterRates(job.updates.outer_lr, job.updates.outer_momentum)
        self._delta_format = job.updates.delta_format
        # The same bits either way; on a CPU numpy is the faster one.
        on_gpu = core.device.type == "cuda"
        self.device = core.device
        self._merge = TorchKernels(core.device).aggregate_and_step if on_gpu else aggregate_and_step

    def restore(self) -> str:
        """Take the optimiser up where the last worker left it; says in words whether it could."""
        try:
            state = inner_state.load(self._state_path, self._job.digest(), self._parameter_count)
        except inner_state.StateLost as lost:
            self._core.forget()
            return f"lost, starts afresh: {lost}"
        if state is None:
            self._core.forget()
            return "fresh"
        self._core.set_inner_state(state)
        return f"resumed after {state.adam_steps} steps"

    def save(self) -> None:
        self.unsaved = False  # even if it fails: a full disk is tried again after the next training
        inner_state.save(self._state_path, self._job.digest(), self._core.inner_state(), self._ends)

    def carry_out(self, order: Message) -> Message:
        """The answer's fields. Raises EXPECTED_FAULTS."""
        match order["verb"]:
            case "initial_state":
                return self._initial_state(order)
            case "train_and_seal":
                return self._train_and_seal(order)
            case "keep_boundaries":
                return self._boundaries_of(Path(order["room"]), order["count"])
            case "check_segment":
                return self._check_segment(order)
            case "open_segment":
                return self._open_segment(order)
            case "canary":
                taken = self._core.canary(order["step"], self._inbox.is_cancelled)
                return {"canary": asdict(taken)}
            case "aggregate_and_step":
                return self._aggregate_and_step(order)
            case "apply_delta":
                return self._apply_delta(order)
            case "evaluate":
                return {"loss_nats": self._core.evaluate(self._open(order["model"]))}
            case verb:
                raise TrainerFailed(f"no verb {verb!r}")

    def _initial_state(self, order: Message) -> Message:
        out = self._state_to_fill(order)
        genesis_weights(self._job.model, self._job.seed, out.weights_D)
        out.momentum_D[:] = 0
        return self._state_manifests(out)

    def _train_and_seal(self, order: Message) -> Message:
        train = order["train"]
        train_order = TrainOrder(
            base=StateRef(BlobRoot(train["model_root"]), BlobRoot(train["outer_root"])),
            seed=Digest(train["seed"]),
            round=train["round"],
            author=NodeId(train["author"]),
            steps_max=train["steps_max"],
            stop_after_s=train["stop_after_s"],
            codec=train["codec"],
            first_step=train["first_step"],
            merged_round=train["merged_round"],
            segment_steps=train["segment_steps"],
        )
        self.unsaved, self._boundaries = True, None
        boundaries = BoundaryFiles(Path(order["boundaries_out"]), self._ends)
        sealed = self._core.train_and_seal(
            train_order, self._open(order["model"]), self._inbox.is_cancelled, boundaries.add
        )
        trained = sealed.trained
        _write(Path(order["sealed_out"]), sealed.blob)
        manifest = self._blob_manifest(sealed.blob).encode()
        if train_order.segment_steps:
            boundaries.end_with(sealed.end)
            self._boundaries = boundaries
        return {
            "manifest": manifest,
            "seal_s": perf_counter() - sealed.trained_at_s,
            "steps": trained.steps,
            "tokens": trained.tokens,
            "us_per_step": trained.us_per_step,
            "loss_nats": trained.loss_nats,
            "snapshot_roots": [boundary.root for boundary in boundaries.manifests],
        }

    def train_on(self) -> bool:
        """A step of the next round; False if none is left, or one failed: the order will tell."""
        try:
            return self._core.train_on()
        except EXPECTED_FAULTS:
            self._core.set_ahead(None)
            return False

    def finish(self) -> None:
        """What an order leaves to do when its answer is out. Raises OSError."""
        boundaries = self._boundaries
        if boundaries is not None and boundaries.is_last_due:
            try:
                boundaries.write_last()
            except OSError:
                self._boundaries = None
                raise

    def _boundaries_of(self, room: Path, count: int) -> Message:
        """Those of an earlier worker's are hashed again."""
        boundaries = self._boundaries
        if boundaries is None or not boundaries.is_in(room):
            return {"manifests": left_in(room, count, lambda path: self._boundary(str(path)))}
        return {"manifests": [boundary.encode() for boundary in boundaries.manifests]}

    def _check_segment(self, order: Message) -> Message:
        update, sealed = order["update"], None
        if update is not None:
            base_D = None if update["model"] is None else self._open(update["model"])
            last, blob = self._boundary(update["last"]), _map_blob(update["path"])
            sealed = ClaimedSeal(base_D, last, blob, update["codec"])
        start, end = self._boundary(order["start"]), self._boundary(order["end"])
        origin = None if order["origin"] is None else self._boundary(order["origin"])
        claim = Claim(start, end, sealed, origin)
        segment = SegmentOrder(**order["segment"])
        found = self._core.check_segment(segment, claim, self._inbox.is_cancelled)
        return {"check": asdict(found)}

    def _open_segment(self, order: Message) -> Message:
        """States between the ends of a segment, a file each."""
        opened = BoundaryFiles(Path(order["boundaries_out"]))
        start, segment = self._boundary(order["start"]), SegmentOrder(**order["segment"])
        self._core.open_segment(segment, start, opened.add, self._inbox.is_cancelled)
        return {"manifests": [state.encode() for state in opened.manifests]}

    def _boundary(self, path: str) -> Boundary:
        """Mapped, and ours to write: torch takes no array that is read-only."""
        blob = np.memmap(path, np.uint8, "c").view(np.ndarray)
        job, count = self._job, self._parameter_count
        return open_boundary(blob, count, job.updates.error_feedback, job.data.reveal)

    def _aggregate_and_step(self, order: Message) -> Message:
        contributions = [
            Contribution(_map_blob(update["path"]), update["codec"], update["weight"])
            for update in order["updates"]
        ]
        out = self._state_to_fill(order)
        rule = rule_named(order["rule"])
        base, f_agg, coded = self._base(order), order["f_agg"], self._delta_format
        delta = self._merge(base, contributions, rule, f_agg, self._rates, out, coded)
        _write(Path(order["delta_out"]), delta)
        return {"delta": self._blob_manifest(delta).encode(), **self._state_manifests(out)}

    def _blob_manifest(self, blob: UInt8Array) -> Manifest:
        """Of an update or a delta."""
        return manifest_of(blob.data, cut([blob.size], self._job.updates.chunk_bytes))

    def _apply_delta(self, order: Message) -> Message:
        delta = _map_blob(order["delta"])
        self._delta_format.check(delta, self._parameter_count)
        out = self._state_to_fill(order)
        apply_delta(self._base(order), delta, self._rates, out, self._delta_format)
        return self._state_manifests(out)

    def _open(self, path: str) -> Int32Array:
        return open_grid_vector(Path(path), self._parameter_count)

    def _base(self, order: Message) -> OuterState:
        return OuterState(self._open(order["model"]), self._open(order["outer"]))

    def _state_to_fill(self, order: Message) -> OuterState:
        """Every parameter is to be written: the files may be retired ones that hold anything."""
        model_out, outer_out = Path(order["model_out"]), Path(order["outer_out"])
        return OuterState(
            reuse_grid_vector(model_out, self._parameter_count),
            reuse_grid_vector(outer_out, self._parameter_count),
        )

    def _state_manifests(self, state: OuterState) -> Message:
        return {
            "model": manifest_of(state.weights_D.data, self._chunks).encode(),
            "outer": manifest_of(state.momentum_D.data, self._chunks).encode(),
        }


def main() -> None:
    """Serves until the daemon closes the socket."""
    arguments = argparse.ArgumentParser(prog="daa_node.training.worker")
    arguments.add_argument("--fd", type=int, required=True, help="our end of the daemon's socket")
    serve(arguments.parse_args().fd)


def open_measured(
    job: TrainingJob,
    device: torch.device,
    cache_dir: Path,
    modules: ModuleAccess,
    memories: Path | None,
) -> Core:
    """A Core whose inner steps are measured by the host's clock. Raises UserError."""
    return open_core(job, device, cache_dir, perf_counter, modules, memories=memories)


def serve(fd: int, parent_pid: int | None = None, open_: OpenCore = open_measured) -> None:
    """The whole life of a worker.

    `parent_pid` is whose death is ours, if not the daemon's; `open_` makes what trains.
    """
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
        worker = _open_worker(job, config, Path(start["directory"]), inbox, open_)
        restored = worker.restore()
    except UserError as refused:
        line.send({"refused": str(refused)})
        return
    device = " + ".join(config.devices) or str(worker.device)
    ready = {"pid": os.getpid(), "device": device, "inner_state": restored}
    line.send({"ready": ready})
    threading.Thread(target=_beat, args=(line,), daemon=True).start()
    while True:
        _serve(worker, inbox, line)


def _open_worker(
    job: TrainingJob,
    config: TrainerConfig,
    directory: Path,
    inbox: Inbox,
    open_: OpenCore,
) -> Worker:
    os.nice(config.niceness)
    torch.set_num_threads(config.threads)
    multiply_in_full()
    cache_dir, access = directory / "cache", ModuleAccess.of(config)
    memories = directory if config.optimiser_in == "files" else None
    marks = marks_of(job.model.base)  # before it is read
    if config.devices:
        # by itself as long to import as half of torch, and few hosts have a site
        from daa_node.training.site.engine import open_site

        site = open_site(job, config, directory)
        core = open_core(job, site.device, cache_dir, perf_counter, access, site, memories)
    else:
        core = open_(job, choose_device(config.device), cache_dir, access, memories)
    worker = Worker(core, job, directory / "inner_state", inbox)
    worker.marks = marks
    return worker


def next_order(worker: Worker, inbox: Inbox, save: Callable[[], None]) -> Message:
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


def _serve(worker: Worker, inbox: Inbox, line: Line) -> None:
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


def _save(worker: Worker, line: Line) -> None:
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


def _map_blob(path: str) -> UInt8Array:
    return np.memmap(path, np.uint8, "r").view(np.ndarray)


def _write(path: Path, blob: UInt8Array) -> None:
    """Into a fresh file, or over a retired one."""
    with path.open("r+b" if path.exists() else "xb") as file:
        file.write(blob.data)
        file.truncate()


if __name__ == "__main__":
    main()
