"""A machine is measured by the worker that would train, which says at once what would stop it."""

import gzip
from pathlib import Path

import pytest

from daa_node.cli.speed import Speed, measured
from daa_node.errors import UserError
from daa_node.genesis import Job
from daa_node.rounds.config import EndConfig, RoundsConfig
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.data_config import DataConfig
from daa_node.training.model_config import ModelConfig


def job_of(**given: object) -> Job:
    made = Job(
        name="speed",
        model=ModelConfig(depth=1, width=16, heads=2, context=16),
        rounds=RoundsConfig(inner_steps_max=8, window_ms=10_000),
        end=EndConfig(rounds=1),
    )
    return made.model_copy(update=given)


def training(job: Job) -> TrainingJob:
    return TrainingJob(
        model=job.model,
        data=job.data,
        inner=job.inner,
        evaluation=job.evaluation,
        updates=job.updates,
        seed=job.seed,
    )


def test_some_steps_are_taken_and_compared_with_a_round(tmp_path: Path) -> None:
    job = job_of()
    speed = measured(job, training(job), TrainerConfig(device="cpu"), tmp_path)
    assert speed.device.startswith("cpu")
    assert speed.tokens_per_s > 0
    assert speed.us_per_step == pytest.approx(job.tokens_per_step * 1e6 / speed.tokens_per_s)
    assert (speed.steps_max, speed.train_s) == (8, 7.0)


def test_a_file_of_data_that_is_not_here_is_said_before_anything_is_joined(tmp_path: Path) -> None:
    lost = DataConfig.model_validate(
        {"kind": "text", "path": str(tmp_path / "gone.txt"), "digest": "ab" * 32}
    )
    job = job_of(data=lost)
    with pytest.raises(UserError, match="this machine cannot train that network's job: .*gone"):
        measured(job, training(job), TrainerConfig(device="cpu"), tmp_path)


def test_a_disk_that_takes_nothing_is_told_like_all_else(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("in the way")
    job = job_of()
    with pytest.raises(UserError, match="cannot train that network's job: .*work"):
        measured(job, training(job), TrainerConfig(device="cpu"), tmp_path)


def test_where_temporary_files_have_no_place_it_says_how_to_give_them_another(
    tmp_path: Path,
) -> None:
    packed, room = tmp_path / "corpus.txt.gz", tmp_path / "room"
    packed.write_bytes(gzip.compress(b"so many words " * 20_000))
    cache = room / "trainer" / "cache"
    cache.parent.mkdir(parents=True)
    cache.write_text("in the way")  # as a disk that is full, to who unpacks
    job = job_of(data=DataConfig(kind="text", path=packed))
    with pytest.raises(UserError, match=f"cannot unpack .* in {cache}: .* set TMPDIR to"):
        measured(job, training(job), TrainerConfig(device="cpu"), room)
    lost = job_of(data=DataConfig(kind="text", path=tmp_path / "gone.txt"))
    with pytest.raises(UserError) as refused:
        measured(lost, training(lost), TrainerConfig(device="cpu"), tmp_path / "other")
    assert "TMPDIR" not in str(refused.value)


def test_what_was_made_of_packed_data_is_weighed(tmp_path: Path) -> None:
    words, packed = b"so many words " * 20_000, tmp_path / "corpus.txt.gz"
    packed.write_bytes(gzip.compress(words))
    job = job_of(data=DataConfig(kind="text", path=packed))
    speed = measured(job, training(job), TrainerConfig(device="cpu"), tmp_path / "room")
    assert speed.data_bytes == len(words)


@pytest.mark.parametrize(("us_per_step", "fit"), [(1_000, 32), (1_000_000, 7), (8_000_000, 0)])
def test_so_many_steps_fit_as_there_is_time_for(us_per_step: int, fit: int) -> None:
    assert Speed("cpu", us_per_step, 1.0, 32, 7.0).steps_in_time == fit
