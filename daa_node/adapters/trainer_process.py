"""The Trainer seam over a supervised worker process; the daemon itself never imports torch.

Parameters cross as files: the worker maps a state's blob where the store keeps it, writes what it
makes into a directory of its own for each order, and the store takes finished files in by renaming
them. Who starts the worker, and watches it, is worker_supervisor.
"""

import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path

import trio

from daa_dag.chunking import Manifest, decode_manifest
from daa_dag.ids import BlobRoot, Digest
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.unkept_boundaries import UnkeptBoundaries
from daa_node.adapters.worker_process import Spawn
from daa_node.adapters.worker_supervisor import WorkerSupervisor
from daa_node.errors import PeerFault, StorageFailed, TrainerFailed
from daa_node.observability.events import EventLog
from daa_node.seams import (
    AggregateOrder,
    CanaryStep,
    SealedUpdate,
    SegmentCheck,
    SegmentOrder,
    StateRef,
    SteppedState,
    TrainOrder,
)
from daa_node.tensors import GRID_ITEM_BYTES
from daa_node.training.boundaries import (
    boundary_chunks,
    boundary_steps,
)
from daa_node.training.boundary_files import file_of, file_sizes
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.messages import Message
from daa_node.training.revealed import step_bytes
from daa_node.updates.compression.codec import codec_named

STATES, UPDATES = "states", "updates"


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
        self._parameter_count = job.model.parameter_count()
        state_bytes = self._parameter_count * GRID_ITEM_BYTES
        self._state_sizes_bytes = {"model": state_bytes, "outer": state_bytes}
        # A sparse delta is smaller: no spare has this size, and it lies in a fresh file.
        self._delta_bytes_max = job.updates.delta_format.size_bytes_max(self._parameter_count)
        error_feedback = job.updates.error_feedback
        self._step_bytes = step_bytes(job.data, job.model, job.inner.batch_size)
        self._boundary_bytes = sum(boundary_chunks(self._parameter_count, error_feedback))
        self._store = store
        self._orders_directory = directory / "orders"
        self._unkept = UnkeptBoundaries(directory / "unkept", store)
        self._workers = WorkerSupervisor(job, config, directory, events, spawn)
        self._outputs_count = 0

    @property
    def pid(self) -> int | None:
        """The worker's process id while it is ready for orders."""
        return self._workers.pid

    @property
    def restarts(self) -> int:
        """How many workers were lost since run() began."""
        return self._workers.restarts

    @property
    def inner_state(self) -> str:
        """What the newest worker found of its optimiser's state: fresh, resumed ..., or lost ..."""
        return self._workers.inner_state

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps a worker alive until cancelled. Raises UserError when it refuses its job."""
        shutil.rmtree(self._orders_directory, ignore_errors=True)
        try:
            self._orders_directory.mkdir(parents=True)
            self._unkept.directory.mkdir(exist_ok=True)
        except OSError as fault:
            raise StorageFailed(f"{fault.filename}: {fault.strerror}") from fault
        task_status.started()
        await self._workers.run()

    async def initial_state(self) -> StateRef:
        async with self._outputs() as out:
            done = await self._workers.order("initial_state", _state_outs(out))
            return await self._adopt_state(done, out)

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        try:
            size_bytes = codec_named(order.codec).encoded_size_bytes(self._parameter_count)
        except PeerFault as fault:
            raise TrainerFailed(f"order of round {order.round}: {fault.detail}") from None
        ordered_s = trio.current_time()
        await self._workers.ready()
        # A worker that was still starting has as much less time: the round goes on without it.
        stop_after_s = max(0.0, order.stop_after_s - (trio.current_time() - ordered_s))
        self._unkept.drop()
        count = len(boundary_steps(order.steps_max, order.segment_steps))
        boundary_bytes = self._boundary_bytes + order.segment_steps * self._step_bytes
        room = self._make_room(self._unkept.directory, file_sizes(count, boundary_bytes))
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, room, ignore_errors=True)
            async with self._outputs(sealed=size_bytes) as out:
                fields = {
                    "model": self._blob(STATES, order.base.model_root),
                    "sealed_out": str(out / "sealed"),
                    "boundaries_out": str(room),
                    "train": _train_fields(order, stop_after_s),
                }
                done = await self._workers.order("train_and_seal", fields, stop_after_s)
                answered_s = trio.current_time()
                manifest = await self._adopt(UPDATES, done["manifest"], out / "sealed")
            if done["snapshot_roots"]:
                undo.pop_all()
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

    async def keep_boundaries(self, roots: Sequence[Digest]) -> None:
        if not await self._unkept.lacks(roots):
            return  # a call that was cancelled has come so far
        for room in self._unkept.rooms():
            # Served after the training, and the worker has written all of them when it is.
            fields = {"room": str(room), "count": len(roots)}
            done = await self._workers.order("keep_boundaries", fields)
            await self._unkept.keep(room, roots, done["manifests"])
        if lost := await self._unkept.lacks(roots):
            raise TrainerFailed(f"{lost} of an update's {len(roots)} boundaries are lost")
        self._unkept.drop()

    async def check_segment(self, order: SegmentOrder) -> SegmentCheck:
        sealed, update, origin = order.sealed, None, order.origin_root
        if sealed is not None:
            base, shelf = sealed.base, order.shelf
            update = {
                "model": None if base is None else self._blob(STATES, base.model_root),
                "last": self._blob(shelf, sealed.last_root),
                "path": self._blob(shelf if base is None else UPDATES, sealed.blob_root),
                "codec": sealed.codec,
            }
        fields = {
            "segment": asdict(replace(order, sealed=None)),
            "start": self._blob(order.shelf, order.start_root),
            "end": self._blob(order.shelf, order.end_root),
            "origin": origin and self._blob(order.shelf, origin),
            "update": update,
        }
        done = await self._workers.order("check_segment", fields)
        return SegmentCheck(**done["check"])

    async def open_segment(self, order: SegmentOrder) -> tuple[Digest, ...]:
        async with self._outputs(**file_sizes(order.steps - 1, self._boundary_bytes)) as out:
            fields = {
                "segment": asdict(order),
                "start": self._blob(order.shelf, order.start_root),
                "boundaries_out": str(out),
            }
            done = await self._workers.order("open_segment", fields)
            states = [
                await self._adopt(order.shelf, encoded, file_of(out, index))
                for index, encoded in enumerate(done["manifests"])
            ]
        return tuple(Digest(state.root) for state in states)

    async def canary(self, step: int) -> CanaryStep:
        done = await self._workers.order("canary", {"step": step})
        return CanaryStep(**done["canary"])

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState:
        async with self._outputs(delta=self._delta_bytes_max, **self._state_sizes_bytes) as out:
            updates = [
                {
                    "path": self._blob(UPDATES, update.blob_root),
                    "codec": update.codec,
                    "weight": update.weight,
                }
                for update in order.updates
            ]
            fields = {
                **_base(order.base, self._blob),
                "updates": updates,
                "rule": order.rule,
                "f_agg": order.f_agg,
                "delta_out": str(out / "delta"),
                **_state_outs(out),
            }
            done = await self._workers.order("aggregate_and_step", fields)
            # The delta first: a state that is there implies the delta that made it.
            delta = await self._adopt(UPDATES, done["delta"], out / "delta")
            return SteppedState(await self._adopt_state(done, out), delta.root)

    async def apply_delta(self, base: StateRef, delta_root: BlobRoot) -> StateRef:
        async with self._outputs(**self._state_sizes_bytes) as out:
            delta = {"delta": self._blob(UPDATES, delta_root)}
            fields = {**_base(base, self._blob), **delta, **_state_outs(out)}
            return await self._adopt_state(await self._workers.order("apply_delta", fields), out)

    async def evaluate(self, state: StateRef) -> float:
        fields = {"model": self._blob(STATES, state.model_root)}
        done = await self._workers.order("evaluate", fields)
        return float(done["loss_nats"])

    @asynccontextmanager
    async def _outputs(self, **sizes_bytes: int) -> AsyncIterator[Path]:
        """A directory for one order; what the worker still writes once it is gone must fail."""
        out = self._make_room(self._orders_directory, sizes_bytes)
        try:
            yield out
        finally:
            shutil.rmtree(out, ignore_errors=True)

    def _make_room(self, parent: Path, sizes_bytes: Mapping[str, int]) -> Path:
        """Where the store has a spare of the size that an output will have, it is there already."""
        self._outputs_count += 1
        out = parent / str(self._outputs_count)
        try:
            out.mkdir()
            for name, size_bytes in sizes_bytes.items():
                self._store.directory.spares.take(size_bytes, out / name)
        except OSError as fault:
            raise StorageFailed(f"cannot make {out}: {fault.strerror}") from fault
        return out

    def _blob(self, kind: str, root: BlobRoot) -> str:
        path = self._store.directory.path_of(kind, root)
        if not path.is_file():
            raise TrainerFailed(f"{kind}/{root.hex()} is not in the store")
        return str(path)

    async def _adopt(self, kind: str, encoded: bytes, path: Path) -> Manifest:
        manifest = decode_manifest(encoded)
        await self._store.adopt_file(kind, path, manifest)
        return manifest

    async def _adopt_state(self, done: Message, out: Path) -> StateRef:
        model = await self._adopt(STATES, done["model"], out / "model")
        outer = await self._adopt(STATES, done["outer"], out / "outer")
        return StateRef(model.root, outer.root)


def _base(base: StateRef, path_of: Callable[[str, BlobRoot], str]) -> Message:
    return {"model": path_of(STATES, base.model_root), "outer": path_of(STATES, base.outer_root)}


def _train_fields(order: TrainOrder, stop_after_s: float) -> Message:
    return {
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
        "segment_steps": order.segment_steps,
        "ahead_max": order.ahead_max,
    }


def _state_outs(out: Path) -> Message:
    return {"model_out": str(out / "model"), "outer_out": str(out / "outer")}
