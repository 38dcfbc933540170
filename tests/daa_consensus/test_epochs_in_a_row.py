"""Epochs are short: what lasts over many of them, and what many of them cost."""

from dataclasses import replace

import pytest

from daa_consensus.committee import Committee, Validator
from daa_consensus.membership import Membership, Rule, Waiting
from daa_consensus.operations import Join, Request, Rotate, Withdraw
from daa_dag.ids import NodeId

NAMES = [NodeId(bytes([i]) * 32) for i in range(8)]
SEVEN = Committee(tuple(Validator(name, 1) for name in NAMES[:7]))


def after(now: Membership, epochs: int) -> Membership:
    for _ in range(epochs):
        now = now.next_epoch()
    return now


@pytest.mark.parametrize("epochs", [1, 2, 100])
def test_a_rotation_waits_for_as_many_epochs_as_its_owner_has_to_object(epochs: int) -> None:
    rotate = Request(Rotate(NAMES[0], NAMES[7], b"k"), 200)
    waits = Waiting(rotate, NAMES[0], frozenset(NAMES[:5]))
    before = after(Membership(SEVEN, waiting=(waits,), objection_epochs=epochs), epochs)
    assert before.committee == SEVEN
    assert before.admits(Request(Withdraw(NAMES[0], rotate.id), 200))
    assert before.next_epoch().applied == (rotate,)


def test_who_is_convicted_and_cannot_go_yet_keeps_its_key_and_its_conviction() -> None:
    """Two of the light ones may be faulty: without one of them, all of the three must vote."""
    uneven = Committee(tuple(map(Validator, NAMES[:4], (4, 1, 1, 1))))
    rotate = Request(Rotate(NAMES[1], NAMES[7], b"k"), 200)
    waits = Waiting(rotate, NAMES[1], frozenset(NAMES[:4]))
    ripe = Membership(uneven, waiting=(waits,)).next_epoch()
    assert ripe.next_epoch().applied == (rotate,)
    then = ripe.decided([], [(NAMES[1], 0)]).next_epoch()
    assert then.committee == uneven
    assert then.convicted == (NAMES[1],)
    assert then.dropped == ((rotate, Rule.CONVICTED),)


def test_what_was_dropped_at_a_boundary_does_not_come_back_when_it_would_fit() -> None:
    """Its signatures are in the chain: anybody could bring it again once the others have grown."""
    join = Request(Join(NAMES[7], 3, b"k"), 200)
    waits = Waiting(join, NAMES[0], frozenset(NAMES[:7]))
    dropped = Membership(SEVEN, waiting=(waits,)).next_epoch()
    assert dropped.dropped == ((join, Rule.TOO_HEAVY),)
    heavier = Committee(tuple(Validator(name, 9) for name in NAMES[:7]))
    grown = replace(dropped, committee=heavier)
    assert not grown.admits(join)
    assert replace(grown, settled={}).admits(join)


def test_an_epoch_that_changes_nothing_leaves_the_very_same_committee() -> None:
    assert after(Membership(SEVEN), 3).committee is SEVEN
