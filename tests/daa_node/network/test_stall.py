"""When a fetch stands still, and that holders lend little at first and all in the end."""

from daa_dag.ids import NodeId
from daa_node.network.stall import DUE_SHARE, LENT_START, STALL_S, Stall

HOLDER, RELAY = NodeId(b"h" * 32), NodeId(b"r" * 32)
RELAYS = {RELAY}


def test_a_fetch_stands_still_after_a_while_without_a_chunk_or_as_long_as_answers_take() -> None:
    stall = Stall()
    stall.begin(10.0)
    stall.note_offers(12.0)
    assert not stall.is_due(12.0 + STALL_S, 1.0)
    assert stall.is_due(12.1 + STALL_S, 1.0)
    assert not stall.is_due(12.1 + STALL_S, 8.0)
    stall.note_chunk(HOLDER, RELAYS, 15.0)
    assert not stall.is_due(15.0 + STALL_S, 1.0)


def test_what_holders_lend_doubles_until_another_brings_a_chunk() -> None:
    stall = Stall()
    stall.begin(0.0)
    assert [stall.lend() for _ in range(3)] == [LENT_START, 2 * LENT_START, 4 * LENT_START]
    stall.note_chunk(HOLDER, RELAYS, 50.0)  # of what it lends: that says nothing of the others
    assert stall.is_due(50.0, 1.0)
    stall.note_chunk(RELAY, RELAYS, 51.0)
    assert not stall.is_due(51.0 + STALL_S, 1.0)
    assert stall.lend() == LENT_START


def test_the_pace_counts_from_the_first_offer_and_not_before_a_stall_could_be() -> None:
    stall = Stall()
    stall.begin(0.0)
    stall.note_offers(10.0)
    stall.note_offers(11.0)  # of another
    assert stall.due_share(10.0 + STALL_S, 0.0, 1.0) == 0.0
    assert stall.due_share(20.0, 0.0, 1.0) == 10.0 / DUE_SHARE


def test_where_a_chunk_stands_for_many_a_stall_is_as_much_longer() -> None:
    stall, later_s = Stall(slowness=225.0), 225.0 * STALL_S
    stall.begin(0.0)
    stall.note_offers(0.0)
    assert not stall.is_due(later_s - 1, 1.0)
    assert stall.due_share(later_s - 1, 0.0, 1.0) == 0.0
    assert stall.is_due(later_s + 1, 1.0)
    assert stall.due_share(later_s + 1, 0.0, 1.0) > 0.0
