"""Mistakes in checks and disputes: each is found by what the audit of them knows to be wrong."""

from dataclasses import replace

import pytest

from simnet.results.shrink import broken
from tests.simnet.results.mutants.judges import JUDGED, MISJUDGED
from tests.simnet.results.mutants.scenes import play

pytestmark = pytest.mark.long
SEEDS = range(3, 9)  # the first does, as a rule; who is accused of what is for the lot to say


def broken_in(scene: str, seed: int) -> str | None:
    chosen = JUDGED[scene]
    return broken(play(replace(chosen, others={**chosen.others, "seed": seed})))


def test_every_scene_is_there_for_a_mistake() -> None:
    assert {scene for _, scene, _ in MISJUDGED.values()} == JUDGED.keys()
    assert len(MISJUDGED) >= 13


@pytest.mark.parametrize("scene", JUDGED)
def test_a_scene_runs_clean_without_a_mistake(scene: str) -> None:
    assert broken_in(scene, SEEDS[0]) is None


@pytest.mark.parametrize("name", MISJUDGED)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, scene, found_by = MISJUDGED[name]
    plant(monkeypatch)
    found = next(filter(None, (broken_in(scene, seed) for seed in SEEDS)), None)
    assert found in found_by
