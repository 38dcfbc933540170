"""Whom a fetch asks when nobody tells any more who has what, and how often."""

import pytest

from daa_dag.fetch import PeerGained, PeerJoined, PeerLacks
from daa_dag.ids import NodeId
from daa_node.network.hearsay import LOOK_EVERY_S, WRONG_MAX, Hearsay

ALICE, BOB, CAROL = (NodeId(name * 32) for name in (b"a", b"b", b"c"))
SILENCE_S = 2 * LOOK_EVERY_S  # of one that tells, before others are asked


def test_one_that_was_named_and_has_not_all_is_asked_once_for_what_it_is_said_to_have() -> None:
    hearsay = Hearsay()
    hearsay.tellers.add(ALICE)
    hearsay.name(BOB, 0b01)
    hearsay.name(BOB, 0b10)
    hearsay.name(CAROL, 0b100)
    assert hearsay.heard_of(CAROL, {BOB}) == []  # it has not said that it lacks some
    assert hearsay.heard_of(BOB, {BOB, CAROL}) == [(BOB, 0b11)]
    assert hearsay.heard_of(BOB, {BOB, CAROL}) == []


def test_once_the_last_that_told_is_lost_all_who_have_it_not_whole_are_asked() -> None:
    hearsay = Hearsay()
    hearsay.tellers |= {ALICE, CAROL}
    assert hearsay.heard_of(ALICE, {BOB}) == []
    assert hearsay.heard_of(CAROL, {BOB}) == [(BOB, 0)]
    hearsay.name(BOB, 0b1)
    assert hearsay.heard_of(BOB, {BOB, CAROL}) == [(BOB, 0b1), (CAROL, 0)]
    hearsay.tellers.add(ALICE)  # it is back
    assert hearsay.heard_of(CAROL, {BOB, CAROL}) == []


def test_a_relay_that_is_heard_of_joins_and_a_holder_that_is_does_not() -> None:
    """One that was shut out for lies would be back with each word of its own."""
    hearsay = Hearsay()
    assert hearsay.gains(ALICE, 0b101, False, ALICE) == [PeerGained(ALICE, frozenset({0, 2}))]
    gained = PeerGained(BOB, frozenset({1}))
    assert hearsay.gains(BOB, 0b10, True, ALICE) == [PeerJoined(BOB, frozenset()), gained]


def test_where_nobody_ever_told_nobody_is_asked_in_place_of_one_that_is_lost() -> None:
    assert Hearsay().heard_of(ALICE, {ALICE, BOB}) == []


def test_one_that_spreads_a_blob_is_alone_and_two_are_not() -> None:
    hearsay = Hearsay()
    for node_id, is_alone in ((ALICE, True), (BOB, False)):
        hearsay.tellers.add(node_id)
        assert hearsay.is_alone is is_alone


@pytest.mark.parametrize("slowness", [1.0, 3.0])
def test_others_are_asked_where_nobody_tells_or_nothing_comes_and_not_all_the_time(
    slowness: float,
) -> None:
    hearsay = Hearsay(slowness)
    assert hearsay.is_look_due(0.0, 0.0)
    assert not hearsay.is_look_due(0.99 * LOOK_EVERY_S * slowness, 0.0)
    assert hearsay.is_look_due(LOOK_EVERY_S * slowness, 0.0)
    hearsay.tellers.add(ALICE)
    assert not hearsay.is_look_due(100.0, 0.99 * SILENCE_S * slowness)
    assert hearsay.is_look_due(100.0, SILENCE_S * slowness)
    assert not hearsay.is_look_due(100.0, SILENCE_S * slowness)


def test_what_one_says_of_another_is_news_though_somebody_else_has_said_it() -> None:
    """A liar may have said it before it was so."""
    hearsay = Hearsay()
    hearsay.gains(BOB, 0b11, True, ALICE)
    for teller in (CAROL, BOB, None):
        assert PeerGained(BOB, frozenset({0, 1})) in hearsay.gains(BOB, 0b11, True, teller)
        assert hearsay.gains(BOB, 0b11, True, teller) == []


def test_who_said_of_one_what_it_lacked_is_believed_of_that_one_no_more() -> None:
    hearsay, count = Hearsay(), WRONG_MAX + 2
    hearsay.gains(BOB, (1 << count) - 1, True, ALICE)
    hearsay.gains(BOB, 0b1 | 1 << count, True, CAROL)
    hearsay.gains(CAROL, 0b11, True, ALICE)
    last = WRONG_MAX - 1
    assert hearsay.weigh(BOB, range(1, last), [None] * (last - 1)) == []
    assert hearsay.weigh(BOB, [last], [memoryview(b"it has this one")]) == []
    assert hearsay.weigh(BOB, [last], [None]) == []
    # Carol says that Bob has the first, too, and nobody has shown her wrong.
    unsaid = PeerLacks(BOB, frozenset(range(1, count)))
    assert hearsay.weigh(BOB, [last + 1], [None]) == [unsaid]
    assert hearsay.weigh(BOB, [last + 2], [None]) == []
    assert hearsay.gains(BOB, 1 << 20, True, ALICE) == []
    assert PeerGained(BOB, frozenset({20})) in hearsay.gains(BOB, 1 << 20, True, CAROL)
    assert PeerGained(CAROL, frozenset({2})) in hearsay.gains(CAROL, 0b111, True, ALICE)


def test_whoever_comes_back_is_believed_of_anew() -> None:
    hearsay, said = Hearsay(), (1 << WRONG_MAX) - 1
    for _ in range(2):
        hearsay.gains(BOB, said, True, ALICE)
        assert hearsay.weigh(BOB, range(1, WRONG_MAX), [None] * (WRONG_MAX - 1)) == []
        hearsay.heard_of(BOB, set())


def test_one_that_brings_more_than_it_lacks_is_believed_to_have_the_rest() -> None:
    """Some chunks of an honest one are damaged, or its answers cross with news."""
    hearsay, count = Hearsay(), 2 * WRONG_MAX
    hearsay.gains(BOB, (1 << 2 * count) - 1, True, ALICE)
    assert hearsay.weigh(BOB, range(count), [memoryview(b"there")] * count) == []
    assert hearsay.weigh(BOB, range(count), [None] * count) == []
    unsaid = PeerLacks(BOB, frozenset(range(2 * count)))
    assert hearsay.weigh(BOB, [count], [None]) == [unsaid]


def test_what_one_says_of_itself_is_news_again_though_it_was_wrong() -> None:
    """It fetches anew, say, and has what it said at first once more."""
    hearsay, said = Hearsay(), (1 << WRONG_MAX) - 1
    for _ in range(3):
        assert PeerGained(BOB, frozenset(range(WRONG_MAX))) in hearsay.gains(BOB, said, True, BOB)
        assert hearsay.gains(BOB, said, True, BOB) == []
        unsaid = PeerLacks(BOB, frozenset(range(WRONG_MAX)))
        assert hearsay.weigh(BOB, range(WRONG_MAX), [None] * WRONG_MAX) == [unsaid]
