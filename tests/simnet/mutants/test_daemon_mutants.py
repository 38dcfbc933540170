"""Mistakes in what daemons do: each shows in a short scene, by an invariant with a name."""

import pytest

from simnet.shrink import broken
from tests.simnet.mutants.daemons import MUTANTS
from tests.simnet.mutants.scenes import SCENES, play

pytestmark = pytest.mark.long


def test_every_scene_is_there_for_a_mistake() -> None:
    assert {scene for _, scene, _ in MUTANTS.values()} == SCENES.keys()
    assert len(MUTANTS) >= 12


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_runs_clean_without_a_mistake(scene: str) -> None:
    assert broken(play(SCENES[scene])) is None


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, scene, found_by = MUTANTS[name]
    plant(monkeypatch)
    assert broken(play(SCENES[scene])) in found_by
