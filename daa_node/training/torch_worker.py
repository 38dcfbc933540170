"""What the worker that trains does with its orders; how it lives is told there.

Merging is numpy's on a CPU, as in a worker that never trains, and torch's on a GPU: the same bits
either way.
"""

import os
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import perf_counter

import torch

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.errors import TrainerFailed
from daa_node.seams import SegmentOrder, StateRef, TrainOrder
from daa_node.training import inner_state, orders
from daa_node.training.base_files import Marks, marks_of
from daa_node.training.boundaries import Ends
from daa_node.training.boundary_files import BoundaryFiles
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.core import Core, choose_device, multiply_in_full, open_core
from daa_node.training.datasets.files import keeping_what_is_used
from daa_node.training.merging import Merging, write_blob
from daa_node.training.messages import Message
from daa_node.training.module_source import ModuleAccess
from daa_node.training.orders import EXPECTED_FAULTS, Inbox
from daa_node.updates.outer_step import aggregate_and_step
from daa_node.updates.torch_kernels import TorchKernels

OpenCore = Callable[[TrainingJob, torch.device, Path, ModuleAccess, Path | None], Core]


class Worker:
    """Carries out orders, one after another: an OrderTaker."""

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
        # The same bits either way; on a CPU numpy is the faster one.
        on_gpu = core.device.type == "cuda"
        self.told_device = str(core.device)
        merge = TorchKernels(core.device).aggregate_and_step if on_gpu else aggregate_and_step
        self._merging = Merging(job, merge)

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
                return self._merging.initial_state(order)
            case "train_and_seal":
                return self._train_and_seal(order)
            case "keep_boundaries":
                return self._boundaries_of(order)
            case "check_segment":
                segment, claim = SegmentOrder(**order["segment"]), self._merging.claim(order)
                found = self._core.check_segment(segment, claim, self._inbox.is_cancelled)
                return {"check": asdict(found)}
            case "open_segment":
                return self._open_segment(order)
            case "canary":
                taken = self._core.canary(order["step"], self._inbox.is_cancelled)
                return {"canary": asdict(taken)}
            case "aggregate_and_step":
                return self._merging.aggregate_and_step(order)
            case "apply_delta":
                return self._merging.apply_delta(order)
            case "evaluate":
                return {"loss_nats": self._core.evaluate(self._merging.weights(order["model"]))}
            case verb:
                raise TrainerFailed(f"no verb {verb!r}")

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
            ahead_max=train["ahead_max"],
        )
        self.unsaved, self._boundaries = True, None
        boundaries = BoundaryFiles(Path(order["boundaries_out"]), self._ends)
        base_D = self._merging.weights(order["model"])
        sealed = self._core.train_and_seal(
            train_order, base_D, self._inbox.is_cancelled, boundaries.add
        )
        trained = sealed.trained
        write_blob(Path(order["sealed_out"]), sealed.blob)
        manifest = self._merging.blob_manifest(sealed.blob).encode()
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

    def _boundaries_of(self, order: Message) -> Message:
        """Those of an earlier worker's are hashed again."""
        boundaries = self._boundaries
        if boundaries is None or not boundaries.is_in(Path(order["room"])):
            return self._merging.left_boundaries(order)
        return {"manifests": [boundary.encode() for boundary in boundaries.manifests]}

    def _open_segment(self, order: Message) -> Message:
        """States between the ends of a segment, a file each."""
        opened = BoundaryFiles(Path(order["boundaries_out"]))
        start, segment = self._merging.boundary(order["start"]), SegmentOrder(**order["segment"])
        self._core.open_segment(segment, start, opened.add, self._inbox.is_cancelled)
        return {"manifests": [state.encode() for state in opened.manifests]}


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
    orders.serve(fd, partial(_open_worker, open_), parent_pid)


def _open_worker(
    open_: OpenCore, job: TrainingJob, config: TrainerConfig, directory: Path, inbox: Inbox
) -> Worker:
    os.nice(config.niceness)
    torch.set_num_threads(config.threads)
    multiply_in_full()
    cache_dir = directory / "cache"
    memories = directory if config.optimiser_in == "files" else None
    marks = marks_of(job.model.base)  # before it is read
    with keeping_what_is_used(cache_dir):
        core = _open_core(open_, job, config, directory, memories)
    worker = Worker(core, job, directory / "inner_state", inbox)
    worker.marks = marks
    if config.devices:
        worker.told_device = " + ".join(config.devices)
    return worker


def _open_core(
    open_: OpenCore,
    job: TrainingJob,
    config: TrainerConfig,
    directory: Path,
    memories: Path | None,
) -> Core:
    cache_dir, access = directory / "cache", ModuleAccess.of(config)
    if not config.devices:
        return open_(job, choose_device(config.device), cache_dir, access, memories)
    # by itself as long to import as half of torch, and few hosts have a site
    from daa_node.training.site.engine import open_site

    site = open_site(job, config, directory)
    return open_core(job, site.device, cache_dir, perf_counter, access, site, memories)
