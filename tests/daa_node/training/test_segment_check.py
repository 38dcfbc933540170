"""A segment trained again: an honest one follows from its start, and what cheats show does not."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
import torch

from daa_node.errors import PeerFault, TrainerFailed
from daa_node.seams import SegmentCheck, SegmentOrder
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.model_config import ModelConfig
from daa_node.training.sealed_claims import Claim, ClaimedSeal
from daa_node.training.segment_check import distance
from daa_node.updates.grid import CHUNK_PARAMETERS
from tests.daa_node.training.cheats import (
    ALICE,
    AT_THE_SEAL,
    CHEATS,
    CODEC,
    NO_ROOT,
    Shown,
    Stage,
    doubles_its_gradients,
    honest,
)

JOB = TrainingJob(
    model=ModelConfig(width=32, depth=1, context=16),
    inner=InnerConfig(lr=0.006, warmup_steps=5, total_steps=100, batch_size=4),
)
NEAR, FAR = 1e-4, 1e-2  # what honest segments stay under, and cheats above


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(JOB, tmp_path, steps=8, segment_steps=4)


def furthest(found: list[SegmentCheck]) -> float:
    return max(max(one.weights, one.sealed or 0.0) for one in found)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_honest_segment_follows_from_its_start(stage: Stage, threads: int) -> None:
    shown, before = honest(stage), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = stage.checks(stage.core(), shown)
    finally:
        torch.set_num_threads(before)
    for one in found:
        assert max(one.weights, one.first, one.second, one.residual) < NEAR
        assert one.sealed is not None
        assert one.sealed < NEAR
        assert one.steps_agree
    assert len(found) == 2


def test_without_error_feedback_nothing_is_owed(tmp_path: Path) -> None:
    updates = JOB.updates.model_copy(update={"error_feedback": False})
    stage = Stage(JOB.model_copy(update={"updates": updates}), tmp_path, 7, 4)
    found = stage.checks(stage.core(), honest(stage))
    assert furthest(found) < NEAR
    assert [one.residual for one in found] == [0.0, 0.0]


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_a_cheat_shows_does_not_follow(stage: Stage, cheat: Callable[[Stage], Shown]) -> None:
    assert furthest(stage.checks(stage.core(), cheat(stage))) > FAR


@pytest.mark.parametrize("cheat", AT_THE_SEAL)
def test_a_cheat_at_the_seal_is_seen_in_every_segment(
    stage: Stage, cheat: Callable[[Stage], Shown]
) -> None:
    found = stage.checks(stage.core(), cheat(stage))
    assert [(one.sealed or 0.0) > FAR for one in found] == [True, True]
    assert max(one.weights for one in found) < NEAR  # the rest of it is honest work


def test_a_wrong_count_of_steps_or_residual_is_seen(stage: Stage) -> None:
    shown = honest(stage)
    start, middle, end = shown.boundaries
    assert end.residual_D is not None
    moved = replace(end, residual_D=end.residual_D * np.float32(1.5))
    early = replace(middle, adam_steps=middle.adam_steps - 1)
    found = stage.checks(stage.core(), Shown([start, middle, moved], shown.blob))
    assert [one.residual > FAR for one in found] == [True, True]
    found = stage.checks(stage.core(), Shown([start, early, end], shown.blob))
    assert [one.steps_agree for one in found] == [False, False]


def test_numbers_that_are_none_are_infinitely_far(stage: Stage) -> None:
    shown = honest(stage)
    for name in ("weights_D", "first_D", "residual_D"):
        for place in range(3):
            boundaries = list(shown.boundaries)
            values_D = getattr(boundaries[place], name).copy()
            values_D[7] = np.nan
            boundaries[place] = replace(boundaries[place], **{name: values_D})
            found = stage.checks(stage.core(), Shown(boundaries, shown.blob))
            assert any(inf in (one.weights, one.first, one.residual) for one in found)


def test_training_goes_on_as_if_no_check_had_come_in_between(stage: Stage) -> None:
    shown = honest(stage)
    disturbed, quiet = stage.author(), stage.author()
    stage.checks(disturbed, shown)
    stage.checks(disturbed, doubles_its_gradients(stage))
    blobs = [stage.contribute(core) for core in (disturbed, quiet)]
    stage.checks(disturbed, shown)
    later = stage.order(round=3, merged_round=2)
    blobs += [stage.contribute(core, later) for core in (disturbed, quiet)]
    for one, other in (blobs[:2], blobs[2:]):
        assert (one.blob == other.blob).all()
        for ours, theirs in zip(one.boundaries, other.boundaries, strict=True):
            assert b"".join(ours.parts()) == b"".join(theirs.parts())


def test_a_check_ends_at_the_step_after_it_is_cancelled(stage: Stage) -> None:
    shown, task, looks = honest(stage), stage.order(), iter([False, True])
    segment = SegmentOrder(
        *(task.seed, task.round, ALICE, task.first_step, 0, 4, NO_ROOT, NO_ROOT, None)
    )
    claim = Claim(shown.boundaries[0], shown.boundaries[1], None)
    with pytest.raises(TrainerFailed, match="cancelled after 2 inner steps"):
        stage.core().check_segment(segment, claim, lambda: next(looks))


def test_an_update_that_no_codec_makes_is_its_authors_fault(stage: Stage) -> None:
    shown, task = honest(stage), stage.order()
    segment = SegmentOrder(
        *(task.seed, task.round, ALICE, task.first_step, 4, 4, NO_ROOT, NO_ROOT, None)
    )
    sealed = ClaimedSeal(stage.base_D(0), shown.boundaries[2], shown.blob[:-1], CODEC)
    claim = Claim(shown.boundaries[1], shown.boundaries[2], sealed)
    with pytest.raises(PeerFault, match="bad_update"):
        stage.core().check_segment(segment, claim)


def test_a_distance_is_relative_to_what_moved() -> None:
    def vector(*values: float) -> np.ndarray:
        return np.array(values, np.float32)

    assert distance(vector(3, 4), vector(3, 4)) == 0.0
    assert distance(vector(3, 4), vector(0, 4)) == pytest.approx(0.75)
    assert distance(vector(3, 4), vector(0, 4), vector(0, 2)) == pytest.approx(1.5)
    assert distance(vector(0, 0), vector(0, 0)) == 0.0
    assert distance(vector(1, 0), vector(0, 0)) == inf
    assert distance(vector(np.nan, 0), vector(1, 0)) == inf
    assert distance(vector(1, 0), vector(np.inf, 0)) == inf


def test_a_distance_reaches_over_every_chunk() -> None:
    found_D, claimed_D, start_D = (
        np.random.default_rng(1).normal(size=(3, 2 * CHUNK_PARAMETERS + 5)).astype(np.float32)
    )
    claimed_D[-1] = found_D[-1] + 100  # in the last, which is not whole
    exact_D = claimed_D.astype(np.float64)
    off, length = np.linalg.norm(found_D - exact_D), np.linalg.norm(exact_D)
    assert distance(found_D, claimed_D) == pytest.approx(off / length)
    moved = np.linalg.norm(exact_D - start_D)
    assert distance(found_D, claimed_D, start_D) == pytest.approx(off / moved)
