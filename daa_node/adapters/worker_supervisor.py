"""Keep a worker alive: start it, watch it, and start another one when it is lost.

    start --ready--> orders, one after the other --lost--> pause --> start

Whoever waits for a worker that is lost gets TrainerFailed; the next order finds the new one. The
pause doubles while workers are lost that have served nobody.
"""

import os
from pathlib import Path

import trio

from daa_node.adapters.worker_process import (
    SLOW_START,
    Spawn,
    Worker,
    spawn_interpreter,
    spawn_light,
)
from daa_node.errors import TrainerFailed
from daa_node.observability.events import (
    TRAINER_LOST,
    TRAINER_STARTED,
    TRAINER_UNSAVED,
    EventLog,
    EventName,
)
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.messages import Message

# Any order, and a start, may read and write the model, its outer momentum and what the optimiser
# keeps: 40 bytes a parameter, on a disk that takes 50 MB a second.
PARAMETERS_A_SECOND = 50_000_000 // 40
RESTART_PAUSE_S_MIN, RESTART_PAUSE_S_MAX = 0.25, 30.0


class WorkerSupervisor:
    """One worker at a time. `run` must be running while orders are given."""

    def __init__(
        self,
        job: TrainingJob,
        config: TrainerConfig,
        directory: Path,
        events: EventLog | None,
        spawn: Spawn | None,
    ) -> None:
        """`directory` is the worker's own.

        `spawn` None starts a fresh interpreter for each; so do all that never train.
        """
        self._job = job
        self._config = config
        self._directory = directory
        self._log_path = directory / "worker.log"
        self._longer_s = float(job.model.parameter_count() // PARAMETERS_A_SECOND)
        self._start_timeout_s = config.start_timeout_s + self._longer_s
        self._events = events
        self._spawn = (spawn or spawn_interpreter) if config.contribute else spawn_light
        self._worker: Worker | None = None  # while it is ready
        self._ready = trio.Event()
        self._turn = trio.StrictFIFOLock()
        self._order_count = 0
        self.restarts = 0  # how many were lost
        self.inner_state = "unknown"  # what the newest one found of its optimiser's state

    @property
    def pid(self) -> int | None:
        """The worker's process id while it is ready for orders."""
        return self._worker.process.pid if self._worker is not None else None

    async def run(self) -> None:
        """Until cancelled. Raises UserError when the worker refuses its job."""
        pause_s = RESTART_PAUSE_S_MIN
        while True:
            orders_before = self._order_count
            await self._live_once()
            self.restarts += 1
            served = self._order_count > orders_before
            pause_s = RESTART_PAUSE_S_MIN if served else min(pause_s * 2, RESTART_PAUSE_S_MAX)
            await trio.sleep(pause_s)

    async def ready(self) -> Worker:
        """The worker, once there is one. Raises TrainerFailed if none comes in time."""
        with trio.move_on_after(self._start_timeout_s):
            while self._worker is None:
                await self._ready.wait()
            return self._worker
        raise TrainerFailed(f"no worker within {self._start_timeout_s:g} s. {SLOW_START}")

    async def order(self, verb: str, fields: Message, stop_after_s: float = 0.0) -> Message:
        """What a worker answers, orders before this one served first. Raises TrainerFailed."""
        timeout_s = stop_after_s + self._config.order_timeout_s + self._longer_s
        async with self._turn:
            worker = await self.ready()
            self._order_count += 1
            try:
                return await worker.carry_out(self._order_count, verb, fields, timeout_s)
            finally:
                if worker.why_lost:
                    self._retire(worker)  # at once: the next order must not go to the dying one

    async def _live_once(self) -> None:
        try:
            process, ours = self._spawn(self._config.threads, self._log_path)
        except OSError as fault:  # no memory, no descriptors, a full disk: it may pass
            self._emit(TRAINER_LOST, why=f"cannot start the worker: {fault}")
            return
        ours.setblocking(False)
        worker = Worker(process, trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
        try:
            start = {
                "daemon_pid": os.getpid(),
                "job": self._job.model_dump_json(),
                "trainer": self._config.model_dump_json(),
                "directory": str(self._directory),
            }
            await worker.send({"start": start})
            ready = await worker.until_ready(self._start_timeout_s)
            if ready is not None:
                self.inner_state = ready["inner_state"]
                self._emit(TRAINER_STARTED, **ready)
                self._worker = worker
                self._ready.set()
                await worker.serve_until_lost(
                    self._config.heartbeat_timeout_s,
                    lambda why: self._emit(TRAINER_UNSAVED, why=why),
                )
        finally:
            self._retire(worker)
            why = await worker.end(self._log_path, self._longer_s)
        self._emit(TRAINER_LOST, why=why)

    def _retire(self, worker: Worker) -> None:
        if self._worker is worker:
            self._worker, self._ready = None, trio.Event()

    def _emit(self, name: EventName, **fields: object) -> None:
        if self._events is not None:
            self._events.emit(name, **fields)
