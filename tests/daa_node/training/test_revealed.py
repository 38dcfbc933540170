"""Batches that nobody else has, shown in boundaries: who checks takes them instead of its own."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
import torch

from daa_dag.chunking import Manifest, manifest_of
from daa_node.seams import SegmentCheck
from daa_node.spot_checks.continuity import owe_the_same, why_not
from daa_node.training.boundaries import Boundary, Ends, boundary_chunks, boundary_steps
from daa_node.training.boundary_files import BoundaryFiles, file_of
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.core import Core, open_core
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import OwnFiles
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.model_config import ModelConfig
from daa_node.training.revealed import RevealedExamples, step_bytes
from tests.daa_node.training.cheats import Shown, Stage
from tests.daa_node.training.datasets.picture_files import write_idx

STEPS, SEGMENT_STEPS = 7, 4
INNER = InnerConfig(lr=0.01, warmup_steps=0, batch_size=4)
FAR = 0.01


def text_job(directory: Path, host: int) -> TrainingJob:
    """Of one host: what it alone has, and what all hold out."""
    directory.mkdir(exist_ok=True)
    held, own = directory / "heldout.txt", directory / f"own-{host}.txt"
    held.write_text("what nobody trains on " * 30)
    own.write_text(f"host number {host} has this and no other text, " * 30)
    return TrainingJob(
        model=ModelConfig(width=8, heads=2, depth=1, context=8),
        data=DataConfig(kind="local", format="text", path=held, reveal=True),
        own=OwnFiles(path=own),
        inner=INNER,
        seed=3,
    )


def picture_job(directory: Path, host: int) -> TrainingJob:
    chance = np.random.default_rng(host)
    files = []
    for name in ("heldout", f"own-{host}"):
        room = directory / name
        room.mkdir(parents=True, exist_ok=True)
        pixels = chance.integers(0, 256, (40, 8, 8)).astype(np.uint8)
        files.append(write_idx(room, pixels, (np.arange(40) % 10).astype(np.uint8)))
    held, own = files
    assert held.labels is not None
    assert own.labels is not None
    return TrainingJob(
        model=ModelConfig(kind="mlp", depth=1, width=8),
        data=held.model_copy(update={"kind": "local", "format": "idx", "reveal": True}),
        own=OwnFiles(path=own.path, labels=own.labels.path),
        inner=INNER,
        seed=3,
    )


def core(job: TrainingJob, directory: Path) -> Core:
    return open_core(job, torch.device("cpu"), directory / "cache", perf_counter)


JOBS = [text_job, picture_job]


def honest(make: Callable[[Path, int], TrainingJob], directory: Path) -> tuple[Stage, Shown]:
    """Its second round."""
    stage = Stage(make(directory, 1), directory, STEPS, SEGMENT_STEPS)
    author = core(stage.job, directory)
    author.train_and_seal(stage.order(round=1, merged_round=-1, first_step=0), stage.base_D(0))
    shown: list[Boundary] = []
    sealed = author.train_and_seal(
        stage.order(), stage.base_D(0), on_boundary=lambda passed: shown.append(own(passed))
    )
    return stage, Shown([*shown, own(sealed.end)], sealed.blob)


def own(boundary: Boundary) -> Boundary:
    copies = {
        name: getattr(boundary, name).copy()
        for name in ("weights_D", "first_D", "second_D", "residual_D", "revealed")
    }
    return replace(boundary, **copies)


def furthest(found: list[SegmentCheck]) -> float:
    return max(max(one.weights, one.first, one.second, one.sealed or 0.0) for one in found)


@pytest.mark.parametrize("make", JOBS)
def test_who_has_other_data_takes_the_very_same_steps(
    tmp_path: Path, make: Callable[[Path, int], TrainingJob]
) -> None:
    stage, shown = honest(make, tmp_path)
    checker = core(make(tmp_path, 2), tmp_path)
    assert furthest(stage.checks(checker, shown)) == 0.0
    first, middle, last = (boundary.revealed for boundary in shown.boundaries)
    assert first is not None
    assert middle is not None
    assert last is not None
    size = step_bytes(stage.job.data, stage.job.model, INNER.batch_size)
    assert [room.size for room in (first, middle, last)] == [SEGMENT_STEPS * size] * 3
    assert not first.any()
    assert last[: 3 * size].any()
    assert not last[3 * size :].any()  # three steps were left
    # its own training goes on with data of its own
    one, other = (core(make(tmp_path, 2), tmp_path) for _ in range(2))
    stage.checks(one, shown)
    blobs = [at.train_and_seal(stage.order(), stage.base_D(0)).blob for at in (one, other)]
    assert (blobs[0] == blobs[1]).all()


@pytest.mark.parametrize("make", JOBS)
def test_other_batches_than_were_trained_on_are_seen(
    tmp_path: Path, make: Callable[[Path, int], TrainingJob]
) -> None:
    stage, shown = honest(make, tmp_path)
    checker = core(make(tmp_path, 2), tmp_path)
    start, middle, end = shown.boundaries
    swapped = [start, replace(middle, revealed=end.revealed), end]
    found = stage.checks(checker, Shown(swapped, shown.blob))
    assert furthest(found[:1]) > FAR
    assert furthest(found[1:]) == 0.0


@pytest.mark.parametrize("make", JOBS)
@pytest.mark.parametrize("spoilt", [0xFF, None])
def test_batches_that_are_none_are_infinitely_far(
    tmp_path: Path, make: Callable[[Path, int], TrainingJob], spoilt: int | None
) -> None:
    stage, shown = honest(make, tmp_path)
    start, middle, end = shown.boundaries
    assert middle.revealed is not None
    rotten = middle.revealed[:-1] if spoilt is None else np.full_like(middle.revealed, spoilt)
    found = stage.checks(
        core(make(tmp_path, 2), tmp_path),
        Shown([start, replace(middle, revealed=rotten), end], shown.blob),
    )
    assert found[0].weights == inf
    assert furthest(found[1:]) == 0.0


@pytest.mark.parametrize(
    ("make", "offset", "number"),
    [
        (text_job, 0, np.int32(256)),  # the model knows 256 bytes
        (text_job, 4, np.int32(-1)),
        (picture_job, 0, np.float32("nan")),
        (picture_job, 4, np.float32("inf")),
        (picture_job, -4, np.int32(10)),  # ten classes
        (picture_job, -4, np.int32(-100)),  # which torch would leave out of the mean
    ],
)
def test_one_number_that_is_none_is_enough(
    tmp_path: Path,
    make: Callable[[Path, int], TrainingJob],
    offset: int,
    number: np.generic,
) -> None:
    job = make(tmp_path, 1)
    examples = open_examples(job.data, job.model, tmp_path / "cache", job.own)
    revealed = RevealedExamples(examples, job.data, job.model, INNER.batch_size)
    with revealed.noting():
        revealed.train(np.arange(INNER.batch_size))
        room = revealed.noted(1)
    with revealed.showing(room, 1):
        pass
    room[offset : offset + 4 or None] = np.frombuffer(number.tobytes(), np.uint8)
    with pytest.raises(ValueError, match="of step 0|step 0: "), revealed.showing(room, 1):
        pass


def test_what_names_tell_is_told_with_batches_behind_the_state(tmp_path: Path) -> None:
    stage = Stage(text_job(tmp_path, 1), tmp_path, STEPS, SEGMENT_STEPS)
    author, rounds = core(stage.job, tmp_path), list[list[Manifest]]()
    ends: Ends = {}
    for number in (1, 2):
        room = tmp_path / str(number)
        room.mkdir()
        files = BoundaryFiles(room, ends)
        order = stage.order(round=number, merged_round=number - 1, first_step=0)
        sealed = author.train_and_seal(order, stage.base_D(0), on_boundary=files.add)
        files.end_with(sealed.end)
        files.write_last()
        rounds.append(files.manifests)
        size = stage.job.model.parameter_count()
        room_bytes = SEGMENT_STEPS * step_bytes(stage.job.data, stage.job.model, INNER.batch_size)
        sizes = boundary_chunks(size, True, room_bytes)
        for index, manifest in enumerate(files.manifests):
            assert manifest.sizes == sizes
            blob = file_of(room, index).read_bytes()
            assert manifest == _manifest(blob, sizes)  # what is hashed once is what is there
    (_, _, before), (first, middle, last) = rounds
    assert len(boundary_steps(STEPS, SEGMENT_STEPS)) == 3
    base = _manifest(file_of(tmp_path / "2", 0).read_bytes()[: 4 * size], sizes[:1])
    assert why_not(first, base, before, sizes, shown=1) is None
    assert why_not(first, base, middle, sizes, shown=1) is not None
    assert owe_the_same(first, base, [middle], shown=1)
    assert not owe_the_same(first, base, [last], shown=1)


def _manifest(blob: bytes, sizes: tuple[int, ...]) -> Manifest:
    return manifest_of(memoryview(blob), sizes)
