"""What only a look into honest daemons shows: each mistake by its invariant, and not without it."""

from typing import Any

import pytest

from daa_node.agreement import questions
from daa_node.agreement.carried import Cargo
from daa_node.agreement.writer import Writer
from daa_node.errors import PeerFault
from simnet.determinism import Trace
from simnet.invariants import (
    ACCEPTED,
    ADMITTED,
    ASSERTIONS,
    JUSTIFIED,
    LATE_ENOUGH,
    NO_SLANDER,
    NOTHING_LOST,
    ONE_ROLL,
    QUORUMS,
    READ,
)
from simnet.scenario import Scenario
from simnet.virtual import operators
from simnet.virtual.world import run_virtual
from tests.simnet.mutants.hosted import MEMBER_MUTANTS, MUTANTS

pytestmark = pytest.mark.long
STANDING_BY: dict[str, Any] = {"name": "outside", "count": 1, "role": "observer"}
SCENES: dict[str, dict[str, Any]] = {
    "a leader dies": {"faults": [{"kind": "kill", "aim": "leader", "at_s": 2}]},
    "letters are held": {
        "faults": [
            {"kind": "hold", "at_s": at_s, "for_s": 0.8, "nodes": [0, 1]}
            for at_s in (1.5, 2.6, 3.7)
        ]
    },
    "a forger": {"adversaries": [{"kind": "forger", "nodes": [3]}], "duration_s": 4},
    "all die": {
        "duration_s": 8,
        "faults": [
            {"kind": "kill", "at_s": at_s, "for_s": 0.1, "nodes": [0, 1, 2, 3]}
            for at_s in (1.8, 3.3, 4.8, 6.3)
        ],
    },
    "a new disk": {"faults": [{"kind": "disk", "disk": "wiped", "at_s": 2, "nodes": [1]}]},
    "a joiner": {
        "nodes": [{"count": 4}, STANDING_BY],
        "changes": [{"kind": "join", "at_s": 0.5, "node": 4, "stake": 1}],
    },
}


def broken(scene: str) -> set[str]:
    """What does not hold in it."""
    fields = {
        "name": "scene",
        "seed": 3,
        "fidelity": "light",
        "duration_s": 5,
        "work": {"kind": "training", "rounds": 60, "inner_steps_max": 1, "epoch_rounds": 2},
        "checks": {"finalizations_after_heal": 3, "heal_s": 30},
        **SCENES[scene],
    }
    for fault in fields.get("faults", ()):
        fault.setdefault("for_s", 0.5)
    outcome = run_virtual(Scenario.model_validate(fields), Trace())
    return {each.name for each in outcome.invariants if not each.ok}


def half_a_letter(patch: pytest.MonkeyPatch) -> None:
    letter = Writer._letter
    patch.setattr(Writer, "_letter", lambda self, body: letter(self, body)[:-1])


def no_operations(patch: pytest.MonkeyPatch) -> None:
    """Who judges a set holds against it what who makes it may put there."""
    add_operation = Cargo.add_operation

    def refuse(self: Cargo, encoded: bytes) -> None:
        raise PeerFault("idle_operation", "none are wanted")

    def load(self: Cargo, *encoded: bytes) -> None:
        for each in encoded:
            add_operation(self, each)

    patch.setattr(Cargo, "add_operation", refuse)
    patch.setattr(Cargo, "try_operations", load)


def nobody_sponsors(patch: pytest.MonkeyPatch) -> None:
    """Requests are heard and approved of, and no set carries them."""
    patch.setattr(questions, "loaded", lambda chosen, facts, inbound: chosen)


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_runs_clean_without_a_mistake(scene: str) -> None:
    assert broken(scene) == set()


@pytest.mark.parametrize(
    ("name", "scene", "found_by"),
    [
        ("honest node convicted", "letters are held", NO_SLANDER),
        ("own vote counted twice", "a leader dies", QUORUMS),
        ("leader not checked", "a forger", ASSERTIONS),
        ("view skipped without a certificate", "a forger", JUSTIFIED),
        ("finality not kept", "all die", NOTHING_LOST),
        ("guard ignored", "a new disk", LATE_ENOUGH),
        ("requests applied before they are final", "a joiner", ONE_ROLL),
    ],
)
def test_a_mistake_shows(
    name: str, scene: str, found_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    {**MUTANTS, **MEMBER_MUTANTS}[name].plant(monkeypatch)
    assert broken(scene) == {found_by}


def test_what_honest_nodes_say_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    half_a_letter(monkeypatch)
    assert broken("a leader dies") == {READ}


def test_what_honest_leaders_carry_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    no_operations(monkeypatch)
    assert broken("a joiner") == {ACCEPTED}


def test_what_is_approved_of_takes_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_sponsors(monkeypatch)
    monkeypatch.setattr(operators, "EPOCHS_MAX", 2)
    assert broken("a joiner") == {ADMITTED}
