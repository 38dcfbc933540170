"""A site of two processes against the one device that checks its work."""

from pathlib import Path
from textwrap import indent
from time import perf_counter, sleep

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.errors import UserError
from daa_node.seams import SegmentCheck, SegmentOrder, StateRef, TrainOrder
from daa_node.tensors import Float32Array, TensorSpec, UInt8Array, parameter_count_of
from daa_node.training.boundaries import Boundary, open_boundary
from daa_node.training.boundary_files import file_of
from daa_node.training.canary import NO_ROOT
from daa_node.training.config import InnerConfig, TrainerConfig, TrainingJob
from daa_node.training.core import Core, open_core
from daa_node.training.data_config import DataConfig
from daa_node.training.datasets.examples import Batch
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.opening import build_model, maker_of
from daa_node.training.module_config import BuiltModule, ModuleTensor
from daa_node.training.module_source import find_source
from daa_node.training.sealed_claims import Claim, ClaimedSeal
from daa_node.training.site.engine import shares_of
from daa_node.training.site.shards import blocks_of, check_shardable
from daa_node.updates.compression.codec import codec_named, decode
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.grid import to_float32
from tests.daa_node.training.own_modules import PACKAGE, access, built, job_of, write_package
from tests.daa_node.training.test_worker import train, worker

pytestmark = pytest.mark.usefixtures("warm")

SITE = TrainerConfig(devices=("cpu", "cpu"), niceness=0)
FLOOR = 5e-4  # what every check tolerates at least; see spot_checks/calibration
STEPS, SEGMENT_STEPS = 6, 4
BLOCKS = """
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, stream):
        return stream + self.down(self.up(self.norm(stream)).relu())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, 20)
        self.rnn = nn.GRU(20, 20, batch_first=True)
        self.blocks = nn.ModuleList([Block(20) for _ in range(3)])
        self.head = nn.Linear(20, 256, bias=False)
        self.head.weight = self.embedding.weight  # held twice

    def forward(self, inputs, targets):
        FIRST
        stream = self.rnn(self.embedding(inputs))[0]
        for block in self.blocks:
            stream = block(stream)
        return F.cross_entropy(self.head(stream).flatten(0, 1), targets.flatten())


def build():
    return Model()
"""
# 7 examples a step: one process takes four, the other three
INNER = InnerConfig(lr=0.01, warmup_steps=0, batch_size=7)
JOBS = {
    "byte_gpt": TrainingJob(
        model=ModelConfig(width=16, depth=2, heads=2, context=12), inner=INNER, seed=5
    ),
    "mlp": TrainingJob(
        model=ModelConfig(kind="mlp", depth=1, width=17),
        data=DataConfig(kind="digits"),
        inner=INNER,
        seed=5,
    ),
}
# what each of two processes gets of a step is more than is said in one message
JOBS["large batch"] = JOBS["mlp"].model_copy(
    update={"inner": INNER.model_copy(update={"batch_size": 10_001})}
)


def own_module(directory: Path, first: str = "") -> tuple[TrainingJob, TrainerConfig]:
    """A job with blocks in a list, and what allows it. `first`: lines that forward begins with."""
    lines = indent(first, " " * 8).strip()
    write_package(directory, BLOCKS.replace("FIRST", lines))
    job = job_of("shakespeare").model_copy(update={"inner": INNER})
    path, allowed = f"{PACKAGE}.model:build", access(directory)
    source = find_source(path, allowed)
    with maker_of(job.model, source, allowed) as make:
        opened = build_model(job.model, make, job.seed)
    tensors = tuple(
        ModuleTensor(name=name, shape=tuple(value.shape), std=3000)
        for name, value in opened.parameters.items()
    )
    found = BuiltModule(source_digest=source.digest, tensors=tensors)
    assert parameter_count_of([tensor.init.spec for tensor in tensors]) > 10_000
    config = SITE.model_copy(update={"allow_modules": (PACKAGE,), "module_path": directory})
    return built(job, found), config


def distances(job: TrainingJob, directory: Path, order: int, alone: Core) -> list[float]:
    """Of every number of every segment that the site shows of its round, trained again."""
    count = job.model.parameter_count()

    def boundary(index: int) -> Boundary:
        file = file_of(directory / f"boundaries-{order}", index)
        return open_boundary(np.fromfile(file, np.uint8), count, True)

    boundaries = [boundary(index) for index in range(3)]
    blob = np.fromfile(directory / f"sealed-{order}", np.uint8)
    base_D = genesis_weights(job.model, job.seed)
    sealed = ClaimedSeal(base_D, boundaries[-1], blob, "int8")
    found: list[float] = []
    for index, (step, steps) in enumerate([(0, SEGMENT_STEPS), (SEGMENT_STEPS, 2)]):
        names = Digest(bytes(32)), order, NodeId(bytes(32)), 0, step, steps
        segment = SegmentOrder(*names, NO_ROOT, NO_ROOT, None)
        check: SegmentCheck = alone.check_segment(
            segment, Claim(boundaries[index], boundaries[index + 1], sealed)
        )
        assert check.steps_agree
        assert check.sealed is not None
        found += [check.weights, check.first, check.second, check.residual, check.sealed]
    return found


def orders() -> list[TrainOrder]:
    """The two rounds of these tests."""
    names = StateRef(BlobRoot(bytes(32)), BlobRoot(bytes(32))), Digest(bytes(32))
    return [
        TrainOrder(
            *(*names, number, NodeId(bytes(32)), STEPS, 60.0, "int8", 0, merged),
            ahead_max=STEPS - 1,
        )
        for number, merged in ((1, -1), (2, 1))
    ]


@pytest.mark.parametrize("kind", ["byte_gpt", "mlp", "large batch", "module"])
def test_what_a_site_seals_is_what_one_device_replays(tmp_path: Path, kind: str) -> None:
    job, config = own_module(tmp_path / "code") if kind == "module" else (JOBS[kind], SITE)
    alone = open_core(
        *(job, torch.device("cpu"), tmp_path / "cache", perf_counter), access(tmp_path / "code")
    )
    losses: list[float] = []
    (tmp_path / "site-1").write_bytes(b"where others met, who were killed")
    with worker(tmp_path, job, config) as (line, _):
        assert line.wait_for("ready")["ready"]["device"] == "cpu + cpu"
        assert [*tmp_path.glob("site-*")] == []
        for order, merged in ((1, -1), (2, 1)):
            line.send(train(tmp_path, order, STEPS, merged, SEGMENT_STEPS, job))
            done = line.wait_for("done")
            assert done["steps"] == STEPS
            losses.append(done["loss_nats"])
        line.send({"order": 3, "verb": "evaluate", "model": str(tmp_path / "model")})
        loss = line.wait_for("done")["loss_nats"]
    assert loss == pytest.approx(alone.evaluate(genesis_weights(job.model, job.seed)), abs=1e-5)
    for order in (1, 2):
        found = distances(job, tmp_path, order, alone)
        assert max(found) < FLOOR
    assert max(found) > 0  # two processes did share the steps: sums came in another order
    base_D = genesis_weights(job.model, job.seed)
    trained = [alone.train_and_seal(order, base_D).trained.loss_nats for order in orders()]
    assert losses == pytest.approx(trained, abs=1e-5)


def sent(job: TrainingJob, blob: UInt8Array) -> Float32Array:
    """What an update of int8 moves each parameter by."""
    count = job.model.parameter_count()
    return to_float32(decode(codec_named("int8"), blob, 0, count, count))


def trained_on_alone(job: TrainingJob, cache_dir: Path, ahead: int) -> Float32Array:
    """What one device sends of round 2 after so many steps that it took before the order."""
    alone = open_core(job, torch.device("cpu"), cache_dir, perf_counter)
    base_D = genesis_weights(job.model, job.seed)
    rounds = orders()
    alone.train_and_seal(rounds[0], base_D)
    for _ in range(ahead):
        assert alone.train_on()
    return sent(job, alone.train_and_seal(rounds[1], base_D).blob)


def test_a_site_trains_on_between_orders_as_one_device_does(tmp_path: Path) -> None:
    """How many steps it had time for is the machine's matter; a judgement comes between them."""
    updates = UpdatesConfig(rule="mean", f_agg=0, train_on=True)
    job = JOBS["mlp"].model_copy(update={"updates": updates})
    with worker(tmp_path, job, SITE) as (line, _):
        line.wait_for("ready")
        for order, merged in ((1, -1), (2, 1)):
            line.send(train(tmp_path, order, STEPS, merged, 0, job))
            assert line.wait_for("done")["steps"] == STEPS
            line.send({"order": 2 + order, "verb": "evaluate", "model": str(tmp_path / "model")})
            line.wait_for("done")
            sleep(1.0)
    sent_D = sent(job, np.fromfile(tmp_path / "sealed-2", np.uint8))
    away = [
        float(np.abs(sent_D - trained_on_alone(job, tmp_path / "cache", ahead)).max())
        for ahead in range(STEPS)
    ]
    assert int(np.argmin(away)) > 0
    assert min(away) < FLOOR < away[0]


def test_a_batch_is_divided_and_who_has_none_of_it_counts_nothing() -> None:
    batch = Batch(np.arange(10).reshape(5, 2), np.arange(5))
    first, second = shares_of(batch, 2)
    assert [share.batch.targets.tolist() for share in (first, second)] == [[0, 1, 2], [3, 4]]
    assert (first.weight, second.weight) == (6 / 5, 4 / 5)
    small = shares_of(Batch(batch.inputs[:1], batch.targets[:1]), 3)
    assert [share.batch.targets.tolist() for share in small] == [[0], [0], [0]]
    assert [share.weight for share in small] == [3, 0, 0]


def test_what_is_gathered_by_itself_shares_no_parameter_with_the_rest() -> None:
    tied, own = nn.Linear(2, 2), nn.Linear(2, 2)
    module = nn.ModuleDict({"list": nn.ModuleList([tied, own]), "head": nn.Linear(2, 2)})
    assert list(blocks_of(module)) == [tied, own]
    module["head"].weight = tied.weight
    assert list(blocks_of(module)) == [own]


def test_a_tensor_without_rows_cannot_be_shared() -> None:
    with pytest.raises(UserError, match="gain has the shape"):
        check_shardable((TensorSpec("weight", (2, 3)), TensorSpec("gain", ())))


def test_a_model_that_is_not_allowed_is_refused_by_whoever_sees_it_first(tmp_path: Path) -> None:
    job, _ = own_module(tmp_path / "code")
    with worker(tmp_path, job, SITE) as (line, _):
        said = line.wait_for("refused")["refused"]
    assert said.startswith("rank 1 of 2: ")
    assert "trainer.allow_modules" in said


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"device": "cpu", "devices": ["cpu", "cpu"]}, "in trainer.devices alone"),
        ({"devices": ["cuda:0", "cuda:0"]}, "names a GPU twice"),
        ({"devices": ["cuda:0", "cpu"]}, "GPUs by their numbers"),
        ({"devices": ["auto"]}, "GPUs by their numbers"),
        ({"devices": ["cuda"]}, "GPUs by their numbers"),
    ],
)
def test_devices_that_cannot_train_together_are_refused(
    settings: dict[str, object], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        TrainerConfig.model_validate(settings)
