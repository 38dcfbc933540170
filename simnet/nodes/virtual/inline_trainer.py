"""The worker's own core without its process: numbers at once, their duration in virtual time.

The model, the data, the optimiser, the codec and the outer step are the real ones; how long they
take is the scenario's (see speeds). An order is worked out when it is given and answered when its
time has passed, so that whoever cancels it meanwhile gets nothing, as from the real worker, and the
optimiser is where it was before.

What a restart needs of the optimiser is saved before the next training, as the worker does that has
no idle moment; `saved` outlives the trainer, and a crash loses what came after it.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
import trio

from daa_dag.chunking import cut
from daa_dag.ids import BlobRoot
from daa_node.errors import StorageFailed, TrainerFailed
from daa_node.seams import (
    AggregateOrder,
    SealedUpdate,
    StateRef,
    SteppedState,
    TrainOrder,
)
from daa_node.tensors import GRID_DTYPE, Int32Array, Int64Array, UInt8Array, grid_sizes_bytes
from daa_node.training.config import DataConfig, ModelConfig, TrainingJob
from daa_node.training.core import Core, SealedTraining, choose_device
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.examples import Batch, Examples
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.inner_state import InnerState
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.outer_step import (
    DELTA_CODEC,
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
    apply_delta,
)
from simnet.checks.training_books import Account, Stage
from simnet.nodes.virtual.disk_seams import MemoryStore
from simnet.world.nominal_models import NominalCore

STATES, UPDATES = "states", "updates"
NEVER_S = 1e9  # so late a naive worker stops early
PID = 1  # of the process that a node asks for; there is none


@dataclass(slots=True)
class SavedOptimiser:
    """What the worker of one machine has on disk."""

    state: InnerState | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take on this node.

    A naive worker says that it is as quick as anybody and takes every step that it is asked for,
    however late it gets: what a network without plans by speed does.
    """

    step_s: Callable[[int], float]  # of an inner step in the round of that number, from now on
    naive: bool = False
    seal_s: float = 0.0
    merge_s: float = 0.02  # aggregation and replay: memory traffic, not steps
    evaluate_s: float = 0.02


class InlineTrainer:
    """A LivingTrainer. One order at a time, first come, first served."""

    def __init__(
        self,
        job: TrainingJob,
        examples: Examples | None,
        store: MemoryStore,
        pace: Pace,
        saved: SavedOptimiser,
        account: Account,
        losses: dict[bytes, float],
    ) -> None:
        """`examples` may be shared by all nodes: it only answers. None: only the size counts.

        `losses` too: by weights, what anybody has measured before.
        """
        self._job = job
        self._store = store
        self._pace = pace
        self._saved = saved
        self._elapsed_s = 0.0  # of the order under way, as its steps count it
        self._step_s = 0.0  # of the order under way
        self._account = account
        self._losses = losses
        self._core = self._core_of(examples)
        self._unsaved = False
        if saved.state is not None:
            self._core.set_inner_state(saved.state)
        self._parameter_count = job.model.parameter_count()
        self._chunks = cut(grid_sizes_bytes(job.model.tensors()))
        self._rates = OuterRates(job.updates.outer_lr, job.updates.outer_momentum)
        self._turn = trio.StrictFIFOLock()

    @property
    def pid(self) -> int | None:
        return PID

    def _core_of(self, examples: Examples | None) -> Core | NominalCore:
        def elapsed_s() -> float:
            return self._elapsed_s

        if examples is None:
            return NominalCore(self._job, elapsed_s, self._on_step)
        return Core(self._job, _Paced(examples, self._on_step), choose_device("cpu"), elapsed_s)

    def _on_step(self) -> None:
        self._elapsed_s += self._step_s

    async def initial_state(self) -> StateRef:
        weights_D = genesis_weights(self._job.model, self._job.seed)
        return await self._put_state(weights_D, np.zeros_like(weights_D))

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        async with self._turn:
            before = copy.deepcopy(self._core.inner_state())
            if self._unsaved:
                self._saved.state = before
            base_D = await self._grid(order.base.model_root)
            self._elapsed_s, self._step_s = 0.0, self._pace.step_s(order.round)
            if self._pace.naive:
                order = replace(order, stop_after_s=NEVER_S)
            sealed = self._core.train_and_seal(order, base_D)
            try:
                await self._spend(Stage.TRAINING, self._elapsed_s)
                await self._spend(Stage.SEALING, self._pace.seal_s)
            except trio.Cancelled:
                self._core.set_inner_state(replace(before, sealed_round=-1))
                raise
            self._unsaved = True
            return await self._answer(order, sealed)

    async def _answer(self, order: TrainOrder, sealed: SealedTraining) -> SealedUpdate:
        blob = sealed.blob.tobytes()
        manifest = await self._store.put_blob(UPDATES, blob, cut([len(blob)]))
        trained = sealed.trained
        return SealedUpdate(
            blob_root=manifest.root,
            size_bytes=manifest.size_bytes,
            codec=order.codec,
            steps=trained.steps,
            tokens=trained.tokens,
            us_per_step=1 if self._pace.naive else trained.us_per_step,
            loss_nats=trained.loss_nats,
            snapshot_roots=trained.snapshot_roots,
            seal_s=self._pace.seal_s,
        )

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState:
        async with self._turn:
            contributions = [
                Contribution(await self._blob(u.blob_root), u.codec, u.weight)
                for u in order.updates
            ]
            base, out = await self._base(order.base), self._room()
            delta = np.empty(DELTA_CODEC.encoded_size_bytes(self._parameter_count), np.uint8)
            rule = rule_named(order.rule)
            aggregate_and_step(base, contributions, rule, order.f_agg, self._rates, out, delta)
            await self._spend(Stage.MERGING, self._pace.merge_s)
            manifest = await self._store.put_blob(UPDATES, delta.tobytes(), cut([delta.size]))
            return SteppedState(await self._put_state(*_arrays(out)), manifest.root)

    async def apply_delta(self, base: StateRef, delta_root: BlobRoot) -> StateRef:
        async with self._turn:
            delta, out = await self._blob(delta_root), self._room()
            DELTA_CODEC.check(delta, self._parameter_count, None)
            apply_delta(await self._base(base), delta, self._rates, out)
            await self._spend(Stage.CATCHING_UP, self._pace.merge_s)
            return await self._put_state(*_arrays(out))

    async def evaluate(self, state: StateRef) -> float:
        async with self._turn:
            weights = bytes(await self._view(STATES, state.model_root))
            if weights not in self._losses:
                self._losses[weights] = self._core.evaluate(np.frombuffer(weights, GRID_DTYPE))
            await trio.sleep(self._pace.evaluate_s)
            return self._losses[weights]

    async def _spend(self, stage: Stage, seconds: float) -> None:
        with self._account.at_work(stage):
            await trio.sleep(seconds)

    def _room(self) -> OuterState:
        size = self._parameter_count
        return OuterState(np.empty(size, GRID_DTYPE), np.empty(size, GRID_DTYPE))

    async def _base(self, base: StateRef) -> OuterState:
        return OuterState(await self._grid(base.model_root), await self._grid(base.outer_root))

    async def _grid(self, root: BlobRoot) -> Int32Array:
        return np.frombuffer(await self._view(STATES, root), GRID_DTYPE)

    async def _blob(self, root: BlobRoot) -> UInt8Array:
        return np.frombuffer(await self._view(UPDATES, root), np.uint8)

    async def _view(self, kind: str, root: BlobRoot) -> memoryview:
        try:
            return await self._store.view_blob(kind, root)
        except StorageFailed as fault:
            raise TrainerFailed(str(fault)) from None

    async def _put_state(self, weights_D: Int32Array, momentum_D: Int32Array) -> StateRef:
        grids = weights_D.astype(GRID_DTYPE), momentum_D.astype(GRID_DTYPE)
        put, chunks = self._store.put_blob, self._chunks
        model, outer = [await put(STATES, grid_D.tobytes(), chunks) for grid_D in grids]
        return StateRef(model.root, outer.root)


class _Paced:
    """Examples that tell of every batch that is trained on: one a step."""

    def __init__(self, inner: Examples, on_step: Callable[[], None]) -> None:
        self._inner = inner
        self._on_step = on_step
        self.train_count, self.heldout_count = inner.train_count, inner.heldout_count
        self.tokens_each, self.heldout = inner.tokens_each, inner.heldout

    def train(self, indices_B: Int64Array) -> Batch:
        self._on_step()
        return self._inner.train(indices_B)


def shared_examples(job: TrainingJob) -> Examples:
    """The job's data, opened once for all nodes and runs. Raises UserError.

    From then on torch computes on one thread in this process: small models only wait for others.
    """
    torch.set_num_threads(1)
    return _opened(job.data, job.model)


@cache
def _opened(data: DataConfig, model: ModelConfig) -> Examples:
    return open_examples(data, model, Path("unused: these data need no cache"))


def _arrays(state: OuterState) -> tuple[Int32Array, Int32Array]:
    return state.weights_D, state.momentum_D
