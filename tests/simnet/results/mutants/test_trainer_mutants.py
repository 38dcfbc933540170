"""Mistakes in who trains: whole daemons enroll, vouch and retire, and the books beside them differ.

A twin of the roll, of its lot and of what is merged is kept by the judge (see RollAudit).
"""

from dataclasses import replace

import pytest

from simnet.results.shrink import broken
from tests.simnet.results.mutants.scenes import play
from tests.simnet.results.mutants.trainers import MISTRAINED, TRAINING

pytestmark = pytest.mark.long
SEEDS = range(3)  # the first does, as a rule; who is drawn when is for the lot to say


def broken_in(scene: str, seed: int) -> str | None:
    chosen = TRAINING[scene]
    return broken(play(replace(chosen, others={**chosen.others, "seed": seed})))


def test_every_scene_is_there_for_a_mistake() -> None:
    assert {scene for _, scene, _ in MISTRAINED.values()} == TRAINING.keys()
    assert len(MISTRAINED) >= 9


@pytest.mark.parametrize("scene", TRAINING)
def test_a_scene_runs_clean_without_a_mistake(scene: str) -> None:
    assert broken_in(scene, SEEDS[0]) is None


@pytest.mark.parametrize("name", MISTRAINED)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, scene, found_by = MISTRAINED[name]
    plant(monkeypatch)
    found = next(filter(None, (broken_in(scene, seed) for seed in SEEDS)), None)
    assert found in found_by
