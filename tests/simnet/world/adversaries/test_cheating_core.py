"""What cheats show: it goes on from where it must, and differs in the very segments it should."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from daa_node.spot_checks.findings import difference
from daa_node.training.boundaries import Boundary
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.data_config import DataConfig
from daa_node.training.model_config import ModelConfig
from simnet.world.adversaries.cheating_core import CheatingCore
from simnet.world.scenario import Cheat
from tests.daa_node.training.cheats import Shown, Stage, own

JOB = TrainingJob(
    model=ModelConfig(kind="mlp", width=32, depth=1),
    data=DataConfig(kind="digits"),
    inner=InnerConfig(lr=0.01, warmup_steps=5, total_steps=100, batch_size=32),
)
STEPS, EACH = 16, 4
TOLERANCE = 1e-3
ALL = {0, 1, 2, 3}
# Of four segments those that do not follow; the seal is looked at with each of them.
DIFFERS: dict[Cheat, set[int]] = {
    "stale_base": ALL,
    "skips_steps": ALL,
    "rounds_weights": ALL,
    "doubles_gradients": ALL,
    "wrong_batches": ALL,
    "copies_update": set(),  # its daemon's doing
    "skips_in_the_middle": {2},
    "skips_one_step": {2},
    "rounds_once": {2},
    "stretches_one_step": {2},
    "moments_only": {1},
    "doubles_update": ALL,
    "drops_what_it_owes": ALL,
    "knows_the_lot": ALL - {1},  # which a lot drew that depended on nothing later
}


@dataclass
class Rounds:
    """What a cheat shows of its second round and of the one after it."""

    second: Shown
    third: Shown


def _into(passed: list[Boundary]) -> Callable[[Boundary], None]:
    return lambda boundary: passed.append(own(boundary))


def rounds_of(stage: Stage, cheat: Cheat) -> Rounds:
    core, shown = CheatingCore(stage.core(), cheat), list[Shown]()
    for round_ in (1, 2, 3):
        passed: list[Boundary] = []
        order = stage.order(
            round=round_, merged_round=round_ - 1 if round_ > 1 else -1, first_step=STEPS
        )
        base_D = stage.base_D(0 if round_ == 2 else 1)
        sealed = core.train_and_seal(order, base_D, on_boundary=_into(passed))
        shown.append(Shown([*passed, own(sealed.end)], sealed.blob))
    return Rounds(*shown[1:])


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(JOB, tmp_path, STEPS, EACH)


@pytest.mark.parametrize("cheat", get_args(Cheat))
def test_a_cheat_differs_where_it_cheats_and_nowhere_else(stage: Stage, cheat: Cheat) -> None:
    found = stage.checks(stage.core(), rounds_of(stage, cheat).second)
    off = {segment for segment, one in enumerate(found) if difference(one, TOLERANCE) is not None}
    assert off == DIFFERS[cheat]
    assert all(one.steps_agree for one in found)


@pytest.mark.parametrize("cheat", get_args(Cheat))
def test_a_cheat_begins_where_it_must(stage: Stage, cheat: Cheat) -> None:
    rounds = rounds_of(stage, cheat)
    start, end = rounds.third.boundaries[0], rounds.second.boundaries[-1]
    base = stage.contribute(stage.core(), base_seed=1).boundaries[0]
    np.testing.assert_array_equal(start.weights_D, base.weights_D)
    for name in ("first_D", "second_D", "residual_D"):
        np.testing.assert_array_equal(getattr(start, name), getattr(end, name))
    assert start.adam_steps == end.adam_steps


def test_rounding_goes_to_the_nearest_bfloat16(stage: Stage) -> None:
    import torch

    weights_D = rounds_of(stage, "rounds_weights").second.boundaries[1].weights_D
    nearest_D = torch.from_numpy(weights_D).bfloat16().float().numpy()
    np.testing.assert_array_equal(weights_D, nearest_D)
