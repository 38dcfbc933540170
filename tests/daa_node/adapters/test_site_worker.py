"""A worker of several processes under the daemon's ordinary rule: one of them ends, all of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from daa_node.seams import StateRef
from daa_node.training.config import TrainerConfig
from tests.daa_node.adapters.test_trainer_process import (
    _is_alive,
    events_named,
    eventually,
    lost,
    order,
    running,
)

SITE = TrainerConfig(devices=("cpu", "cpu", "cpu"), niceness=0)
DAEMON = """
import os, subprocess, sys
from pathlib import Path
from daa_node.adapters.worker_process import spawn_interpreter
from daa_node.training.data_config import (DataConfig)
from daa_node.training.model_config import (ModelConfig)
from daa_node.training.config import (TrainerConfig, TrainingJob)
from daa_node.training.messages import pack
directory = Path(sys.argv[1])
process, ours = spawn_interpreter(1, directory / "worker.log")
job = TrainingJob(model=ModelConfig(kind="mlp"), data=DataConfig(kind="digits"))
ours.sendall(pack({"start": {
    "daemon_pid": os.getpid(),
    "job": job.model_dump_json(),
    "trainer": TrainerConfig(devices=("cpu", "cpu")).model_dump_json(),
    "directory": str(directory),
}}))
ours.recv(1)
print(process.pid, flush=True)
sys.stdin.read()
"""


def children(pid: int) -> list[int]:
    """Of its main thread."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("unread", [False, True])
async def test_a_rank_that_dies_is_named_ends_its_worker_and_the_next_one_trains(
    tmp_path: Path, unread: bool
) -> None:
    async with running(tmp_path, config=SITE) as (trainer, _, events):
        base: StateRef = await trainer.initial_state()
        first = trainer.pid
        assert first is not None
        warm_parent, *followers = children(first)  # in the order of their birth
        assert len(followers) == 2
        why: list[str] = []
        if unread:  # it is told of the order, and dies before it has heard
            os.kill(followers[1], signal.SIGSTOP)
        async with trio.open_nursery() as nursery:
            endless = order(base, steps_max=10**9)
            nursery.start_soon(lost, lambda: trainer.train_and_seal(endless), why)
            await trio.sleep(1)
            os.kill(followers[1], signal.SIGKILL)
        assert f"rank 2 of 3, pid {followers[1]}, ended: killed by signal 9" in why[0]
        await eventually(lambda: not any(map(_is_alive, followers)))
        update = await trainer.train_and_seal(order(base))
        assert update.steps == 4
        assert trainer.pid != first
        assert len(events_named(events, "trainer_lost")) == 1


def test_no_process_of_a_site_outlives_a_daemon_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DAEMON, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as daemon:
        assert daemon.stdout is not None
        worker = int(daemon.stdout.readline())
        processes = [worker, *children(worker)]
        assert len(processes) == 2
        for process in processes:
            os.kill(process, signal.SIGSTOP)  # none of them can end by itself
        daemon.kill()
    trio.run(eventually, lambda: not any(map(_is_alive, processes)))
