"""Mistakes in whom a gateway believes: each is found by what its simulated volunteers are told."""

from collections.abc import Callable, Iterator

import pytest

from daa_node.gateway import task_desk
from daa_node.gateway.task_desk import Effect, Judged, Task, TaskDesk
from simnet.checks.invariants import VOLUNTEERS
from simnet.results.run import run
from simnet.results.shrink import broken
from simnet.world.scenario import Scenario

pytestmark = pytest.mark.long

SCENE = Scenario.model_validate(
    {
        "name": "volunteers",
        "duration_s": 30,
        "nodes": [{"count": 1}],
        "work": {"rounds": 1000, "step_s": 0.5, "inner_steps_max": 4},
        "volunteers": [
            {"count": 2},
            {"kind": "colluder", "count": 2},
            {"kind": "liar", "count": 2},
        ],
        "checks": {"finalizations_after_heal": 0},
    }
)


def one_is_believed(patch: pytest.MonkeyPatch) -> None:
    """Whoever answers first is right."""
    patch.setattr(task_desk, "COPIES", 1)


def most_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Two of three are right, and nobody looks."""

    def weigh(desk: TaskDesk, task: Task) -> Iterator[Effect]:
        if len(task.verdicts) < task_desk.COPIES:
            return
        results = [result for _, result in task.verdicts.values()]
        chosen = max(results, key=results.count)
        desk._close(task)
        for seat, result in task.verdicts.values():
            yield Judged(seat, task.id, result == chosen)

    patch.setattr(TaskDesk, "_weigh", weigh)


MISTAKES = {"one is believed": one_is_believed, "most are believed": most_are_believed}


def test_the_scene_runs_clean_without_a_mistake() -> None:
    assert broken(run(SCENE)) is None


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant: Callable[[pytest.MonkeyPatch], None] = MISTAKES[name]
    plant(monkeypatch)
    seeds = (SCENE.model_copy(update={"seed": seed}) for seed in range(4))
    found = next(filter(None, (broken(run(scene)) for scene in seeds)), None)
    assert found == VOLUNTEERS
