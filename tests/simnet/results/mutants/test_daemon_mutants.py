"""Mistakes in what daemons do: each shows in a short scene, by an invariant with a name."""

from dataclasses import replace

import pytest

from simnet.results.shrink import broken
from tests.simnet.results.mutants.careless import CARELESS
from tests.simnet.results.mutants.daemons import MUTANTS
from tests.simnet.results.mutants.rough_scenes import ROUGH
from tests.simnet.results.mutants.scenes import SCENES, play, quiet
from tests.simnet.results.mutants.unreached import FARTHER, UNREACHED

pytestmark = pytest.mark.long
ALL_MUTANTS = {**MUTANTS, **CARELESS, **UNREACHED}
ALL_SCENES = {**SCENES, **ROUGH, **FARTHER}


SEEDS = (None, *range(1, 7))  # the scene's own does, as a rule; who is first is for the dice to say


def broken_in(scene: str, seed: int | None) -> str | None:
    chosen = ALL_SCENES[scene]
    return broken(
        play(chosen if seed is None else replace(chosen, others={**chosen.others, "seed": seed}))
    )


def test_every_scene_is_there_for_a_mistake() -> None:
    assert len(ALL_MUTANTS) == len(MUTANTS) + len(CARELESS) + len(UNREACHED) >= 42
    assert {scene for _, scene, _ in MUTANTS.values()} == SCENES.keys()
    assert {scene for _, scene, _ in CARELESS.values()} == ROUGH.keys()
    assert {scene for _, scene, _ in UNREACHED.values()} - SCENES.keys() == FARTHER.keys()


@pytest.mark.parametrize("scene", ALL_SCENES)
def test_a_scene_runs_clean_without_a_mistake(scene: str) -> None:
    assert broken(play(ALL_SCENES[scene])) is None


@pytest.mark.parametrize("name", ALL_MUTANTS)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, scene, found_by = ALL_MUTANTS[name]
    plant(monkeypatch)
    found = next(filter(None, (broken_in(scene, seed) for seed in SEEDS)), None)
    assert found in found_by


@pytest.mark.parametrize("name", CARELESS)
def test_without_its_fault_a_careless_mistake_is_not_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is the fault that finds it."""
    plant, scene, _ = CARELESS[name]
    plant(monkeypatch)
    assert broken(play(replace(ROUGH[scene], script=quiet))) is None
