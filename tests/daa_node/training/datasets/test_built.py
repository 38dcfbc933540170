"""A data set that somebody brings as code."""

from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
import torch
from blake3 import blake3
from pydantic import ValidationError

from daa_node.errors import TrainerFailed, UserError
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.core import open_core
from daa_node.training.data_config import DataConfig
from daa_node.training.dataset_probe import probe
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.model_config import ModelConfig
from daa_node.training.module_source import NO_MODULES
from tests.daa_node.training.cheats import Stage
from tests.daa_node.training.own_modules import PACKAGE, access, write_package

# windows that an index alone makes; CHANGES stands for what a test adds
SUMS = """
import numpy as np


class Sums:
    def __init__(self, length):
        self.length = length
        self.train_count, self.heldout_count = 2**40, 100

    def rows(self, indices):
        starts = indices[:, None] % 200 + np.arange(self.length + 1)
        return starts[:, :-1], starts[:, 1:]

    def train(self, indices):
        return self.rows(indices)

    def heldout(self, indices):
        return self.rows(-1 - indices)

CHANGES

def build(length=8):
    return Sums(length)
"""
MODEL = ModelConfig(width=8, heads=2, depth=1, context=8)


def job_of(directory: Path, changes: str = "", **arguments: object) -> TrainingJob:
    lines = [f"    {line}" for line in changes.splitlines()]
    source = write_package(directory, SUMS.replace("CHANGES", "\n".join(lines)))
    data = {
        "kind": "dataset",
        "path": f"{PACKAGE}.model:build",
        "arguments": arguments,
        "digest": blake3(source.read_bytes()).hexdigest(),
    }
    inner = InnerConfig(lr=0.01, warmup_steps=0, batch_size=4)
    return TrainingJob(model=MODEL, data=DataConfig.model_validate(data), inner=inner, seed=3)


def test_what_one_trains_on_it_another_trains_again_to_the_bit(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    stage = Stage(job, tmp_path, 6, 3)
    author, checker = (
        open_core(job, torch.device("cpu"), tmp_path, perf_counter, access(tmp_path))
        for _ in range(2)
    )
    author.train_and_seal(stage.order(round=1, merged_round=-1, first_step=0), stage.base_D(0))
    shown = stage.contribute(author)
    for found in stage.checks(checker, shown):
        assert (found.weights, found.first, found.second, found.sealed) == (0, 0, 0, 0)
    # the first step's windows, which the seed, the round and the author alone choose
    examples = open_examples(job.data, job.model, tmp_path, modules=access(tmp_path))
    assert (examples.train_count, examples.heldout_count, examples.tokens_each) == (2**40, 100, 8)
    batch = examples.train(np.array([5, 2**39]))
    assert batch.inputs[0].tolist() == list(range(5, 13))
    assert batch.targets[0].tolist() == list(range(6, 14))
    assert examples.heldout(np.array([0])).inputs[0, 0] == 199


def test_code_that_is_not_allowed_or_of_another_digest_is_not_run(tmp_path: Path) -> None:
    job = job_of(tmp_path, "raise SystemExit('it ran')")
    with pytest.raises(UserError, match="the dataset of this job is code that this host does not"):
        open_examples(job.data, MODEL, tmp_path, modules=NO_MODULES)
    other = job.data.model_copy(update={"digest": "ab" * 32})
    with pytest.raises(UserError, match="the dataset .* and the genesis was made with abab"):
        open_examples(other, MODEL, tmp_path, modules=access(tmp_path))
    with pytest.raises(UserError, match="the dataset .* cannot be imported: SystemExit: it ran"):
        open_examples(job.data, MODEL, tmp_path, modules=access(tmp_path))


def test_the_probe_finds_the_digest_of_what_comes_out_the_same_each_time(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    assert probe(job, access(tmp_path)) == job.data.digest


@pytest.mark.parametrize(
    "other",
    [
        "np.random.randint(0, 9, targets.shape)",  # each time
        "self.number",  # each time that it is built
    ],
)
def test_the_probe_refuses_rows_that_come_out_otherwise(tmp_path: Path, other: str) -> None:
    changes = f"""
BUILT = []

def train(self, indices):
    if not hasattr(self, "number"):
        self.BUILT.append(self)
        self.number = len(self.BUILT)
    inputs, targets = self.rows(indices)
    return inputs, targets + {other}
"""
    with pytest.raises(UserError, match=r"train\(indices\) gives other rows the second time"):
        probe(job_of(tmp_path, changes), access(tmp_path))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ("def train(self, indices):\n    return 1 / 0", "ZeroDivisionError: division by zero"),
        ("def train(self, indices):\n    return indices", "gave no pair of inputs and targets"),
        (
            "def train(self, indices):\n    return self.rows(indices[1:])",
            r"gave inputs of shape \(3, 8\) for 4 rows",
        ),
        (
            "def train(self, indices):\n    return self.rows(np.append(indices, 0))",
            r"gave inputs of shape \(5, 8\) for 4 rows",
        ),
        (
            "def train(self, indices):\n    return [['a'] * 8] * 4, indices",
            "gave inputs of type <U1",
        ),
        (
            "def train(self, indices):\n    return np.ones((2, 4, 8), complex)",
            "gave inputs of type complex128",
        ),
        (
            "def train(self, indices):\n    return np.stack(self.rows(indices)) + 100",
            "gave numbers from 199 to 307; the model knows 0 to 255",
        ),
        (
            "def rows(self, indices):\n    return indices, indices",
            r"gave inputs and targets of shapes \(4,\) and \(4,\)",
        ),
    ],
)
def test_rows_that_are_none_fail_the_training_and_say_why(
    tmp_path: Path, changes: str, why: str
) -> None:
    job = job_of(tmp_path, changes)
    examples = open_examples(job.data, MODEL, tmp_path, modules=access(tmp_path))
    with pytest.raises(TrainerFailed, match=f"the dataset {PACKAGE}.model:build.*{why}"):
        examples.train(np.array([99, 99, 199, 150]))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ("heldout = None", r"has no method heldout\(indices\)"),
        ("heldout_count = property(lambda self: 0, lambda self, _: None)", "heldout_count is 0"),
        (
            "train_count = property(lambda self: 2**62 + 1, lambda self, _: None)",
            "train_count is 4611686018427387905, not a number of examples from 1 to 2.62",
        ),
        ("def __init__(self, length):\n    raise SystemExit('out')", "cannot be built: SystemExit"),
    ],
)
def test_what_is_no_data_set_is_refused_before_training(
    tmp_path: Path, changes: str, why: str
) -> None:
    job = job_of(tmp_path, changes)
    with pytest.raises(UserError, match=why):
        open_examples(job.data, MODEL, tmp_path, modules=access(tmp_path))


def test_code_that_changes_its_indices_changes_nobody_elses(tmp_path: Path) -> None:
    job = job_of(
        tmp_path, "def train(self, indices):\n    indices += 1\n    return self.rows(indices)"
    )
    examples = open_examples(job.data, MODEL, tmp_path, modules=access(tmp_path))
    indices = np.arange(4)
    assert examples.train(indices).inputs[0, 0] == 1
    assert indices.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["byte_gpt", "hf_causal_lm"])
@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("np.full((len(indices), 8), 7), np.full((len(indices), 8), -100)", "numbers from -100 to"),
        ("np.full((len(indices), 8), 256), np.zeros((len(indices), 8), int)", "knows 0 to 255"),
        ("np.zeros((2, len(indices), 9), int)", r"T from 1 to 8"),
        ("np.zeros((2, len(indices), 0), int)", r"T from 1 to 8"),
        ("np.zeros((2, len(indices), 8))", "that are no whole numbers"),
    ],
)
def test_tokens_that_a_language_model_does_not_know_are_refused(
    tmp_path: Path, kind: str, rows: str, why: str
) -> None:
    config = {"config": {"model_type": "llama"}} if kind == "hf_causal_lm" else {}
    model = ModelConfig.model_validate({"kind": kind, "context": 8, **config})
    job = job_of(tmp_path, f"def rows(self, indices):\n    return {rows}")
    examples = open_examples(job.data, model, tmp_path, modules=access(tmp_path))
    with pytest.raises(TrainerFailed, match=why):
        examples.train(np.arange(3))


def test_a_module_takes_fractions_as_fp32_in_rows_one_behind_the_other(tmp_path: Path) -> None:
    """As docs/data.md says: in its inputs and its targets, however the code lays them out."""
    changes = """
def rows(self, indices):
    inputs = np.ones((8, len(indices)), np.float64).T * indices[:, None] / 8
    return inputs, inputs[:, :2] / 3
"""
    job = job_of(tmp_path, changes)
    model = ModelConfig.model_validate({"kind": "module", "path": f"{PACKAGE}.model:build"})
    batch = open_examples(job.data, model, tmp_path, modules=access(tmp_path)).train(np.arange(3))
    exact = np.arange(3)[:, None] * np.ones(8) / 8
    assert batch.inputs.dtype == np.float32
    assert batch.targets.dtype.name == "float32"
    assert (batch.inputs == exact).all()
    assert (batch.targets == (exact[:, :2] / 3).astype(np.float32)).all()
    assert batch.inputs.flags.c_contiguous
    assert batch.targets.flags.c_contiguous


@pytest.mark.parametrize("classes", [10, 11])
def test_pictures_of_ones_own_train_what_reads_pictures(tmp_path: Path, classes: int) -> None:
    changes = f"""
def rows(self, indices):
    return np.ones((len(indices), 64)) * self.length, indices % {classes}
"""
    job, model = job_of(tmp_path, changes), ModelConfig(kind="mlp", depth=1, width=8)
    examples = open_examples(job.data, model, tmp_path, modules=access(tmp_path))
    assert examples.tokens_each == 1
    if classes == 10:
        assert examples.train(np.arange(11)).inputs.dtype == np.float32
    else:
        with pytest.raises(TrainerFailed, match="numbers from 0 to 10; the model knows 0 to 9"):
            examples.train(np.arange(11))


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("np.ones((len(indices), 63)), indices % 10", r"takes \(B, 64\) fractions"),
        ("np.ones((len(indices), 64), int), indices % 10", r"type int64, .* \(B, 64\) fractions"),
        ("np.ones((len(indices), 64)), indices[:, None] % 10", r"\(3, 1\); the model takes"),
        ("np.ones((len(indices), 64)), -indices", "numbers from -2 to 0; the model knows 0 to 9"),
    ],
)
def test_pictures_that_a_model_does_not_know_are_refused(
    tmp_path: Path, kind: str, rows: str, why: str
) -> None:
    model = ModelConfig.model_validate({"kind": kind, "depth": 1, "width": 8})
    job = job_of(tmp_path, f"def rows(self, indices):\n    return {rows}")
    examples = open_examples(job.data, model, tmp_path, modules=access(tmp_path))
    with pytest.raises(TrainerFailed, match=why):
        examples.train(np.arange(3))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"kind": "dataset", "path": "corpus.txt"}, "a path like my_package.data:build"),
        ({"kind": "dataset"}, "a path like my_package.data:build"),
        ({"kind": "text", "path": "a", "arguments": {"n": 1}}, "take no arguments"),
    ],
)
def test_settings_that_fit_no_data_set_are_refused(data: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        DataConfig.model_validate(data)
    assert "arguments" not in DataConfig().model_dump()  # or networks made before had other ids
