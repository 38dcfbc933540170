"""Mistakes in whom a gateway believes: each is found by what its simulated volunteers are told."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from daa_node.gateway import task_desk
from daa_node.gateway.piece import IN_BITS
from daa_node.gateway.task_desk import Effect, Judged, Seat, Task, TaskDesk
from simnet.checks.invariants import VOLUNTEERS
from simnet.nodes.virtual.crowd import foreseen
from simnet.results.run import run
from simnet.results.shrink import broken
from simnet.world.scenario import Scenario

pytestmark = pytest.mark.long


def scene(seconds: int, *volunteers: dict[str, Any]) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "volunteers",
            "duration_s": seconds,
            "nodes": [{"count": 1}],
            "work": {"rounds": 1000, "step_s": 0.5, "inner_steps_max": 4},
            "volunteers": volunteers,
            "checks": {"finalizations_after_heal": 0},
        }
    )


SCENES = {
    "some lie": scene(
        30, {"count": 2}, {"kind": "colluder", "count": 2}, {"kind": "liar", "count": 2}
    ),
    "three are of one mind": scene(80, {"kind": "seer", "count": 3, "task_s": 0.1}),
    # whoever is honest is busy as a rule
    "one address": scene(
        35,
        {"count": 1, "task_s": 8},
        {"kind": "seer", "count": 8, "per_address": 8, "at_s": 7, "task_s": 0.1},
    ),
}


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


def lot_known_beforehand(patch: pytest.MonkeyPatch) -> None:
    """Whether we look at what three agree about follows from the task, which they have."""

    def is_doubted(_desk: TaskDesk, task: Task) -> bool:
        return task.piece.kind not in IN_BITS and foreseen(task.id)

    patch.setattr(TaskDesk, "_is_doubted", is_doubted)


def nothing_is_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    """What three agree about is right."""
    patch.setattr(TaskDesk, "_is_doubted", lambda desk, task: False)


def one_address_is_a_jury(patch: pytest.MonkeyPatch) -> None:
    """Each session is taken for somebody at an address of its own."""
    sit = TaskDesk.sit

    def sat(desk: TaskDesk, seat: Seat) -> None:
        seat.address = seat.session.hex()
        sit(desk, seat)

    patch.setattr(TaskDesk, "sit", sat)


Plant = Callable[[pytest.MonkeyPatch], None]
MISTAKES: dict[str, tuple[Plant, str]] = {
    "one is believed": (one_is_believed, "some lie"),
    "most are believed": (most_are_believed, "some lie"),
    "the lot is known beforehand": (lot_known_beforehand, "three are of one mind"),
    "nothing is looked at again": (nothing_is_looked_at_again, "three are of one mind"),
    "one address is a jury": (one_address_is_a_jury, "one address"),
}


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_runs_clean_without_a_mistake(name: str) -> None:
    assert broken(run(SCENES[name])) is None


def test_every_scene_is_there_for_a_mistake() -> None:
    assert {name for _, name in MISTAKES.values()} == SCENES.keys()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, where = MISTAKES[name]
    plant(monkeypatch)
    seeds = (SCENES[where].model_copy(update={"seed": seed}) for seed in range(4))
    found = next(filter(None, (broken(run(scene)) for scene in seeds)), None)
    assert found == VOLUNTEERS
