"""Who is waited for: members that contributed lately and were never gone since the round began."""

from daa_dag.ids import NodeId
from daa_node.autonomy.reason import RECENT_ROUNDS, Presence

ALICE, BOB, CAROL, DAVE = (NodeId(name * 32) for name in (b"a", b"b", b"c", b"d"))
ALL = {ALICE, BOB, CAROL, DAVE}


def test_before_there_is_a_set_everybody_who_is_here_is_awaited() -> None:
    presence = Presence({ALICE, BOB, CAROL}, [])
    assert presence.awaited(ALL) == {ALICE, BOB, CAROL}


def test_who_breaks_off_is_not_awaited_again_in_this_round_though_it_is_back() -> None:
    presence = Presence(ALL, [ALL])
    presence.look(ALL - {BOB})
    presence.look(ALL)
    assert presence.awaited(ALL) == {ALICE, CAROL, DAVE}
    assert Presence(ALL, [ALL]).awaited(ALL) == ALL  # the next round's begins anew


def test_who_comes_in_the_middle_of_a_round_is_not_awaited_in_it() -> None:
    presence = Presence({ALICE, BOB}, [ALL])
    presence.look(ALL)
    assert presence.awaited(ALL) == {ALICE, BOB}


def test_who_missed_a_round_or_two_is_awaited_and_who_missed_more_is_not() -> None:
    others = ALL - {DAVE}
    missed = [ALL] + [others] * (RECENT_ROUNDS - 1)
    assert DAVE in Presence(ALL, missed).awaited(ALL)
    assert DAVE not in Presence(ALL, [*missed, others]).awaited(ALL)


def test_the_nodes_reachable_are_copied_and_left_alone() -> None:
    reachable = set(ALL)
    presence = Presence(reachable, [])
    presence.look({ALICE})
    assert reachable == ALL
