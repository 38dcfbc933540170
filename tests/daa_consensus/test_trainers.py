"""Trainers beside a committee: bound by what they sign, without weight, gone once convicted."""

from dataclasses import replace

import pytest

from daa_consensus.committee import CONTRIBUTORS_MAX, lying_trainers_max
from daa_consensus.membership import Membership, Rule
from daa_consensus.operations import Approve, Join, Leave, Rotate, Stake
from daa_dag.ids import Digest, NodeId
from tests.daa_consensus.bft.simulation import node_id
from tests.daa_consensus.rolls import roll_of
from tests.daa_consensus.test_membership import FOUR, after_epochs, approvals, operation

SEVENTH, EIGHTH = node_id(7), node_id(8)
WITH_TWO = Membership(FOUR, roll=roll_of(frozenset({SEVENTH, EIGHTH})))


def test_evidence_convicts_a_trainer_and_it_is_none_after_the_epoch() -> None:
    now = WITH_TWO.decided([], [(SEVENTH, 0), (SEVENTH, 0)])
    assert now.convicted == (SEVENTH,)
    then = now.next_epoch()
    assert then.expelled == (SEVENTH,)
    assert then.trainers == {EIGHTH}
    assert then.committee == FOUR
    assert not then.convicted
    assert then.decided([], [(SEVENTH, 0)]) == then  # it answers for nothing any more


def test_a_convicted_trainer_goes_however_many_members_have_to_wait() -> None:
    """Of four, one at most may be expelled at a boundary: others of them stay convicted."""
    now = WITH_TWO.decided([], [(name, 0) for name in (node_id(0), node_id(1), SEVENTH, EIGHTH)])
    then = now.next_epoch()
    assert not then.trainers
    assert {SEVENTH, EIGHTH} <= {*then.expelled}
    assert {*then.convicted} == {node_id(0), node_id(1)} - {*then.expelled}


@pytest.mark.parametrize(
    "action", [Leave(SEVENTH), Stake(SEVENTH, 3), Approve(SEVENTH, Digest(b"r" * 32))]
)
def test_a_trainer_has_no_say_in_who_votes(action: Leave | Stake | Approve) -> None:
    assert not WITH_TWO.admits(operation(action).request)


def test_words_of_trainers_make_no_quorum_for_a_join() -> None:
    join = operation(Join(node_id(9), 1, b"k"))
    three_of_four = [*approvals(join.request, (0, 1)), *approvals(join.request, (7, 8))]
    assert WITH_TWO.decided([join, *three_of_four]).next_epoch().committee == FOUR


def test_a_trainer_that_is_voted_in_is_a_member_and_no_trainer_and_stays_one() -> None:
    join = operation(Join(SEVENTH, 1, b"k"))
    now = WITH_TWO.decided([join, *approvals(join.request, (0, 1, 2))]).next_epoch()
    assert SEVENTH in now.committee.stake_of
    assert now.trainers == {EIGHTH}
    left = now.decided([operation(Leave(SEVENTH))]).next_epoch()
    assert SEVENTH not in left.committee.stake_of
    assert left.trainers == {EIGHTH}
    assert after_epochs(left, 3).trainers == {EIGHTH}


def test_what_would_make_a_trainer_a_member_falls_with_its_conviction() -> None:
    """Else whoever is approved of could lie for the rest of the epoch, and nothing came of it."""
    join = operation(Join(SEVENTH, 1, b"k"))
    seat = operation(Rotate(node_id(3), SEVENTH, b"k"))
    for asked in (join, seat):
        now = WITH_TWO.decided([asked, *approvals(asked.request, (0, 1, 2))])
        ripe = replace(now, waiting=tuple(replace(w, since=-1) for w in now.waiting))
        assert SEVENTH in ripe.next_epoch().committee.stake_of
        then = ripe.decided([], [(SEVENTH, 0)]).next_epoch()
        assert then.committee == FOUR
        assert then.expelled == (SEVENTH,)
        assert then.dropped == ((asked.request, Rule.CONVICTED),)
    assert not WITH_TWO.decided([], [(SEVENTH, 0)]).admits(join.request)


def test_who_was_convicted_as_a_trainer_and_is_let_in_later_begins_anew() -> None:
    gone = WITH_TWO.decided([], [(SEVENTH, 0)]).next_epoch()
    join = operation(Join(SEVENTH, 1, b"k"))
    then = gone.decided([join, *approvals(join.request, (0, 1, 2))]).next_epoch()
    assert SEVENTH in then.committee.stake_of
    assert then.decided([], [(SEVENTH, 0)]) == then


def test_a_seat_is_handed_to_nobody_who_is_expelled_from_another() -> None:
    seat = operation(Rotate(node_id(3), node_id(0), b"k"))
    now = WITH_TWO.decided([seat, *approvals(seat.request, (0, 1, 2))], [(node_id(0), 0)])
    ripe = replace(now, waiting=tuple(replace(w, since=-1) for w in now.waiting))
    then = ripe.next_epoch()
    assert then.expelled == (node_id(0),)
    assert then.dropped == ((seat.request, Rule.CONVICTED),)
    assert node_id(0) not in then.committee.stake_of


def test_a_trainer_is_voted_in_however_full_the_house_is() -> None:
    beside = {NodeId(b"%032d" % number) for number in range(CONTRIBUTORS_MAX - 5)}
    join = operation(Join(SEVENTH, 1, b"k"))
    full = Membership(FOUR, roll=roll_of(frozenset({SEVENTH, *beside})))
    then = full.decided([join, *approvals(join.request, (0, 1, 2))]).next_epoch()
    assert SEVENTH in then.committee.stake_of
    assert len(then.committee.stake_of) + len(then.trainers) == CONTRIBUTORS_MAX


def test_trainers_fill_the_house_as_members_do() -> None:
    """Whoever contributes is listed in sets and Acks, whose limits have room for so many."""
    join = operation(Join(node_id(9), 1, b"k"))
    asked = [join, *approvals(join.request, (0, 1, 2))]
    for beside, is_let_in in ((CONTRIBUTORS_MAX - 5, True), (CONTRIBUTORS_MAX - 4, False)):
        trainers = frozenset(NodeId(b"%032d" % number) for number in range(beside))
        then = Membership(FOUR, roll=roll_of(trainers)).decided(asked).next_epoch()
        assert (then.committee != FOUR) is is_let_in
        assert [rule for _, rule in then.dropped] == ([] if is_let_in else [Rule.TOO_MANY])


def test_a_third_of_trainers_rounded_up_may_lie() -> None:
    counted = {0: 0, 1: 1, 2: 1, 3: 1, 4: 2, 6: 2, 7: 3, 100: 34}
    assert {count: lying_trainers_max(count) for count in counted} == counted
