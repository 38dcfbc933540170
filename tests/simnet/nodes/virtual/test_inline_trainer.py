"""The inline trainer: real numbers, modelled time, and nothing left behind by what is cancelled."""

import random
from dataclasses import replace

import pytest
import trio
import trio.testing

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.errors import TrainerFailed
from daa_node.seams import (
    AggregateOrder,
    SealedClaim,
    SegmentOrder,
    StateRef,
    TrainOrder,
    WeightedUpdate,
)
from daa_node.training.boundaries import BOUNDARIES, CLAIMED, boundary_chunks
from daa_node.training.config import TrainingJob
from simnet.checks.training_books import Account
from simnet.nodes.virtual.disk import Disk
from simnet.nodes.virtual.disk_mount import Mount
from simnet.nodes.virtual.disk_seams import MemoryStore
from simnet.nodes.virtual.inline_trainer import (
    InlineTrainer,
    Pace,
    SavedOptimiser,
    Workbench,
    shared_examples,
)
from simnet.nodes.virtual.scheduling import now_ns
from simnet.world.job import job_of
from simnet.world.scenario import Scenario

AUTHOR = NodeId(b"a" * 32)
STEP_S = 0.25
WRITTEN_S = 0.05  # at the most: an update on a disk of the simulator
SCENARIO = Scenario.model_validate(
    {"name": "test", "fidelity": "trio", "work": {"kind": "training", "rounds": 3}}
)


def training_job() -> TrainingJob:
    job = job_of(SCENARIO)
    return TrainingJob(
        model=job.model, data=job.data, inner=job.inner, updates=job.updates, seed=job.seed
    )


JOB = training_job()
EXAMPLES = shared_examples(JOB)


class Bench:
    """A trainer on a disk of its own."""

    def __init__(
        self,
        naive: bool = False,
        saved: SavedOptimiser | None = None,
        workbench: Workbench | None = None,
    ) -> None:
        self.disk = Disk(random.Random(0))
        self.store = MemoryStore(Mount(self.disk), "work")
        self.saved = saved or SavedOptimiser()
        pace = Pace(lambda round_number: STEP_S, naive)
        self.trainer = InlineTrainer(
            *(workbench or Workbench(JOB, EXAMPLES), self.store, pace, self.saved, Account(now_ns))
        )


def order(base: StateRef, **changes: object) -> TrainOrder:
    fields: dict[str, object] = {
        "base": base,
        "seed": Digest(bytes(32)),
        "round": 1,
        "author": AUTHOR,
        "steps_max": 8,
        "stop_after_s": 100.0,
        "codec": "int8",
        "first_step": 0,
        "ahead_max": 7,
        **changes,
    }
    return TrainOrder(**fields)  # type: ignore[arg-type]


async def test_steps_take_their_time_and_stop_when_they_must(
    autojump_clock: trio.testing.MockClock,
) -> None:
    trainer = Bench().trainer
    base = await trainer.initial_state()
    started_s = trio.current_time()
    sealed = await trainer.train_and_seal(order(base))
    assert trio.current_time() - started_s == pytest.approx(8 * STEP_S, abs=WRITTEN_S)
    assert (sealed.steps, sealed.us_per_step) == (8, round(STEP_S * 1e6))
    started_s = trio.current_time()
    sealed = await trainer.train_and_seal(order(base, stop_after_s=5.1 * STEP_S))
    assert sealed.steps == 5
    assert trio.current_time() - started_s == pytest.approx(5 * STEP_S, abs=WRITTEN_S)


def training_on() -> Workbench:
    updates = JOB.updates.model_copy(update={"train_on": True})
    return Workbench(JOB.model_copy(update={"updates": updates}), EXAMPLES)


async def test_an_order_waits_for_the_step_that_is_taken_between_two(
    autojump_clock: trio.testing.MockClock,
) -> None:
    trainer = Bench(workbench=training_on()).trainer
    base = await trainer.initial_state()
    await trainer.train_and_seal(order(base))
    started_s = trio.current_time()
    await trio.sleep(2.4 * STEP_S)
    await trainer.evaluate(base)
    took_s = trio.current_time() - started_s
    assert took_s == pytest.approx(3 * STEP_S, abs=WRITTEN_S)
    started_s = trio.current_time()
    sealed = await trainer.train_and_seal(order(base, round=2, merged_round=1))
    assert sealed.steps == 8
    assert trio.current_time() - started_s == pytest.approx(5 * STEP_S, abs=WRITTEN_S)


async def test_what_is_trained_between_orders_is_each_nodes_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench, roots = training_on(), []
    for beside in (False, True):
        trainer, other = [Bench(workbench=bench).trainer for _ in range(2)]
        base = await trainer.initial_state()
        await trainer.train_and_seal(order(base))
        if beside:
            await other.initial_state()
            await other.train_and_seal(order(base, seed=Digest(b"s" * 32)))
        else:
            await trio.sleep(20 * STEP_S)
        started_s = trio.current_time()
        sealed = await trainer.train_and_seal(order(base, round=2, merged_round=1))
        assert trio.current_time() - started_s == pytest.approx(STEP_S, abs=WRITTEN_S)
        roots.append(sealed.blob_root)
    assert roots[0] == roots[1]


async def test_a_naive_worker_takes_every_step_and_says_that_it_is_quick(
    autojump_clock: trio.testing.MockClock,
) -> None:
    trainer = Bench(naive=True).trainer
    base = await trainer.initial_state()
    sealed = await trainer.train_and_seal(order(base, stop_after_s=0.1))
    assert (sealed.steps, sealed.us_per_step) == (8, 1)


async def test_training_lowers_the_loss_and_a_delta_replays_to_the_same_state(
    autojump_clock: trio.testing.MockClock,
) -> None:
    trainer = Bench().trainer
    base = await trainer.initial_state()
    before = await trainer.evaluate(base)
    sealed = await trainer.train_and_seal(order(base, steps_max=30))
    update = WeightedUpdate(AUTHOR, sealed.blob_root, "int8", sealed.tokens)
    stepped = await trainer.aggregate_and_step(AggregateOrder(base, (update,), "mean", 0))
    assert await trainer.evaluate(stepped.state) < 0.9 * before
    assert await trainer.apply_delta(base, stepped.delta_root) == stepped.state
    with pytest.raises(TrainerFailed, match="no blob"):
        await trainer.apply_delta(base, BlobRoot(bytes(32)))


async def test_the_same_weights_are_measured_once_and_a_damaged_file_by_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    workbench = Workbench(JOB, EXAMPLES)
    first, second, losses = Bench(workbench=workbench), Bench(workbench=workbench), workbench.losses
    base = await first.trainer.initial_state()
    assert await second.trainer.initial_state() == base
    loss_nats = await first.trainer.evaluate(base)
    assert losses == {bytes(await first.store.view_blob("states", base.model_root)): loss_nats}
    losses.update(dict.fromkeys(losses, 7.0))
    assert await second.trainer.evaluate(base) == 7.0
    path = f"work/states/{base.model_root.hex()}"
    file = second.disk.inodes[path]
    second.disk.overwrite(file, bytes(len(file.content)))
    assert await second.trainer.evaluate(base) != 7.0


async def test_a_cancelled_order_leaves_the_optimiser_as_it_was(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disturbed, quiet, fresh = Bench().trainer, Bench().trainer, Bench().trainer
    roots = []
    for trainer in (disturbed, quiet, fresh):
        base = await trainer.initial_state()
        if trainer is not fresh:
            await trainer.train_and_seal(order(base))
        if trainer is disturbed:
            with trio.move_on_after(STEP_S / 2):
                await trainer.train_and_seal(order(base, round=2, merged_round=1))
        third = order(base, round=3, merged_round=1)
        roots.append((await trainer.train_and_seal(third)).blob_root)
    assert roots[0] == roots[1] != roots[2]


async def test_boundaries_are_in_the_store_once_they_are_to_be_kept(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench()
    base = await bench.trainer.initial_state()
    sealed = await bench.trainer.train_and_seal(order(base, segment_steps=3))
    assert not await bench.store.blob_roots(BOUNDARIES)
    await bench.trainer.keep_boundaries(sealed.snapshot_roots)
    kept = await bench.store.blob_roots(BOUNDARIES)
    assert {Digest(root) for root in kept} == set(sealed.snapshot_roots)
    assert len(kept) == 4  # at steps 0, 3, 6 and 8
    sizes = boundary_chunks(JOB.model.parameter_count(), error_feedback=True)
    for root in kept:
        manifest = await bench.store.blob_manifest(BOUNDARIES, root)
        assert manifest is not None
        assert manifest.sizes == sizes
    await bench.trainer.keep_boundaries(sealed.snapshot_roots)  # again is no fault
    assert not (await bench.trainer.train_and_seal(order(base, round=2))).snapshot_roots


async def test_segments_are_checked_in_their_steps_time_and_leave_no_trace(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disturbed, quiet = Bench(), Bench()
    roots = []
    for bench in (disturbed, quiet):
        trainer, store = bench.trainer, bench.store
        base = await trainer.initial_state()
        made = order(base, segment_steps=5)
        sealed = await trainer.train_and_seal(made)
        await trainer.keep_boundaries(sealed.snapshot_roots)
        if bench is disturbed:
            for root in await store.blob_roots(BOUNDARIES):
                manifest = await store.blob_manifest(BOUNDARIES, root)
                assert manifest is not None
                blob = bytes(await store.view_blob(BOUNDARIES, root))
                await store.put_blob(CLAIMED, blob, manifest.sizes)
            claim = SealedClaim(base, BlobRoot(sealed.snapshot_roots[-1]), sealed.blob_root, "int8")
            start, end = (BlobRoot(root) for root in sealed.snapshot_roots[1:])
            each = SegmentOrder(
                seed=made.seed,
                round=made.round,
                author=AUTHOR,
                first_step=made.first_step,
                step=5,
                steps=3,
                start_root=start,
                end_root=end,
                sealed=claim,
            )
            started_s = trio.current_time()
            found = await trainer.check_segment(each)
            assert trio.current_time() - started_s == pytest.approx(3 * STEP_S, abs=WRITTEN_S)
            assert max(found.weights, found.residual, found.sealed or 0.0) < 1e-4
            other = await trainer.check_segment(replace(each, author=NodeId(b"b" * 32)))
            assert other.weights > 1e-2
        following = order(base, round=2, merged_round=1)
        roots.append((await trainer.train_and_seal(following)).blob_root)
    assert roots[0] == roots[1]


async def test_nodes_at_one_workbench_train_as_if_each_had_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    workbench = Workbench(JOB, EXAMPLES)
    roots: dict[bool, list[BlobRoot]] = {True: [], False: []}
    for shared, found in roots.items():
        trainers = [Bench(workbench=workbench if shared else None).trainer for _ in range(2)]
        for round_number in (1, 2):
            for trainer, author in zip(trainers, (AUTHOR, NodeId(b"b" * 32)), strict=True):
                base = await trainer.initial_state()
                merged = order(
                    base, author=author, round=round_number, merged_round=round_number - 1
                )
                found.append((await trainer.train_and_seal(merged)).blob_root)
                await trainer.evaluate(base)
    assert roots[True] == roots[False]
    assert len(set(roots[True])) == 4


async def test_a_new_worker_goes_on_from_the_last_save(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Saved before the second training, so a crash after it costs that one's moments alone."""
    first = Bench()
    base = await first.trainer.initial_state()
    await first.trainer.train_and_seal(order(base))
    following = order(base, round=2, merged_round=1)
    second = await first.trainer.train_and_seal(following)
    for saved, is_same in ((first.saved, True), (SavedOptimiser(), False)):
        trainer = Bench(saved=saved).trainer
        assert await trainer.initial_state() == base
        again = await trainer.train_and_seal(following)
        assert (again.blob_root == second.blob_root) is is_same
