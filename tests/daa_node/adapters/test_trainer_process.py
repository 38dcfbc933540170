"""The supervised worker: real processes that are killed, suspended and left alone."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import torch
import trio

from daa_dag.chunking import cut, manifest_of
from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.trainer_process import TrainerProcess
from daa_node.errors import TrainerFailed, UserError
from daa_node.observability.events import TRAINER_LOST, TRAINER_STARTED, EventLog
from daa_node.seams import (
    AggregateOrder,
    StateRef,
    TrainOrder,
    WeightedUpdate,
)
from daa_node.tensors import open_grid_vector
from daa_node.training.config import InnerConfig, TrainerConfig, TrainingJob
from daa_node.training.core import open_core
from daa_node.training.data_config import DataConfig
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.updates.compression.codec import codec_named

pytestmark = pytest.mark.usefixtures("warm")

ALICE, BOB = NodeId(b"a" * 32), NodeId(b"b" * 32)
SEED = Digest(b"s" * 32)
JOB = TrainingJob(
    model=ModelConfig(kind="mlp", depth=1, width=16),
    data=DataConfig(kind="digits"),
    inner=InnerConfig(lr=0.01, warmup_steps=0, batch_size=16),
    seed=5,
)
CONFIG = TrainerConfig(device="cpu", niceness=0, heartbeat_timeout_s=3.0)
PARAMETERS = JOB.model.parameter_count()
WITHIN_S = 180.0  # a busy machine starts a worker slowly


@asynccontextmanager
async def running(
    tmp_path: Path, job: TrainingJob = JOB, config: TrainerConfig = CONFIG
) -> AsyncIterator[tuple[TrainerProcess, DiskBlobStore, EventLog]]:
    store = DiskBlobStore(tmp_path / "work", recycled=("states", "updates"))
    events = EventLog(time.time_ns)
    trainer = TrainerProcess(job, config, store, tmp_path / "trainer", events)
    async with trio.open_nursery() as nursery:
        await nursery.start(trainer.run)
        yield trainer, store, events
        nursery.cancel_scope.cancel()


def order(base: StateRef, round: int = 1, steps_max: int = 4, **changes: object) -> TrainOrder:
    fields: dict[str, object] = {
        "base": base,
        "seed": SEED,
        "round": round,
        "author": ALICE,
        "steps_max": steps_max,
        "stop_after_s": 60.0,
        "codec": "int8",
        "first_step": 0,
        **changes,
    }
    return TrainOrder(**fields)  # type: ignore[arg-type]


async def eventually(condition: Callable[[], bool]) -> None:
    with trio.fail_after(WITHIN_S):
        while not condition():
            await trio.sleep(0.02)


async def lost(verb: Callable[[], Awaitable[object]], why: list[str]) -> None:
    with pytest.raises(TrainerFailed) as failed:
        await verb()
    why.append(str(failed.value))


def events_named(events: EventLog, name: str) -> list[dict[str, object]]:
    return [event for event in events.tail() if event["name"] == name]


def _is_alive(pid: int) -> bool:
    """False for a zombie too: an orphan is reaped whenever init gets to it."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # no /proc on this system, or gone since
        return not Path("/proc").exists()


async def test_a_round_goes_through_the_worker_and_ends_in_blobs_of_the_store(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (trainer, store, events):
        base = await trainer.initial_state()
        weights_path = store.directory.path_of("states", base.model_root)
        weights_D = open_grid_vector(weights_path, PARAMETERS)
        assert (weights_D == genesis_weights(JOB.model, JOB.seed)).all()
        assert not open_grid_vector(
            store.directory.path_of("states", base.outer_root), PARAMETERS
        ).any()

        sealed = [
            await trainer.train_and_seal(order(base, author=author, steps_max=8))
            for author in (ALICE, BOB)
        ]
        assert sealed[0].blob_root != sealed[1].blob_root  # batches depend on the author
        assert sealed[0].steps == 8
        assert sealed[0].tokens == 8 * JOB.inner.batch_size
        assert sealed[0].us_per_step > 0
        assert not sealed[0].snapshot_roots  # none were asked for
        codec = codec_named("int8")
        for one in sealed:
            blob = store.directory.path_of("updates", one.blob_root).read_bytes()
            assert one.size_bytes == len(blob)
            codec.check(blob, PARAMETERS, JOB.updates.norm_cap_squared)
            assert codec.norm_squared(blob, PARAMETERS) > 0
            assert manifest_of(blob, cut([len(blob)])).root == one.blob_root

        updates = tuple(
            WeightedUpdate(author, one.blob_root, "int8", 1)
            for author, one in zip((ALICE, BOB), sealed, strict=True)
        )
        stepped = await trainer.aggregate_and_step(AggregateOrder(base, updates, "mean", 0))
        assert stepped.state.model_root != base.model_root
        assert await trainer.apply_delta(base, stepped.delta_root) == stepped.state
        before, after = await trainer.evaluate(base), await trainer.evaluate(stepped.state)
        assert before == pytest.approx(2.3026, abs=0.01)  # ten even classes
        assert after < before - 0.05
        assert await trainer.evaluate(base) == before
        assert trainer.restarts == 0
        (started,) = events_named(events, TRAINER_STARTED)
        assert started["device"] == "cpu"
        assert started["pid"] == trainer.pid
        assert not list((tmp_path / "trainer" / "orders").iterdir())


async def test_what_is_made_goes_over_what_was_retired_and_is_the_same(tmp_path: Path) -> None:
    wide = JOB.model_copy(update={"model": ModelConfig(kind="mlp", depth=1, width=2048)})
    async with running(tmp_path, wide) as (trainer, store, _):
        base = await trainer.initial_state()
        updates = []
        for author in (ALICE, BOB):
            sealed = await trainer.train_and_seal(order(base, author=author))
            updates.append(WeightedUpdate(author, sealed.blob_root, "int8", 1))
        aggregate = AggregateOrder(base, tuple(updates), "mean", 0)
        stepped = await trainer.aggregate_and_step(aggregate)
        made = {
            "states": (stepped.state.model_root, stepped.state.outer_root),
            "updates": (stepped.delta_root,),
        }
        paths = [store.directory.path_of(kind, root) for kind in made for root in made[kind]]
        inodes = {path.stat().st_ino for path in paths}
        for kind, roots in made.items():
            for root in roots:
                store.directory.delete_blob(kind, root)
        for path in (tmp_path / "work.tmp").iterdir():  # what they held must not matter
            path.write_bytes(os.urandom(path.stat().st_size))
        assert await trainer.aggregate_and_step(aggregate) == stepped
        assert {path.stat().st_ino for path in paths} == inodes
        for root in made["states"]:
            store.directory.delete_blob("states", root)
        assert await trainer.apply_delta(base, stepped.delta_root) == stepped.state
        assert not list((tmp_path / "work.tmp").iterdir())


def _daemon_imported_torch() -> bool:
    """In a process of its own, for other tests of this run do import torch."""
    probe = "import sys, daa_node.adapters.trainer_process; sys.exit('torch' in sys.modules)"
    return subprocess.run([sys.executable, "-c", probe], check=False).returncode != 0


def test_the_daemons_side_never_imports_torch() -> None:
    assert not _daemon_imported_torch()


async def test_a_worker_killed_at_work_costs_its_order_and_the_next_one_works(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (trainer, store, events):
        base = await trainer.initial_state()
        sealed = await trainer.train_and_seal(order(base))
        why: list[str] = []
        endless = order(base, round=2, steps_max=10**9, merged_round=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lost, lambda: trainer.train_and_seal(endless), why)
            await trio.sleep(0.2)
            assert trainer.pid is not None
            os.kill(trainer.pid, signal.SIGKILL)
        assert "killed by signal 9" in why[0]
        updates = (WeightedUpdate(ALICE, sealed.blob_root, "int8", 1),)
        aggregate = AggregateOrder(base, updates, "mean", 0)
        stepped = await trainer.aggregate_and_step(aggregate)
        assert trainer.restarts == 1
        # The optimiser's state outlived the worker: it goes on as if nothing had happened.
        assert trainer.inner_state == "resumed after 4 steps"
        resumed = await trainer.train_and_seal(order(base, round=3, merged_round=1))
        unharmed = open_core(JOB, torch.device("cpu"), tmp_path, time.perf_counter)
        base_D = genesis_weights(JOB.model, JOB.seed)
        unharmed.train_and_seal(order(base), base_D)
        expected = unharmed.train_and_seal(order(base, round=3, merged_round=1), base_D)
        blob = store.directory.path_of("updates", resumed.blob_root).read_bytes()
        assert blob == expected.blob.tobytes()

        # suspended, an order is certain to be under way when the kill comes
        assert trainer.pid is not None
        os.kill(trainer.pid, signal.SIGSTOP)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lost, lambda: trainer.aggregate_and_step(aggregate), why)
            await trio.sleep(0.1)
            os.kill(trainer.pid, signal.SIGKILL)
        assert why[1].startswith("aggregate_and_step: the worker ended: killed by signal 9")
        # A worker's start takes longer: of what it was given nothing is left but its first step.
        late = order(base, round=4, steps_max=10**9, stop_after_s=0.2, merged_round=3)
        assert (await trainer.train_and_seal(late)).steps == 1
        assert await trainer.aggregate_and_step(aggregate) == stepped
        assert len(events_named(events, TRAINER_LOST)) == 2
        assert len(events_named(events, TRAINER_STARTED)) == 3
        assert set(store.directory.blob_roots("states")) == {
            base.model_root,
            base.outer_root,
            stepped.state.model_root,
            stepped.state.outer_root,
        }


@pytest.mark.parametrize(
    ("heartbeat_timeout_s", "told"),
    [(60.0, "suspended, and silent for 1.5 s"), (0.9, "no heartbeat for 0.9 s")],
)
async def test_a_suspended_worker_is_noticed_killed_and_replaced(
    tmp_path: Path, heartbeat_timeout_s: float, told: str
) -> None:
    config = CONFIG.model_copy(update={"heartbeat_timeout_s": heartbeat_timeout_s})
    async with running(tmp_path, config=config) as (trainer, _, _events):
        base = await trainer.initial_state()
        first = trainer.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        why: list[str] = []
        with trio.fail_after(WITHIN_S):
            await lost(lambda: trainer.evaluate(base), why)
        assert told in why[0]
        assert not _is_alive(first)
        assert await trainer.evaluate(base) > 0
        assert trainer.pid != first


async def test_an_order_beyond_its_time_costs_the_worker_and_not_the_next_order(
    tmp_path: Path,
) -> None:
    config = CONFIG.model_copy(update={"order_timeout_s": 1.0})
    async with running(tmp_path, config=config) as (trainer, _, _events):
        base = await trainer.initial_state()
        assert trainer.pid is not None
        os.kill(trainer.pid, signal.SIGSTOP)
        with pytest.raises(TrainerFailed, match="evaluate took more than 1 s"):
            await trainer.evaluate(base)
        assert await trainer.evaluate(base) > 0


async def test_cancelled_training_makes_room_for_the_next_order_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as (trainer, _, _events):
        base = await trainer.initial_state()
        with trio.move_on_after(0.3) as scope:
            await trainer.train_and_seal(order(base, steps_max=10**9))
        assert scope.cancelled_caught
        with trio.fail_after(WITHIN_S):
            assert await trainer.evaluate(base) > 0
        assert trainer.restarts == 0


async def test_an_order_that_cannot_be_carried_out_fails_and_the_worker_lives_on(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (trainer, _, _events):
        base = await trainer.initial_state()
        with pytest.raises(TrainerFailed, match="no codec is named 'int3'"):
            await trainer.train_and_seal(order(base, codec="int3"))
        missing = StateRef(BlobRoot(b"m" * 32), base.outer_root)
        with pytest.raises(TrainerFailed, match="not in the store"):
            await trainer.evaluate(missing)
        sealed = await trainer.train_and_seal(order(base))
        alone = (WeightedUpdate(ALICE, sealed.blob_root, "int8", 1),)
        with pytest.raises(TrainerFailed, match="RuleUnbounded"):
            await trainer.aggregate_and_step(AggregateOrder(base, alone, "trimmed_mean", 1))
        assert trainer.restarts == 0


async def test_a_job_that_cannot_be_trained_stops_the_daemon_with_the_reason(
    tmp_path: Path,
) -> None:
    job = JOB.model_copy(
        update={
            "model": ModelConfig(),
            "data": DataConfig(kind="text", path=tmp_path / "absent.txt"),
        }
    )
    store = DiskBlobStore(tmp_path / "work")
    trainer = TrainerProcess(job, CONFIG, store, tmp_path / "trainer")
    why = "absent.txt:1: cannot read the file"
    with trio.fail_after(WITHIN_S), pytest.raises(UserError, match=why):
        await trainer.run()


async def test_a_worker_that_cannot_start_is_tried_again_with_growing_pauses(
    tmp_path: Path,
) -> None:
    # Not even a process that has imported everything is there so soon.
    config = CONFIG.model_copy(update={"start_timeout_s": 0.0001})
    async with running(tmp_path, config=config) as (trainer, _, events):
        await eventually(lambda: trainer.restarts == 3)
        lost_events = events_named(events, TRAINER_LOST)
        why = str(lost_events[0]["why"])
        assert why.startswith("not ready within 0.0001 s. Large data are read")
        assert "give trainer.start_timeout_s in config.yaml more" in why
        stamps = [float(str(event["ts"])) for event in lost_events]
        assert stamps[2] - stamps[1] > 1.3 * (stamps[1] - stamps[0])
        with pytest.raises(TrainerFailed, match="no worker within .* trainer.start_timeout_s"):
            await trainer.initial_state()


DAEMON = """
import sys, time, trio
from pathlib import Path
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.trainer_process import TrainerProcess
from daa_node.training.config import (TrainerConfig, TrainingJob)

async def main():
    work = Path(sys.argv[1])
    job = TrainingJob.model_validate_json(sys.argv[2])
    trainer = TrainerProcess(job, TrainerConfig(device="cpu"), DiskBlobStore(work / "w"), work)
    async with trio.open_nursery() as nursery:
        await nursery.start(trainer.run)
        await trainer.initial_state()
        print(trainer.pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.parametrize("suspended", [False, True])
def test_no_worker_outlives_its_daemon(tmp_path: Path, suspended: bool) -> None:
    if suspended and sys.platform != "linux":
        pytest.skip("only Linux kills a suspended orphan")
    daemon = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DAEMON), str(tmp_path), JOB.model_dump_json()],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert daemon.stdout is not None
    worker = int(daemon.stdout.readline())
    for ignored in (signal.SIGINT, signal.SIGTERM):
        os.kill(worker, ignored)  # the daemon decides when a worker ends
    time.sleep(0.3)
    assert _is_alive(worker)
    if suspended:
        os.kill(worker, signal.SIGSTOP)
    daemon.kill()
    daemon.wait()
    deadline_s = time.monotonic() + 60
    while _is_alive(worker):
        assert time.monotonic() < deadline_s, "the worker is an orphan"
        time.sleep(0.02)
    daemon.stdout.close()
