"""What volunteers' results were worth is kept, bounded, and survives a restart."""

import pytest

from daa_dag.ids import NodeId
from daa_node.gateway.standing import BARRED_S, NAMES_MAX, STORED_BYTES_MAX, Standings


def name(number: int) -> NodeId:
    return NodeId(number.to_bytes(32))


def test_who_was_wrong_is_barred_for_a_day() -> None:
    standings = Standings()
    standings.took(name(1))
    standings.judged(name(1), False, 1000)
    assert standings.is_barred(name(1), 1000 + BARRED_S - 1)
    assert not standings.is_barred(name(1), 1000 + BARRED_S)
    assert standings.of(name(1)).lifetime == (1, 0, 1)


def test_standings_come_back_from_the_disk() -> None:
    standings = Standings()
    for number in range(3):
        standings.took(name(number))
        standings.judged(name(number), number > 0, 1000)
    assert standings.is_changed
    again = Standings(standings.encode())
    assert not standings.is_changed
    assert [again.of(name(n)) for n in range(4)] == [standings.of(name(n)) for n in range(4)]


def test_the_longest_unseen_is_forgotten_and_the_record_stays_small() -> None:
    standings = Standings()
    for number in range(NAMES_MAX + 2):
        standings.judged(name(number), True, 2**40)
        standings.judged(name(number), False, 2**40)
    assert name(1) not in standings
    assert name(2) in standings
    assert len(standings.encode()) <= STORED_BYTES_MAX


@pytest.mark.parametrize(
    "stored", [b"", b"\xff", b"\x91\x01", b"\x91\x95\xc4\x01a\x01\x01\x01\x01"]
)
def test_a_damaged_record_begins_anew(stored: bytes) -> None:
    assert Standings(stored).of(name(1)).lifetime == (0, 0, 0)
