"""A worker that never trains: the bits of the one that does, no torch, and what it refuses."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.errors import TrainerFailed, UserError
from daa_node.training import light_worker
from daa_node.training.boundaries import Boundary, boundary_steps
from daa_node.training.boundary_files import file_of
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.core import Core
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import DataFile
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.examples import Examples
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.light_worker import LightWorker
from daa_node.training.merging import write_blob
from daa_node.training.messages import Message, Unpacker, pack
from daa_node.training.orders import Inbox
from daa_node.training.torch_worker import Worker
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.codec import codec_named, encode
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.outer_step import Contribution, OuterRates, OuterState
from daa_node.updates.torch_kernels import TorchKernels
from tests.daa_node.training.test_core import BASE_D, CPU, JOB, core, order, wanted

ENDED_S = 300
SEGMENT = 2  # steps


@contextmanager
def light(directory: Path, job: TrainingJob) -> Iterator[socket.socket]:
    """The process, as a daemon starts it, in which no torch can be imported."""
    (directory / "blocked").mkdir()
    (directory / "blocked" / "sitecustomize.py").write_text(
        "import sys\nsys.modules['torch'] = None\n"
    )
    path = os.pathsep.join([str(directory / "blocked"), *sys.path])
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", light_worker.__name__, "--fd", str(theirs.fileno())]
    environment = {**os.environ, "PYTHONPATH": path}
    popen = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
    with ours, theirs, popen as process:
        theirs.close()
        ours.settimeout(ENDED_S)
        start = {
            "daemon_pid": os.getpid(),
            "job": job.model_dump_json(),
            "trainer": TrainerConfig(contribute=False, niceness=0).model_dump_json(),
            "directory": str(directory),
        }
        ours.sendall(pack({"start": start}))
        try:
            yield ours
            ours.close()
            assert process.wait(ENDED_S) == 0
        finally:
            process.send_signal(signal.SIGKILL)


def answers(line: socket.socket) -> Iterator[Message]:
    unpacker = Unpacker()
    while received := line.recv(65_536):
        yield from (said for said in unpacker.feed(received) if "beat" not in said)


def state_files(directory: Path, job: TrainingJob) -> Message:
    """An order's fields that name the base state."""
    genesis_weights(job.model, job.seed).tofile(directory / "model")
    np.zeros(job.model.parameter_count(), "<i4").tofile(directory / "outer")
    return {"model": str(directory / "model"), "outer": str(directory / "outer")}


def outs(directory: Path, name: str) -> Message:
    return {f"{part}_out": str(directory / f"{name}-{part}") for part in ("model", "outer")}


def test_it_merges_and_replays_to_the_bits_of_the_worker_that_trains(tmp_path: Path) -> None:
    one = core(tmp_path, JOB)
    updates = []
    for number in range(3):
        path = tmp_path / f"update-{number}"
        write_blob(path, one.train_and_seal(order(number), BASE_D).blob)
        updates.append({"path": str(path), "codec": "int4", "weight": 1})
    merge = {
        "verb": "aggregate_and_step",
        **state_files(tmp_path, JOB),
        "updates": updates,
        "rule": "mean",
        "f_agg": 0,
    }
    trains = Worker(one, JOB, tmp_path / "inner_state", Inbox())
    asked = merge | outs(tmp_path, "ours") | {"delta_out": str(tmp_path / "ours-delta")}
    ours = trains.carry_out(asked)
    with light(tmp_path, JOB) as line:
        said = answers(line)
        assert next(said)["ready"]["inner_state"] == "none: it does not train"
        theirs = merge | outs(tmp_path, "theirs") | {"delta_out": str(tmp_path / "theirs-delta")}
        line.sendall(pack({"order": 1, **theirs}))
        assert next(said) == {"done": 1, **ours}
        replay = {"verb": "apply_delta", **state_files(tmp_path, JOB)}
        replay |= {"delta": str(tmp_path / "ours-delta")} | outs(tmp_path, "replayed")
        line.sendall(pack({"order": 2, **replay}))
        assert next(said) == {"done": 2, "model": ours["model"], "outer": ours["outer"]}
        line.sendall(pack({"order": 3, "verb": "initial_state", **outs(tmp_path, "first")}))
        next(said)
        line.sendall(pack({"order": 4, "verb": "evaluate", "model": str(tmp_path / "model")}))
        assert "does not train (trainer.contribute)" in next(said)["why"]
    for part in ("model", "outer", "delta"):
        made = [(tmp_path / f"{who}-{part}").read_bytes() for who in ("ours", "theirs")]
        assert made[0] == made[1]
    assert (tmp_path / "first-model").read_bytes() == (tmp_path / "model").read_bytes()
    assert (tmp_path / "ours-model").read_bytes() != (tmp_path / "model").read_bytes()


MEAN = UpdatesConfig(rule="mean", f_agg=0, outer_lr=(3, 4), outer_momentum=(9, 10))
JOBS = {
    "mean": (MEAN, ("int8", "int4")),
    "trimmed mean": (
        MEAN.model_copy(update={"rule": "trimmed_mean", "f_agg": 1}),
        ("int8", "int4"),
    ),
    "few of each": (MEAN.model_copy(update={"codec": "top_k"}), ("top_k",)),
}


@pytest.mark.parametrize("name", JOBS)
def test_each_rule_codec_and_delta_comes_to_the_bits_of_a_gpu(tmp_path: Path, name: str) -> None:
    """From a state with momentum. `TorchKernels` is what a worker merges by on a GPU."""
    updates, codecs = JOBS[name]
    job, chance = JOB.model_copy(update={"updates": updates}), np.random.default_rng(7)
    base = state_files(tmp_path, job)
    momentum_D = chance.integers(-(2**20), 2**20, BASE_D.size, np.int32)
    momentum_D.tofile(tmp_path / "outer")
    members, said = [], []
    for number in range(4):
        codec, path = codecs[number % len(codecs)], tmp_path / f"update-{number}"
        blob = encode(codec_named(codec), chance.normal(0, 0.01, BASE_D.size).astype(np.float32))
        write_blob(path, blob)
        members.append(Contribution(blob, codec, 100 + number))
        said.append({"path": str(path), "codec": codec, "weight": 100 + number})
    rule, f_agg = updates.rule, updates.f_agg or 0
    order = {"verb": "aggregate_and_step", **base, "updates": said, "rule": rule, "f_agg": f_agg}
    light = LightWorker(job, tmp_path, Inbox())
    light.carry_out(order | outs(tmp_path, "light") | {"delta_out": str(tmp_path / "delta")})
    replay = {"verb": "apply_delta", **base, "delta": str(tmp_path / "delta")}
    light.carry_out(replay | outs(tmp_path, "again"))
    rates = OuterRates(updates.outer_lr, updates.outer_momentum)
    out = OuterState(np.zeros_like(BASE_D), np.zeros_like(BASE_D))
    delta = TorchKernels(CPU).aggregate_and_step(
        OuterState(BASE_D, momentum_D),
        members,
        rule_named(rule),
        f_agg,
        rates,
        out,
        updates.delta_format,
    )
    assert (tmp_path / "delta").read_bytes() == delta.tobytes()
    for who in ("light", "again"):
        assert (tmp_path / f"{who}-model").read_bytes() == out.weights_D.tobytes()
        assert (tmp_path / f"{who}-outer").read_bytes() == out.momentum_D.tobytes()


def test_it_judges_a_seal_that_is_clipped_and_owes_as_the_worker_that_trains_does(
    tmp_path: Path,
) -> None:
    job = JOB.model_copy(update={"updates": JOB.updates.model_copy(update={"clip_norm": 0.05})})
    one = core(tmp_path, job)
    asked = trained_segment(one, tmp_path)
    taken: list[Boundary] = []
    task = order(2, merged_round=1, steps_max=2, segment_steps=1)
    sealed = one.train_and_seal(task, BASE_D, on_boundary=taken.append)
    owed_D = taken[0].residual_D
    assert owed_D is not None
    assert owed_D.any()  # of the round before
    assert np.linalg.norm(wanted(sealed) + owed_D) > 0.05
    places = [tmp_path / name for name in ("first", "last", "sealed")]
    for path, boundary in zip(places, (taken[0], sealed.end), strict=False):
        path.write_bytes(b"".join(map(bytes, boundary.parts())))
    write_blob(places[2], sealed.blob)
    said = {"model": None, "last": str(places[1]), "path": str(places[2]), "codec": "int4"}
    asked |= {"start": str(places[0]), "update": said}
    judge = LightWorker(job, tmp_path, Inbox())
    trains = Worker(one, job, tmp_path / "inner_state", Inbox())
    found = judge.carry_out(asked)["check"]
    assert trains.carry_out(asked)["check"] == found
    assert (found["residual"], found["sealed"]) == (0.0, 0.0)
    write_blob(places[2], encode(codec_named("int4"), np.ones(BASE_D.size, np.float32)))
    lie = judge.carry_out(asked)["check"]
    assert lie == trains.carry_out(asked)["check"]
    assert lie["sealed"] > 0.1


def test_what_the_worker_before_it_has_left_can_still_be_shown(tmp_path: Path) -> None:
    one = core(tmp_path, JOB)
    trained_segment(one, tmp_path)
    order = {"verb": "keep_boundaries", "room": str(tmp_path), "count": 3}
    kept = LightWorker(JOB, tmp_path, Inbox()).carry_out(order)
    assert kept == Worker(one, JOB, tmp_path / "inner_state", Inbox()).carry_out(order)
    assert [bool(manifest) for manifest in kept["manifests"]] == [True, True, False]


def trained_segment(one: Core, directory: Path) -> Message:
    """An order to take an honest author's first segment again, by canonical kernels."""
    taken: list[Boundary] = []

    def keep(boundary: Boundary) -> None:
        path = file_of(directory, len(taken))
        path.write_bytes(b"".join(map(bytes, boundary.parts())))
        taken.append(boundary)

    asked = order(1, steps_max=4, segment_steps=SEGMENT)
    one.train_and_seal(asked, BASE_D, on_boundary=keep)
    assert len(taken) == len(boundary_steps(4, SEGMENT)) - 1
    segment = {
        "seed": Digest(asked.seed),
        "round": asked.round,
        "author": NodeId(asked.author),
        "first_step": asked.first_step,
        "step": 0,
        "steps": SEGMENT,
        "start_root": BlobRoot(bytes(32)),
        "end_root": BlobRoot(bytes(32)),
        "sealed": None,
        "exact": True,
    }
    places = {"start": str(file_of(directory, 0)), "end": str(file_of(directory, 1))}
    return {"verb": "check_segment", "segment": segment, **places, "origin": None, "update": None}


def test_it_judges_exact_steps_as_the_worker_that_trains_does(tmp_path: Path) -> None:
    one = core(tmp_path, JOB)
    asked = trained_segment(one, tmp_path)
    judge = LightWorker(JOB, tmp_path, Inbox(), opened_s=ENDED_S)
    found = judge.carry_out(asked)
    assert found == Worker(one, JOB, tmp_path / "inner_state", Inbox()).carry_out(asked)
    assert found["check"]["steps_agree"] is True
    assert 0 <= found["check"]["weights"] < 1e-3
    (tmp_path / "states").mkdir()
    opened = judge.carry_out(
        asked | {"verb": "open_segment", "boundaries_out": str(tmp_path / "states")}
    )
    assert len(opened["manifests"]) == SEGMENT - 1
    lie = asked | {"end": asked["start"]}  # nothing was trained
    assert judge.carry_out(lie)["check"]["steps_agree"] is False


def test_data_that_take_long_to_open_hold_up_no_merging(tmp_path: Path) -> None:
    asked, are_converted = trained_segment(core(tmp_path, JOB), tmp_path), threading.Event()

    def slow(*places: Any) -> Examples:
        assert are_converted.wait(ENDED_S)
        return open_examples(*places)

    judge = LightWorker(JOB, tmp_path, Inbox(), slow, opened_s=0.0)
    for _ in range(2):
        with pytest.raises(TrainerFailed, match="are being opened"):
            judge.carry_out(asked)
    judge.carry_out({"verb": "initial_state", **outs(tmp_path, "first")})
    are_converted.set()
    assert judge._opening is not None
    judge._opening.result(ENDED_S)
    assert judge.carry_out(asked)["check"]["steps_agree"] is True


def test_what_takes_torch_or_data_that_are_not_here_is_refused_in_words(tmp_path: Path) -> None:
    asked = trained_segment(core(tmp_path, JOB), tmp_path)
    rounded = asked | {"segment": asked["segment"] | {"exact": False}}
    judge = LightWorker(JOB, tmp_path, Inbox())
    with pytest.raises(TrainerFailed, match="are taken again by torch"):
        judge.carry_out(rounded)
    with pytest.raises(TrainerFailed, match="train_and_seal: this node does not train"):
        judge.carry_out({"verb": "train_and_seal"})
    gone = DataConfig(
        kind="idx",
        path=tmp_path / "gone",
        digest="ab" * 32,
        labels=DataFile(path=tmp_path / "labels", digest="cd" * 32),
    )
    elsewhere = JOB.model_copy(update={"data": gone})
    looked: list[object] = []

    def looking(*places: Any) -> Examples:
        looked.append(places)
        return open_examples(*places)

    lacking = LightWorker(elsewhere, tmp_path, Inbox(), looking, opened_s=ENDED_S)
    for _ in range(2):
        with pytest.raises(UserError, match="gone"):
            lacking.carry_out(asked)
    assert len(looked) == 2  # somebody may have put them there
