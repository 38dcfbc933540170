"""What only a look into honest daemons shows of what they say to each other, and make of it."""

import pytest

from daa_node.agreement import questions
from daa_node.agreement.carried import Cargo
from daa_node.agreement.writer import Writer
from daa_node.errors import PeerFault
from simnet.invariants import ACCEPTED, ADMITTED, READ
from simnet.virtual import operators
from tests.simnet.mutants.troubles import TROUBLES, broken

pytestmark = pytest.mark.long


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


def test_what_honest_nodes_say_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    half_a_letter(monkeypatch)
    assert broken("a leader dies", 3) == {READ}


def test_what_honest_leaders_carry_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    no_operations(monkeypatch)
    assert broken("a joiner", 3) == {ACCEPTED}


def test_what_is_approved_of_takes_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs count in which the joiner gets further, and it looks for news every few seconds."""
    nobody_sponsors(monkeypatch)
    monkeypatch.setattr(operators, "EPOCHS_MAX", 2)
    joiner = TROUBLES["a joiner"]
    assert isinstance(joiner, dict)
    monkeypatch.setitem(TROUBLES, "a joiner", {**joiner, "duration_s": 14})
    assert broken("a joiner", 3) == {ADMITTED}
