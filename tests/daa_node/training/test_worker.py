"""The worker process alone, spoken to over a bare socket."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from blake3 import blake3

from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import OwnFiles
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.messages import HEARTBEAT_S, Message, Unpacker, pack
from daa_node.training.model_config import ModelConfig
from daa_node.training.module_config import BuiltModule, ModuleTensor
from tests.daa_node.training.own_modules import PACKAGE, built, job_of, write_package
from tests.warm import ANEW

pytestmark = pytest.mark.usefixtures("warm")

SAVE_AFTER_IDLE_S = 2.0  # as in the worker, which must not be imported here: it imports torch
JOB = TrainingJob(
    model=ModelConfig(kind="mlp", depth=1, width=16), data=DataConfig(kind="digits"), seed=5
)
CONFIG = TrainerConfig(device="cpu", niceness=0)
ENDED_S = 60  # much more than it needs: a machine that is busy lets it wait for its turn


class Line:
    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(300)
        self.connection = connection
        self._unpacker = Unpacker()
        self._held: list[Message] = []
        self.killed = False  # by the test itself

    def send(self, message: Message) -> None:
        self.connection.sendall(pack(message))

    def wait_for(self, key: str) -> Message:
        while True:
            while self._held:
                if key in (message := self._held.pop(0)):
                    return message
            received = self.connection.recv(65_536)
            assert received, "the worker hung up"
            self._held += self._unpacker.feed(received)


@contextmanager
def worker(
    directory: Path,
    job: TrainingJob = JOB,
    config: TrainerConfig = CONFIG,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[Line, int]]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "daa_node.training.worker", "--fd", str(theirs.fileno())]
    inherited = {**os.environ, **(environment or {})}
    start_it = ANEW if environment else subprocess.Popen  # torch reads its own when it is imported
    popen = start_it(command, pass_fds=[theirs.fileno()], env=inherited)
    with ours, theirs, popen as process:
        theirs.close()
        line = Line(ours)
        start = {
            "daemon_pid": os.getpid(),
            "job": job.model_dump_json(),
            "trainer": config.model_dump_json(),
            "directory": str(directory),
        }
        line.send({"start": start})
        try:
            yield line, process.pid
            ours.close()
            assert process.wait(timeout=ENDED_S) == (-signal.SIGKILL if line.killed else 0)
        finally:
            process.kill()


def train(
    directory: Path,
    order: int,
    steps_max: int,
    merged_round: int = -1,
    segment_steps: int = 0,
    job: TrainingJob = JOB,
) -> Message:
    genesis_weights(job.model, job.seed).tofile(directory / "model")
    (directory / f"boundaries-{order}").mkdir()
    return {
        "order": order,
        "verb": "train_and_seal",
        "model": str(directory / "model"),
        "sealed_out": str(directory / f"sealed-{order}"),
        "boundaries_out": str(directory / f"boundaries-{order}"),
        "train": {
            "model_root": bytes(32),
            "outer_root": bytes(32),
            "seed": bytes(32),
            "round": order,
            "author": bytes(32),
            "steps_max": steps_max,
            "stop_after_s": 60.0,
            "codec": "int8",
            "first_step": 0,
            "merged_round": merged_round,
            "segment_steps": segment_steps,
            "ahead_max": steps_max - 1,
        },
    }


def test_it_ends_with_its_socket_even_in_the_middle_of_training(tmp_path: Path) -> None:
    with worker(tmp_path) as (line, pid):
        assert line.wait_for("ready")["ready"] == {
            "pid": pid,
            "device": "cpu",
            "inner_state": "fresh",
        }
        line.send(train(tmp_path, 1, steps_max=10**9))
        for _ in range(2):
            line.wait_for("beat")  # it trains, and still says that it lives


def test_of_memory_in_files_a_kill_amid_a_training_costs_only_what_that_one_changed(
    tmp_path: Path,
) -> None:
    in_files = CONFIG.model_copy(update={"optimiser_in": "files"})
    for number in (0, 1):
        (tmp_path / f"memory-{number}").write_bytes(b"somebody else's" * 1000)
    with worker(tmp_path, config=in_files) as (line, _):
        assert line.wait_for("ready")["ready"]["inner_state"] == "fresh"
        for number in (1, 2):
            line.send(train(tmp_path, number, steps_max=2, merged_round=number - 1 or -1))
            line.wait_for("done")
    with worker(tmp_path, config=in_files) as (line, pid):
        assert line.wait_for("ready")["ready"]["inner_state"] == "resumed after 4 steps"
        order = train(tmp_path, 3, steps_max=10**9, merged_round=2, segment_steps=1)
        line.send(order)  # over what the update of round 1 had left
        while len(list(Path(order["boundaries_out"]).iterdir())) < 2:
            line.wait_for("beat")
        line.killed = True
        os.kill(pid, signal.SIGKILL)
    other = JOB.model_copy(update={"seed": 6})
    with worker(tmp_path, config=in_files) as (line, _):
        assert line.wait_for("ready")["ready"]["inner_state"] == "resumed after 4 steps"
    with worker(tmp_path, other, in_files) as (line, _):
        assert "belongs to another" in line.wait_for("ready")["ready"]["inner_state"]
    assert not any((tmp_path / "memory-0").read_bytes() + (tmp_path / "memory-1").read_bytes())


def test_the_optimisers_state_outlives_an_orderly_end_and_a_kill_after_a_pause(
    tmp_path: Path,
) -> None:
    with worker(tmp_path) as (line, _):
        line.wait_for("ready")
        line.send(train(tmp_path, 1, steps_max=2))
        line.wait_for("done")  # and hang up at once
    with worker(tmp_path) as (line, pid):
        assert line.wait_for("ready")["ready"]["inner_state"] == "resumed after 2 steps"
        line.send(train(tmp_path, 2, steps_max=3, merged_round=1))
        line.wait_for("done")
        for _ in range(round((SAVE_AFTER_IDLE_S + 1) / HEARTBEAT_S)):
            line.wait_for("beat")  # and nothing to do
        os.kill(pid, signal.SIGSTOP)  # it cannot save any more
        os.kill(pid, signal.SIGKILL)
        with worker(tmp_path) as (next_line, _):
            said = next_line.wait_for("ready")["ready"]["inner_state"]
            assert said == "resumed after 5 steps"
        line.killed = True


def test_a_restarted_worker_goes_on_with_the_data_as_if_it_had_never_stopped(
    tmp_path: Path,
) -> None:
    text = tmp_path / "corpus.txt"
    text.write_text("".join(f"All the world's a stage, said {n} of them.\n" for n in range(900)))
    job = TrainingJob(
        model=ModelConfig(width=8, heads=2, depth=1, context=8),
        data=DataConfig(kind="text", path=text, heldout_block=512),
        seed=5,
    )
    sealed = {}
    for way in ("in one go", "restarted"):
        directory = tmp_path / way
        directory.mkdir()
        orders = [
            train(directory, 1, steps_max=3, job=job),
            train(directory, 2, steps_max=3, merged_round=1, job=job),
        ]
        for batch in [orders] if way == "in one go" else [[order] for order in orders]:
            with worker(directory, job) as (line, _):
                line.wait_for("ready")
                for order in batch:
                    line.send(order)
                    line.wait_for("done")
        sealed[way] = [(directory / f"sealed-{n}").read_bytes() for n in (1, 2)]
    assert sealed["in one go"] == sealed["restarted"]
    assert len(set(sealed["restarted"])) == 2


def test_a_damaged_state_is_said_and_the_worker_starts_afresh(tmp_path: Path) -> None:
    with worker(tmp_path) as (line, _):
        line.wait_for("ready")
        line.send(train(tmp_path, 1, steps_max=2))
        assert line.wait_for("done")["steps"] == 2
        line.send({"order": 2, "verb": "evaluate", "model": str(tmp_path / "model")})
        line.wait_for("done")  # by now the state is saved
    state = tmp_path / "inner_state"
    state.write_bytes(state.read_bytes()[:-1])
    with worker(tmp_path) as (line, _):
        said = line.wait_for("ready")["ready"]["inner_state"]
        assert said.startswith("lost, starts afresh: ")
        assert "torn" in said


def test_a_disk_that_cannot_keep_the_state_is_reported_and_training_goes_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "inner_state.tmp").mkdir()  # where the file would be written
    with worker(tmp_path) as (line, _):
        line.wait_for("ready")
        line.send(train(tmp_path, 1, steps_max=2))
        line.wait_for("done")
        assert "inner optimiser's state" in line.wait_for("unsaved")["unsaved"]
        line.send({"order": 2, "verb": "dance"})
        assert line.wait_for("failed")["why"] == "TrainerFailed: no verb 'dance'"


def test_a_device_that_is_not_there_is_refused_before_any_order(tmp_path: Path) -> None:
    with worker(tmp_path, config=TrainerConfig(device="cuda:999", niceness=0)) as (line, _):
        said = line.wait_for("refused")["refused"]
    assert said.startswith("trainer.device is cuda:999, and torch finds only: ")


def test_data_that_does_not_fit_is_refused_before_any_order(tmp_path: Path) -> None:
    path = tmp_path / "tiny.txt"
    path.write_text("too short")
    job = TrainingJob(data=DataConfig(kind="text", path=path))
    with worker(tmp_path, job) as (line, _):
        assert "tiny.txt has 9 items: too few" in line.wait_for("refused")["refused"]


def test_it_refuses_a_module_that_is_not_allowed_or_not_as_the_genesis_has_it(
    tmp_path: Path,
) -> None:
    file = write_package(tmp_path / "code", "raise SystemExit('it ran')\n")
    found = BuiltModule(source_digest="ab" * 32, tensors=(ModuleTensor(name="weight", shape=(8,)),))
    job = built(job_of(), found)
    allowing = CONFIG.model_copy(
        update={"allow_modules": (PACKAGE,), "module_path": tmp_path / "code"}
    )
    for config, what in [(CONFIG, "trainer.allow_modules"), (allowing, f"{file} has the blake3")]:
        with worker(tmp_path, job, config) as (line, _):
            assert what in line.wait_for("refused")["refused"]


def test_what_was_made_of_data_that_a_host_has_changed_since_goes(tmp_path: Path) -> None:
    heldout, own = tmp_path / "heldout.jsonl", tmp_path / "own.jsonl"
    heldout.write_text(json.dumps({"text": "what all of them hold out " * 99}))
    data = DataConfig(kind="local", format="jsonl", path=heldout)
    model = ModelConfig(width=16, depth=1, heads=2, context=8)
    job = TrainingJob(model=model, data=data, own=OwnFiles(path=own), seed=5)

    def made_of(text: str) -> set[str]:
        """What is in the cache once a worker was ready with this."""
        own.write_text(json.dumps({"text": text * 99}))
        with worker(tmp_path, job) as (line, _):
            line.wait_for("ready")
        return {file.name for file in (tmp_path / "cache").glob("[!.]*")}

    first, again, second = made_of("notes of today "), made_of("notes of today "), made_of("more ")
    assert (len(first), len(second)) == (2, 2)
    assert first == again
    assert len(first & second) == 1  # what is held out


# As images of containers have it: torch then multiplies in ten bits of 24 on a GPU.
TF32 = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1", "NVIDIA_TF32_OVERRIDE": "1"}
SAYS_HOW_IT_MULTIPLIES = """
import os, torch
how = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
raise ValueError(f"it multiplies {how} {os.environ['NVIDIA_TF32_OVERRIDE']}")
"""


def test_it_multiplies_in_full_whatever_its_environment_says(tmp_path: Path) -> None:
    file = write_package(tmp_path / "code", SAYS_HOW_IT_MULTIPLIES)
    found = BuiltModule(
        source_digest=blake3(file.read_bytes()).hexdigest(),
        tensors=(ModuleTensor(name="weight", shape=(8,)),),
    )
    allowing = CONFIG.model_copy(
        update={"allow_modules": (PACKAGE,), "module_path": tmp_path / "code"}
    )
    with worker(tmp_path, built(job_of(), found), allowing, TF32) as (line, _):
        assert "it multiplies ('highest', False) 0" in line.wait_for("refused")["refused"]
