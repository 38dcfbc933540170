"""The worker's own core without its process: numbers at once, their duration in virtual time.

The model, the data, the optimiser, the codec and the outer step are the real ones; how long they
take is the scenario's (see speeds). An order is worked out when it is given and answered when its
time has passed, so that whoever cancels it meanwhile gets nothing, as from the real worker, and the
optimiser is where it was before. All nodes compute on one Workbench, each with its own optimiser.

Where the job has it train on between orders, an order waits for the step under way, and the steps
taken meanwhile are worked out when they count: with the next training.

What a restart needs of the optimiser is saved before the next training, as the worker does that has
no idle moment; `saved` outlives the trainer, and a crash loses what came after it.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
import trio

from daa_dag.chunking import cut
from daa_dag.ids import BlobRoot, Digest
from daa_node.errors import StorageFailed, TrainerFailed
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
from daa_node.tensors import GRID_DTYPE, Int32Array, Int64Array, UInt8Array, grid_sizes_bytes
from daa_node.training.boundaries import BOUNDARIES, Boundary, open_boundary
from daa_node.training.config import TrainingJob
from daa_node.training.core import NO_ROUND, Core, SealedTraining, choose_device
from daa_node.training.data_config import DataConfig
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.examples import Batch, Examples
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.inner_state import InnerState
from daa_node.training.model_config import ModelConfig
from daa_node.training.sealed_claims import Claim, ClaimedSeal
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.outer_step import (
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
    apply_delta,
)
from simnet.checks.training_books import Account, Stage
from simnet.nodes.virtual.between_orders import BetweenOrders
from simnet.nodes.virtual.disk_seams import MemoryStore
from simnet.world.adversaries.cheating_core import CheatingCore
from simnet.world.nominal_models import NominalCore
from simnet.world.scenario import Cheat

STATES, UPDATES = "states", "updates"
NEVER_S = 1e9  # so late a naive worker stops early
PID = 1  # of the process that a node asks for; there is none


@dataclass(slots=True)
class SavedOptimiser:
    """What the worker of one machine has on disk."""

    state: InnerState | None = None
    boundaries: list[Boundary] = field(default_factory=list)  # of the update sealed last


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


class Workbench:
    """What trainers of one job compute on, for as long as an order takes them.

    It outlives them: to make a model takes longer than to put a node's optimiser into it.
    """

    def __init__(
        self, job: TrainingJob, examples: Examples | None, cheat: Cheat | None = None
    ) -> None:
        """`examples` may be shared by all: it only answers. None: only the size counts.

        Who cheats has a bench of its own.
        """
        self.job = job
        self.examples = examples
        self.elapsed_s = 0.0  # of the order under way, as its steps count it
        self.step_s = 0.0  # of the order under way
        self.parameter_count = job.model.parameter_count()
        self.chunks = cut(grid_sizes_bytes(job.model.tensors()))  # of a state's blobs
        self.rates = OuterRates(job.updates.outer_lr, job.updates.outer_momentum)
        self.delta_format = job.updates.delta_format
        self.first_weights_D = genesis_weights(job.model, job.seed)
        self.losses: dict[bytes, float] = {}  # by weights, what anybody has measured before
        self.canaries: dict[int, tuple[CanaryStep, float]] = {}  # and how many steps each took
        self.core: Core | NominalCore | CheatingCore
        if examples is None:
            self.core = NominalCore(job, self._passed_s, self._on_step)
        else:
            paced = _Paced(examples, self._on_step)
            honest = Core(job, paced, choose_device("cpu"), self._passed_s)
            self.core = honest if cheat is None else CheatingCore(honest, cheat)
        self.first_state = _kept(self.core.inner_state())

    def cut_up(self, size_bytes: int) -> list[int]:
        """Of an update or a delta, the chunks."""
        return cut([size_bytes], self.job.updates.chunk_bytes)

    def _passed_s(self) -> float:
        return self.elapsed_s

    def _on_step(self) -> None:
        self.elapsed_s += self.step_s


class InlineTrainer:
    """A LivingTrainer. One order at a time, first come, first served."""

    def __init__(
        self,
        workbench: Workbench,
        store: MemoryStore,
        pace: Pace,
        saved: SavedOptimiser,
        account: Account,
    ) -> None:
        self._workbench = workbench
        self._store = store
        self._pace = pace
        self._saved = saved
        self._account = account
        self._state = saved.state or workbench.first_state
        self._unsaved = False
        self._turn = trio.StrictFIFOLock()
        self._between = BetweenOrders(account)

    @property
    def pid(self) -> int | None:
        return PID

    async def initial_state(self) -> StateRef:
        weights_D = self._workbench.first_weights_D
        return await _put_state(self._store, self._workbench, (weights_D, np.zeros_like(weights_D)))

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        async with self._order():
            before = self._state
            if self._unsaved:
                self._saved.state = before
            base_D = await self._grid(order.base.model_root)
            if self._pace.naive:
                order = replace(order, stop_after_s=NEVER_S)
            self._saved.boundaries = []
            sealed, elapsed_s = self._compute(order, base_D)
            try:
                await self._spend(Stage.TRAINING, elapsed_s)
                await self._spend(Stage.SEALING, self._pace.seal_s)
            except trio.Cancelled:
                self._between.begin(None, 0.0)
                self._state = replace(self._state, sealed_round=NO_ROUND)
                raise
            self._unsaved = True
            return await self._answer(order, sealed)

    @asynccontextmanager
    async def _order(self) -> AsyncIterator[None]:
        """Its turn has come, and the step that was under way is done."""
        async with self._turn:
            await self._between.stop()
            try:
                yield
            finally:
                self._between.resume()

    def _compute(self, order: TrainOrder, base_D: Int32Array) -> tuple[SealedTraining, float]:
        """The training, and how long it takes."""
        bench, step_s = self._workbench, self._pace.step_s(order.round)
        bench.core.set_inner_state(self._state)
        bench.core.set_ahead(self._between.ahead)
        for _ in range(self._between.steps):
            bench.core.train_on()
        bench.elapsed_s, bench.step_s = 0.0, step_s
        passed: list[Boundary] = []
        try:
            sealed = bench.core.train_and_seal(
                order, base_D, on_boundary=lambda boundary: passed.append(_own(boundary))
            )
        finally:  # a training that fails has its say about the optimiser, too
            self._state = _kept(bench.core.inner_state())
            self._between.begin(bench.core.take_ahead(), step_s)
        if order.segment_steps:
            self._saved.boundaries = [*passed, _own(sealed.end)]
        return sealed, bench.elapsed_s

    async def _answer(self, order: TrainOrder, sealed: SealedTraining) -> SealedUpdate:
        blob = sealed.blob.tobytes()
        manifest = await self._store.put_blob(UPDATES, blob, self._workbench.cut_up(len(blob)))
        trained = sealed.trained
        return SealedUpdate(
            blob_root=manifest.root,
            size_bytes=manifest.size_bytes,
            codec=order.codec,
            steps=trained.steps,
            tokens=trained.tokens,
            us_per_step=1 if self._pace.naive else trained.us_per_step,
            loss_nats=trained.loss_nats,
            snapshot_roots=tuple(Digest(one.manifest().root) for one in self._saved.boundaries),
            seal_s=self._pace.seal_s,
        )

    async def keep_boundaries(self, roots: Sequence[Digest]) -> None:
        async with self._order():
            left = self._saved.boundaries
            while left:
                await _put(self._store, BOUNDARIES, left[0])
                del left[0]
            for root in roots:
                if await self._store.blob_manifest(BOUNDARIES, BlobRoot(root)) is None:
                    raise TrainerFailed(f"the boundary {root.hex()} is lost")

    async def check_segment(self, order: SegmentOrder) -> SegmentCheck:
        async with self._order():
            bench, sealed, claimed = self._workbench, None, order.sealed
            if claimed is not None:
                base, shelf = claimed.base, order.shelf
                base_D = None if base is None else await self._grid(base.model_root)
                blob = await self._blob(claimed.blob_root, shelf if base is None else UPDATES)
                last = await self._claimed(shelf, claimed.last_root)
                sealed = ClaimedSeal(base_D, last, blob, claimed.codec)
            start = await self._claimed(order.shelf, order.start_root)
            end = await self._claimed(order.shelf, order.end_root)
            root = order.origin_root
            origin = None if root is None else await self._claimed(order.shelf, root)
            bench.elapsed_s, bench.step_s = 0.0, self._pace.step_s(order.round)
            found = bench.core.check_segment(order, Claim(start, end, sealed, origin))
            await self._spend(Stage.CHECKING, bench.elapsed_s)
            return found

    async def open_segment(self, order: SegmentOrder) -> tuple[Digest, ...]:
        async with self._order():
            bench, passed = self._workbench, list[Boundary]()
            start = await self._claimed(order.shelf, order.start_root)
            bench.elapsed_s, bench.step_s = 0.0, self._pace.step_s(order.round)
            bench.core.open_segment(order, start, lambda state: passed.append(_own(state)))
            await self._spend(Stage.CHECKING, bench.elapsed_s)
            return tuple([Digest(await _put(self._store, order.shelf, one)) for one in passed])

    async def canary(self, step: int) -> CanaryStep:
        async with self._order():
            bench = self._workbench
            if step not in bench.canaries:
                bench.elapsed_s, bench.step_s = 0.0, 1.0
                bench.canaries[step] = bench.core.canary(step), bench.elapsed_s
            taken, steps = bench.canaries[step]
            await self._spend(Stage.CHECKING, steps * self._pace.step_s(0))
            return taken

    async def _claimed(self, kind: str, root: BlobRoot) -> Boundary:
        blob = np.frombuffer(await self._view(kind, root), np.uint8).copy()
        job, count = self._workbench.job, self._workbench.parameter_count
        try:
            return open_boundary(blob, count, job.updates.error_feedback, job.data.reveal)
        except ValueError as fault:
            raise TrainerFailed(str(fault)) from None

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState:
        async with self._order():
            contributions = [
                Contribution(await self._blob(u.blob_root), u.codec, u.weight)
                for u in order.updates
            ]
            base, out = await self._base(order.base), _room(self._workbench.parameter_count)
            bench, rule = self._workbench, rule_named(order.rule)
            f_agg, coded = order.f_agg, bench.delta_format
            delta = aggregate_and_step(base, contributions, rule, f_agg, bench.rates, out, coded)
            await self._spend(Stage.MERGING, self._pace.merge_s)
            pieces = bench.cut_up(delta.size)
            manifest = await self._store.put_blob(UPDATES, delta.tobytes(), pieces)
            return SteppedState(await _put_state(self._store, bench, _arrays(out)), manifest.root)

    async def apply_delta(self, base: StateRef, delta_root: BlobRoot) -> StateRef:
        async with self._order():
            bench, delta = self._workbench, await self._blob(delta_root)
            bench.delta_format.check(delta, bench.parameter_count)
            out = _room(bench.parameter_count)
            apply_delta(await self._base(base), delta, bench.rates, out, bench.delta_format)
            await self._spend(Stage.CATCHING_UP, self._pace.merge_s)
            return await _put_state(self._store, bench, _arrays(out))

    async def evaluate(self, state: StateRef) -> float:
        async with self._order():
            bench = self._workbench
            weights = bytes(await self._view(STATES, state.model_root))
            if weights not in bench.losses:
                bench.losses[weights] = bench.core.evaluate(np.frombuffer(weights, GRID_DTYPE))
            await trio.sleep(self._pace.evaluate_s)
            return bench.losses[weights]

    async def _spend(self, stage: Stage, seconds: float) -> None:
        with self._account.at_work(stage):
            await trio.sleep(seconds)

    async def _base(self, base: StateRef) -> OuterState:
        return OuterState(await self._grid(base.model_root), await self._grid(base.outer_root))

    async def _grid(self, root: BlobRoot) -> Int32Array:
        return np.frombuffer(await self._view(STATES, root), GRID_DTYPE)

    async def _blob(self, root: BlobRoot, kind: str = UPDATES) -> UInt8Array:
        return np.frombuffer(await self._view(kind, root), np.uint8)

    async def _view(self, kind: str, root: BlobRoot) -> memoryview:
        try:
            return await self._store.view_blob(kind, root)
        except StorageFailed as fault:
            raise TrainerFailed(str(fault)) from None


def _room(size: int) -> OuterState:
    return OuterState(np.empty(size, GRID_DTYPE), np.empty(size, GRID_DTYPE))


async def _put_state(
    store: MemoryStore, bench: Workbench, state_DD: tuple[Int32Array, Int32Array]
) -> StateRef:
    grids = [vector_D.astype(GRID_DTYPE).tobytes() for vector_D in state_DD]
    model, outer = [await store.put_blob(STATES, grid, bench.chunks) for grid in grids]
    return StateRef(model.root, outer.root)


async def _put(store: MemoryStore, kind: str, boundary: Boundary) -> BlobRoot:
    parts = boundary.parts()
    manifest = await store.put_blob(kind, b"".join(parts), cut([part.nbytes for part in parts]))
    return manifest.root


def _kept(state: InnerState) -> InnerState:
    """The same in arrays of its own."""
    settled, tried = [
        replace(
            carried,
            first_D=carried.first_D.copy(),
            second_D=carried.second_D.copy(),
            residual_D=carried.residual_D.copy(),
        )
        for carried in (state.settled, state.tried)
    ]
    return replace(state, settled=settled, tried=tried)


def _own(boundary: Boundary) -> Boundary:
    """The same in arrays of its own."""
    owed_D = boundary.residual_D
    return replace(
        boundary,
        weights_D=boundary.weights_D.copy(),
        first_D=boundary.first_D.copy(),
        second_D=boundary.second_D.copy(),
        residual_D=None if owed_D is None else owed_D.copy(),
    )


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
    return _opened(job.data.model_dump_json(), job.model.model_dump_json())


@cache
def _opened(data: str, model: str) -> Examples:
    """By what they say: a model that has a base, or arguments, has no hash."""
    return open_examples(
        DataConfig.model_validate_json(data),
        ModelConfig.model_validate_json(model),
        Path("unused: these data need no cache"),
    )


def _arrays(state: OuterState) -> tuple[Int32Array, Int32Array]:
    return state.weights_D, state.momentum_D
