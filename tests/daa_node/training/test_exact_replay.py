"""Steps taken again exactly: honest ones follow on any threads, what cheats show does not."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
import torch

from daa_node.errors import TrainerFailed
from daa_node.seams import SegmentCheck, SegmentOrder
from daa_node.training.boundaries import Boundary
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.model_config import ModelConfig
from daa_node.training.sealed_claims import Claim, ClaimedSeal
from tests.daa_node.training.cheats import (
    ALICE,
    CODEC,
    NO_ROOT,
    Shown,
    Stage,
    copies_an_update,
    doubles_its_gradients,
    doubles_its_update,
    honest,
    own,
    rounds_weights_to_bf16,
    skips_half_of_the_steps,
    trains_from_a_stale_base,
    trains_on_other_batches,
)
from tests.daa_node.training.datasets.picture_files import bars, write_idx

JOB = TrainingJob(
    model=ModelConfig(width=32, depth=1, context=16),
    inner=InnerConfig(lr=0.006, warmup_steps=5, total_steps=100, batch_size=4),
)
NEAR, FAR = 1e-4, 1e-2


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(JOB, tmp_path, steps=4, segment_steps=1)


def order_of(stage: Stage, step: int) -> SegmentOrder:
    task = stage.order()
    return SegmentOrder(
        *(task.seed, task.round, ALICE, task.first_step, step, 1, NO_ROOT, NO_ROOT, None),
        exact=True,
    )


def replayed(stage: Stage, shown: Shown) -> list[SegmentCheck]:
    """Of every step that the author shows."""
    core, found = stage.core(), list[SegmentCheck]()
    for step, (start, end) in enumerate(zip(shown.boundaries, shown.boundaries[1:], strict=False)):
        found.append(core.check_segment(order_of(stage, step), Claim(start, end, None)))
    return found


def off(found: SegmentCheck) -> float:
    return max(found.weights, found.first, found.second)


def test_honest_steps_follow_and_all_who_replay_them_say_the_same(stage: Stage) -> None:
    shown, before = honest(stage), torch.get_num_threads()
    answers = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        answers.append(replayed(stage, shown))
    torch.set_num_threads(before)
    assert answers[0] == answers[1]
    assert all(off(found) < NEAR and found.steps_agree for found in answers[0])


def test_steps_of_a_cnn_are_replayed_as_exactly_as_any(tmp_path: Path) -> None:
    job = JOB.model_copy(
        update={
            "model": ModelConfig(kind="cnn", depth=2, width=8, picture_side=10),
            "data": write_idx(tmp_path / "data", *bars(80, 10)),
        }
    )
    stage = Stage(job, tmp_path, steps=3, segment_steps=1)
    assert all(off(found) < NEAR and found.steps_agree for found in replayed(stage, honest(stage)))
    cheat = trains_on_other_batches(stage)
    assert max(off(found) for found in replayed(stage, cheat)) > FAR


@pytest.mark.parametrize(
    "cheat",
    [
        skips_half_of_the_steps,
        trains_from_a_stale_base,
        rounds_weights_to_bf16,
        doubles_its_gradients,
        trains_on_other_batches,
    ],
)
def test_of_what_a_cheat_shows_some_step_does_not_follow(
    tmp_path: Path, cheat: Callable[[Stage], Shown]
) -> None:
    steps = 2 if cheat is skips_half_of_the_steps else 1  # it skips every other one
    shown_by = Stage(JOB, tmp_path, steps=4, segment_steps=steps)
    shown = cheat(shown_by)
    if steps == 2:
        start, middle, _ = shown.boundaries
        single = replace(start, adam_steps=middle.adam_steps - 1)
        found = stage_of_one(shown_by, single, middle)
        assert off(found) > FAR or not found.steps_agree
        return
    assert any(off(found) > FAR for found in replayed(shown_by, shown))


def stage_of_one(stage: Stage, start: Boundary, end: Boundary) -> SegmentCheck:
    return stage.core().check_segment(order_of(stage, 0), Claim(start, end, None))


def walked(stage: Stage, start: Boundary, steps: int) -> list[Boundary]:
    """Where these steps lead, one order after the other."""
    core, states = stage.core(), [start]
    for step in range(steps):
        order = replace(order_of(stage, step), steps=2)
        core.open_segment(order, states[-1], lambda state: states.append(own(state)))
    return states


def test_steps_that_are_taken_one_by_one_lead_where_they_do_at_once(stage: Stage) -> None:
    boundaries = honest(stage).boundaries
    start, end = boundaries[0], boundaries[-1]
    whole = replace(order_of(stage, 0), steps=4)
    at_once = stage.core().check_segment(whole, Claim(start, end, None))
    *_, third = walked(stage, start, 3)
    one_by_one = stage.core().check_segment(order_of(stage, 3), Claim(third, end, None, start))
    assert one_by_one == at_once
    assert 0 < off(at_once) < NEAR
    # over the way of a single step it is more
    of_one_step = stage.core().check_segment(order_of(stage, 3), Claim(third, end, None))
    assert off(of_one_step) > off(at_once)


@pytest.mark.parametrize("cheat", [rounds_weights_to_bf16, doubles_its_gradients])
def test_a_whole_segment_of_a_cheat_does_not_follow(
    stage: Stage, cheat: Callable[[Stage], Shown]
) -> None:
    boundaries = cheat(stage).boundaries
    whole = replace(order_of(stage, 0), steps=4)
    found = stage.core().check_segment(whole, Claim(boundaries[0], boundaries[-1], None))
    assert off(found) > FAR


def test_steps_end_where_numbers_do(stage: Stage) -> None:
    start = honest(stage).boundaries[0]
    weights_D = start.weights_D.copy()
    weights_D[5] = np.inf
    assert len(walked(stage, replace(start, weights_D=weights_D), 1)) == 1
    for taken in (-1, 2**63 - 2):  # of which a boundary could not hold one more
        assert len(walked(stage, replace(start, adam_steps=taken), 1)) == 1


def test_what_are_no_numbers_is_infinitely_far(stage: Stage) -> None:
    shown = honest(stage)
    for place in (0, 1):
        states = [own(each) for each in shown.boundaries]
        states[place].second_D[3] = np.nan
        found = stage_of_one(stage, states[0], states[1])
        assert (off(found), found.steps_agree) == (inf, False)


def test_the_count_of_steps_is_compared(stage: Stage) -> None:
    start, end, *_ = honest(stage).boundaries
    late = replace(end, adam_steps=end.adam_steps + 1)
    assert not stage_of_one(stage, start, late).steps_agree


def sealed_by(stage: Stage, shown: Shown) -> SegmentCheck:
    """The round's seal, replayed from its first boundary and its last."""
    order = replace(order_of(stage, 0), steps=0)
    start, end = shown.boundaries[0], shown.boundaries[-1]
    return stage.core().check_segment(
        order, Claim(start, end, ClaimedSeal(None, end, shown.blob, CODEC))
    )


def test_an_honest_seal_follows_to_the_bit(stage: Stage) -> None:
    found = sealed_by(stage, honest(stage))
    assert (found.sealed, found.residual, found.steps_agree) == (0.0, 0.0, True)


@pytest.mark.parametrize("cheat", [copies_an_update, doubles_its_update])
def test_an_update_that_was_not_sealed_from_what_is_shown_does_not_follow(
    stage: Stage, cheat: Callable[[Stage], Shown]
) -> None:
    found = sealed_by(stage, cheat(stage))
    assert found.sealed is not None
    assert found.sealed > FAR


def test_a_seal_of_what_are_no_numbers_is_infinitely_far(stage: Stage) -> None:
    shown = honest(stage)
    for place in (0, -1):
        states = [own(each) for each in shown.boundaries]
        states[place].weights_D[5] = np.inf
        assert sealed_by(stage, replace(shown, boundaries=states)).residual == inf


def test_at_the_end_of_a_schedule_rounding_is_no_lie(tmp_path: Path) -> None:
    """A step that small moves a weight by a unit in its last place, or does not."""
    inner = JOB.inner.model_copy(update={"lr": 3e-8, "warmup_steps": 0})
    stage = Stage(JOB.model_copy(update={"inner": inner}), tmp_path, steps=2, segment_steps=1)
    start, end, _ = honest(stage).boundaries
    ulp_D = np.spacing(np.abs(end.weights_D))
    chosen_D = np.arange(end.weights_D.size) % 50 == 0
    rounded = replace(end, weights_D=np.where(chosen_D, end.weights_D + ulp_D, end.weights_D))
    moved_D = (end.weights_D - start.weights_D).astype(np.float64)
    assert np.linalg.norm(ulp_D[chosen_D]) / np.linalg.norm(moved_D) > 1e-3
    assert stage_of_one(stage, start, rounded).weights == 0.0
    elsewhere = replace(end, weights_D=(end.weights_D * np.float32(1 + 1e-4)))
    assert stage_of_one(stage, start, elsewhere).weights > FAR


@pytest.mark.parametrize("steps", [-1, -5, -(2**63)])
def test_a_count_that_nobody_can_have_come_to_does_not_follow(stage: Stage, steps: int) -> None:
    start, end, *_ = honest(stage).boundaries
    found = stage_of_one(
        stage, replace(start, adam_steps=steps), replace(end, adam_steps=steps + 1)
    )
    assert (off(found), found.steps_agree) == (inf, False)


def test_a_replay_ends_soon_after_it_is_cancelled(stage: Stage) -> None:
    start, end, *_ = honest(stage).boundaries
    looks = iter([False, True])
    with pytest.raises(TrainerFailed, match="in the middle of an exact replay"):
        stage.core().check_segment(order_of(stage, 0), Claim(start, end, None), lambda: next(looks))
