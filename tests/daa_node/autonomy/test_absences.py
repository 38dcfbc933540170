"""Who is here and never brings anything is waited for in few rounds; who does, is in all."""

from collections.abc import Set

import pytest

from daa_dag.ids import NodeId
from daa_node.autonomy.absences import MISSED_MAX, NAMES_MAX, TRIED_EACH, Absences

ALICE, BOB, CAROL = (NodeId(name * 32) for name in (b"a", b"b", b"c"))
ALL = {ALICE, BOB, CAROL}
TRIED, NOT_TRIED = 5 * TRIED_EACH, 5 * TRIED_EACH + 1


NOBODY = frozenset[NodeId]()


def after(
    rounds: int,
    contributed: set[NodeId],
    reachable: set[NodeId] = ALL,
    offered: Set[NodeId] = NOBODY,
) -> Absences:
    absences = Absences()
    for _ in range(rounds):
        absences.note(ALL, contributed, reachable, offered)
    return absences


def test_who_missed_as_many_rounds_in_a_row_is_waited_for_in_one_of_many() -> None:
    assert after(MISSED_MAX - 1, ALL - {BOB}).not_awaited(NOT_TRIED, NOBODY) == set()
    absences = after(MISSED_MAX, ALL - {BOB})
    waits = [BOB not in absences.not_awaited(TRIED + at, NOBODY) for at in range(2 * TRIED_EACH)]
    assert [at for at, does in enumerate(waits) if does] == [0, TRIED_EACH]


def test_who_has_contributed_is_waited_for_again() -> None:
    absences = after(MISSED_MAX, ALL - {BOB})
    for contributed in (ALL, *[ALL - {BOB}] * (MISSED_MAX - 1)):
        absences.note(ALL, contributed, ALL, NOBODY)
        assert absences.not_awaited(NOT_TRIED, NOBODY) == set()


def test_a_round_for_which_it_was_away_or_not_planned_is_none_that_it_missed() -> None:
    assert after(MISSED_MAX, ALL - {BOB}, ALL - {BOB}).not_awaited(NOT_TRIED, NOBODY) == set()
    absences = after(MISSED_MAX - 1, ALL - {BOB})
    absences.note(ALL - {BOB}, ALL - {BOB}, ALL, NOBODY)
    assert absences.not_awaited(NOT_TRIED, NOBODY) == set()


def test_to_idle_and_come_back_makes_up_for_nothing() -> None:
    absences = after(MISSED_MAX, ALL - {BOB})
    absences.note(ALL - {BOB}, ALL - {BOB}, ALL - {BOB}, NOBODY)
    assert absences.not_awaited(NOT_TRIED, NOBODY) == {BOB}


@pytest.mark.parametrize(("new", "left"), [(NAMES_MAX - 2, {BOB, CAROL}), (NAMES_MAX - 1, {BOB})])
def test_ever_new_names_take_the_place_of_who_missed_a_round_longest_ago(
    new: int, left: set[NodeId]
) -> None:
    absences = after(MISSED_MAX, {ALICE})
    others = {NodeId(at.to_bytes(32, "big")) for at in range(new)}
    absences.note(others | {BOB}, set(), others | {BOB}, NOBODY)
    assert absences.not_awaited(NOT_TRIED, NOBODY) == left


def test_whose_offer_is_here_is_waited_for_until_as_many_came_to_nothing() -> None:
    away = after(MISSED_MAX, ALL - {BOB})
    assert away.not_awaited(NOT_TRIED, {BOB}) == set()
    for came_back in range(MISSED_MAX):
        assert away.not_awaited(NOT_TRIED, ALL) == set(), came_back
        away.note(ALL, ALL - {BOB}, ALL - {BOB}, ALL)  # who goes before the end has offered, too
    assert away.not_awaited(NOT_TRIED, {BOB}) == {BOB}
    assert away.not_awaited(TRIED, {BOB}) == set()
    away.note(ALL, ALL, ALL, ALL)
    lazy = [ALL - {BOB}] * MISSED_MAX
    for contributed in lazy:
        away.note(ALL, contributed, ALL, NOBODY)
    assert away.not_awaited(NOT_TRIED, {BOB}) == set()


def test_a_round_to_which_it_brought_what_it_offered_is_none_in_vain() -> None:
    absences = Absences()
    absences.note(ALL, ALL, ALL, ALL)
    for offered in ({ALICE}, *[ALL] * (MISSED_MAX - 1)):
        absences.note(ALL, ALL - {BOB}, ALL, offered)
    assert absences.not_awaited(NOT_TRIED, NOBODY) == {BOB}
    assert absences.not_awaited(NOT_TRIED, {BOB}) == set()
