"""How fast this machine takes a job's inner steps: some are taken, and thrown away.

In a worker of its own, the very one that trains later. So what would stop it then, a file of data
that is missing or a module of another digest, is said now.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import trio

from daa_dag.ids import DIGEST_BYTES, Digest, NodeId
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.trainer_process import TrainerProcess
from daa_node.cli.joining import first_of
from daa_node.errors import StorageFailed, TrainerFailed, UserError
from daa_node.genesis import Job
from daa_node.observability.events import TRAINER_STARTED, EventLog
from daa_node.rounds.plan import TRAIN_SHARE
from daa_node.seams import SealedUpdate, TrainOrder
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.steps_in_time import steps_in

MEASURE_S = 4.0  # a step of a slow machine is taken to its end all the same
WARM_STEPS = 2  # the first step allocates, and some devices compile


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one machine with one job."""

    device: str
    us_per_step: int
    tokens_per_s: float
    steps_max: int  # of a round
    train_s: float  # of a round's window, at the most
    data_bytes: int = 0  # on disk, of what a worker has made of the data: unpacked, or as tokens

    @property
    def steps_in_time(self) -> int:
        return min(self.steps_max, steps_in(round(self.train_s * 1e6), self.us_per_step))


def measured(job: Job, training: TrainingJob, trainer: TrainerConfig, room: Path) -> Speed:
    """Blocks for some seconds; `room` is a directory that is removed afterwards.

    Raises UserError for a job that this machine cannot train.
    """
    try:
        return trio.run(_measured, job, training, trainer, room)
    except* UserError as refused:
        found = str(first_of(refused))
    if str(room) in found:
        found += (
            ". This machine is measured among temporary files: set TMPDIR to a folder on a disk "
            "that has room for the model's state and for data that are unpacked or converted"
        )
    raise UserError(f"this machine cannot train that network's job: {found}", exit_code=1)


async def _measured(job: Job, training: TrainingJob, trainer: TrainerConfig, room: Path) -> Speed:
    events = EventLog(lambda: 0)
    store = DiskBlobStore(room / "work")
    worker = TrainerProcess(training, trainer, store, room / "trainer", events)
    failure, speed = "", None
    async with trio.open_nursery() as nursery:
        await nursery.start(worker.run)
        try:
            speed = await _timed(job, worker, events)
        except (TrainerFailed, StorageFailed) as failed:
            failure = str(failed)
        nursery.cancel_scope.cancel()
    if speed is None:
        raise UserError(failure)
    made = [path for path in (room / "trainer" / "cache").rglob("*") if path.is_file()]
    return replace(speed, data_bytes=sum(path.stat().st_size for path in made))


async def _timed(job: Job, worker: TrainerProcess, events: EventLog) -> Speed:
    base = await worker.initial_state()

    async def steps(count: int) -> SealedUpdate:
        return await worker.train_and_seal(
            TrainOrder(
                base=base,
                seed=Digest(bytes(DIGEST_BYTES)),
                round=1,
                author=NodeId(bytes(DIGEST_BYTES)),
                steps_max=count,
                stop_after_s=MEASURE_S,
                codec=job.updates.codec,
                first_step=0,
            )
        )

    steps_max = job.rounds.inner_steps_max
    await steps(min(WARM_STEPS, steps_max))
    sealed = await steps(steps_max)
    started = next(e for e in events.tail() if e["name"] == str(TRAINER_STARTED))
    us_per_step = max(1, sealed.us_per_step)
    return Speed(
        device=str(started["device"]),
        us_per_step=us_per_step,
        tokens_per_s=job.tokens_per_step * 1e6 / us_per_step,
        steps_max=steps_max,
        train_s=job.rounds.window_ms / 1e3 * TRAIN_SHARE[0] / TRAIN_SHARE[1],
    )
