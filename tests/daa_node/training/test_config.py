"""The genesis' parts about training: what they refuse, and the table of tensors without torch."""

import subprocess
import sys
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from daa_dag.ids import Digest
from daa_node.genesis import Job, check_rules_of
from daa_node.tensors import slots_of
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import DataPlaces
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.updates.config import UpdatesConfig


def test_the_table_of_tensors_and_the_first_weights_need_no_torch() -> None:
    probe = (
        "import sys; from daa_node.training.config import ModelConfig;"
        "from daa_node.training.genesis_state import genesis_weights;"
        "genesis_weights(ModelConfig(width=16, depth=1), 3); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_a_device_is_one_that_torch_may_have() -> None:
    for device in ("auto", "cpu", "mps", "cuda", "cuda:0", "cuda:15"):
        assert TrainerConfig(device=device).device == device
    for device in ("gpu", "cuda:", "cuda:-1", "cuda:01", "cuda:1000", "cpu:0", "CUDA"):
        with pytest.raises(ValidationError, match="is no device: auto, cpu, cuda, mps, or one GPU"):
            TrainerConfig(device=device)


@pytest.mark.parametrize(
    ("trainable", "places"),
    [
        ({"lora": {"rank": 0, "alpha": 1, "targets": ["q"]}}, ["rank"]),
        ({"lora": {"rank": 1, "targets": ["q"]}}, ["alpha"]),
        ({}, ["lora"]),
        (["a", ""], [1]),
        ("a", ["names"]),
    ],
)
def test_of_two_ways_to_say_what_is_trained_only_the_one_that_was_taken_is_told_of(
    trainable: object, places: list[object]
) -> None:
    base = {"kind": "hf_causal_lm", "base": {"path": "x"}, "context": 8}
    with pytest.raises(ValidationError) as refused:
        ModelConfig.model_validate({**base, "trainable": trainable})
    assert [error["loc"][-1] for error in refused.value.errors()] == places


def test_the_demo_model_has_the_size_that_was_measured() -> None:
    assert ModelConfig().parameter_count() == 362_496
    assert ModelConfig(kind="mlp", depth=2, width=32).parameter_count() == (
        64 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10
    )


def test_initial_weights_have_the_deviations_of_the_table() -> None:
    model = ModelConfig(width=64, depth=2)
    weights_D = genesis_weights(model, seed=9) * 2.0**-24
    deviations = {
        slot.spec.name: float(np.std(weights_D[slot.start : slot.stop]))
        for slot in slots_of(model.tensors())
    }
    assert deviations["embedding"] == pytest.approx(1 / 20, rel=0.02)
    assert deviations["position"] == pytest.approx(1 / 50, rel=0.05)
    assert deviations["blocks.1.attention.qkv"] == pytest.approx(0.5 / sqrt(64), rel=0.02)
    assert deviations["blocks.0.mlp.down"] == pytest.approx(0.5 / sqrt(4 * 64 * 4), rel=0.02)


def test_another_seed_gives_other_weights_and_the_same_seed_the_same() -> None:
    model = ModelConfig(width=16, depth=1)
    assert (genesis_weights(model, 1) == genesis_weights(model, 1)).all()
    assert (genesis_weights(model, 1) != genesis_weights(model, 2)).mean() > 0.99


def test_training_on_is_refused_where_anybody_is_to_be_checked() -> None:
    job: dict[str, object] = {"name": "t", "end": {"rounds": 1}, "updates": {"train_on": True}}
    with pytest.raises(ValidationError, match=r"set spot_checks.share to \[0, 1\]"):
        Job.model_validate(job)
    unchecked = job | {"spot_checks": {"share": [0, 1]}}
    assert Job.model_validate(unchecked).updates.train_on
    local = {"kind": "local", "format": "text", "path": "held", "reveal": True}
    for revealed in (job, unchecked):
        with pytest.raises(ValidationError, match=r"\[0, 1\] and leave data.reveal out"):
            Job.model_validate(revealed | {"data": local})


def test_chunks_of_the_usual_size_are_written_as_before_there_were_others() -> None:
    assert "chunk_bytes" not in UpdatesConfig().model_dump()
    assert UpdatesConfig(chunk_bytes=4096).model_dump()["chunk_bytes"] == 4096


def test_a_job_whose_delta_has_more_chunks_than_a_blob_may_is_refused() -> None:
    model = {"kind": "mlp", "depth": 2, "width": 3100}  # 9.9 million parameters
    data = {"kind": "digits"}
    job: dict[str, object] = {"name": "t", "end": {"rounds": 1}, "model": model, "data": data}
    assert Job.model_validate(job | {"updates": {"chunk_bytes": 1024}})
    with pytest.raises(ValidationError, match=r"chunk_bytes is 64.* or more will do"):
        Job.model_validate(job | {"updates": {"chunk_bytes": 64}})


def test_a_job_that_does_not_train_on_is_written_as_before_anybody_could() -> None:
    assert "train_on" not in UpdatesConfig().model_dump()
    assert "train_on" not in UpdatesConfig().model_dump_json()
    assert UpdatesConfig(train_on=True).model_dump()["train_on"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"width": 98, "heads": 4}, "width 98 is not a multiple of heads 4"),
        ({"vocabulary": 128}, "greater than or equal to 256"),
        ({"depth": 128, "width": 4096}, "at most 1073741824"),
        ({"hieght": 3}, "hieght"),
        ({"kind": "cnn", "picture_side": 28, "depth": 5}, "side of 28; 4 layers at most"),
    ],
)
def test_a_model_that_cannot_be_is_refused_with_the_numbers(
    fields: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        ModelConfig.model_validate(fields)


def test_data_needs_a_path_exactly_where_there_is_a_file() -> None:
    with pytest.raises(ValidationError, match="jsonl needs a path"):
        DataConfig(kind="jsonl")
    with pytest.raises(ValidationError, match="takes no path"):
        DataConfig.model_validate({"kind": "digits", "path": "x"})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "idx", "path": "x"}, "have a file of labels"),
        ({"kind": "text", "path": "x", "labels": {"path": "y"}}, "no other kind has one"),
        ({"kind": "text", "path": "x", "column": "content"}, "column is for jsonl and parquet"),
        ({"kind": "shakespeare", "column": "content"}, "and not shakespeare"),
        ({"kind": "text", "path": "x", "token_type": "uint16"}, "token_type"),
    ],
)
def test_files_that_do_not_belong_to_the_kind_are_refused(
    fields: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        DataConfig.model_validate(fields)


@pytest.mark.parametrize(
    ("data", "model", "words"),
    [
        ({"kind": "cifar10", "path": "x"}, {}, "kind byte_gpt does not train on data of .*cifar10"),
        ({"kind": "text", "path": "x"}, {"kind": "cnn"}, "kind cnn does not train on data .*text"),
        ({"kind": "digits"}, {"kind": "mlp", "picture_side": 28}, "picture_side is 28, .* have 8"),
        (
            {"kind": "cifar100", "path": "x"},
            {"kind": "cnn", "picture_side": 32, "picture_channels": 3},
            "classes is 10, .* have 100",
        ),
    ],
)
def test_a_network_whose_model_does_not_fit_its_data_is_refused(
    data: dict[str, object], model: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        Job.model_validate({"name": "t", "end": {"rounds": 1}, "data": data, "model": model})


def test_local_data_are_refused_where_anybody_is_to_be_checked() -> None:
    job: dict[str, object] = {"name": "t", "end": {"rounds": 1}}
    job["data"] = {"kind": "local", "format": "text", "path": "heldout.txt"}
    with pytest.raises(ValidationError, match=r"set spot_checks.share to \[0, 1\]"):
        Job.model_validate(job)
    off = {"spot_checks": {"share": [0, 1]}}
    made = Job.model_validate(job | off)
    assert made.data.items_kind == "text"
    assert (made.revealed_bytes, "reveal" in made.data.model_dump()) == (0, False)


def test_local_data_may_be_checked_where_their_batches_are_shown() -> None:
    data = {"kind": "local", "format": "text", "path": "heldout.txt", "reveal": True}
    job: dict[str, object] = {"name": "t", "end": {"rounds": 1}, "data": data}
    made = Job.model_validate(job)
    steps = made.spot_checks.segment_steps(made.rounds.inner_steps_max)
    assert made.revealed_bytes == steps * 4 * 65 * 4  # 4 windows of 64 tokens and one, 4 bytes each
    rules = check_rules_of(made)
    assert (rules.boundary_chunks[-1], rules.shown_chunks) == (made.revealed_bytes, 1)
    assert not rules.steps_convict
    larger = Job.model_validate(job | {"inner": {"batch_size": 1024}})
    rules = check_rules_of(larger)
    assert rules.shown_chunks > 1
    assert sum(rules.boundary_chunks[-rules.shown_chunks :]) == larger.revealed_bytes
    with pytest.raises(ValidationError, match="nobody is checked with spot_checks.share"):
        Job.model_validate(job | {"spot_checks": {"share": [0, 1]}})
    with pytest.raises(ValidationError, match="reveal is for local alone"):
        Job.model_validate(job | {"data": {"reveal": True}})
    with pytest.raises(ValidationError, match="batches of one segment are .* bytes, at most"):
        Job.model_validate(job | {"inner": {"batch_size": 65_536}})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "local", "path": "x"}, "have a format"),
        ({"kind": "text", "path": "x", "format": "text"}, "no other kind has one"),
        ({"kind": "local", "format": "idx", "path": "x"}, "have a file of labels"),
        ({"kind": "local", "format": "text"}, "needs a path, or a digest"),
        ({"kind": "local", "format": "digits", "path": "x"}, "format"),
    ],
)
def test_local_data_say_their_format_and_what_is_held_out(
    fields: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        DataConfig.model_validate(fields)


def test_a_host_says_where_its_files_lie_and_a_moved_file_is_no_other_job() -> None:
    data = DataConfig.model_validate(
        {"kind": "idx", "path": "pictures", "digest": "ab" * 32, "labels": {"path": "labels"}}
    )
    root = Path("/node")
    here = data.placed(DataPlaces(), root)
    there = data.placed(DataPlaces(path=Path("/disk/p.gz"), labels=Path("l")), root)
    for placed, paths in (
        (here, ("/node/pictures", "/node/labels")),
        (there, ("/disk/p.gz", "/node/l")),
    ):
        assert placed.labels is not None
        assert (str(placed.path), str(placed.labels.path)) == paths
    mlp = ModelConfig(kind="mlp")
    jobs = [TrainingJob(model=mlp, data=placed) for placed in (here, there)]
    assert jobs[0].digest() == jobs[1].digest()
    other = data.model_copy(update={"digest": "cd" * 32})
    assert TrainingJob(model=mlp, data=other).digest() != jobs[0].digest()


def test_the_jobs_digest_follows_every_part() -> None:
    job = TrainingJob()
    assert job.digest() == TrainingJob.model_validate_json(job.model_dump_json()).digest()
    others = [
        job.model_copy(update={"seed": 1}),
        job.model_copy(update={"model": ModelConfig(depth=2)}),
        job.model_copy(update={"inner": job.inner.model_copy(update={"beta2": 0.99})}),
    ]
    assert len({job.digest(), *(other.digest() for other in others)}) == 4


def test_a_base_that_was_moved_is_the_same_job() -> None:
    def digest(path: str, root: str) -> Digest:
        model = ModelConfig.model_validate(
            {"kind": "hf_causal_lm", "base": {"path": path, "files": {"config.json": root * 32}}}
        )
        return TrainingJob(model=model).digest()

    assert digest("here", "ab") == digest("there", "ab")
    assert digest("here", "ab") != digest("here", "cd")
