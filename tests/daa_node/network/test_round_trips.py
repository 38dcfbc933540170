"""An hour of round trips by minutes, and no more than that of any peer."""

from daa_node.network.directory import Directory
from daa_node.network.round_trips import MINUTES_KEPT, RoundTrips
from daa_node.observability.events import EventLog
from daa_node.seams import PeerId

PEER = PeerId("12D3KooWPeer")


def test_a_minute_is_told_as_the_mean_of_its_measures() -> None:
    trips = RoundTrips()
    for now_s, rtt_s in ((600.0, 0.010), (630.0, 0.030), (661.0, 0.100)):
        trips.note(rtt_s, now_s)
    assert trips.told_ms(662.0)[-3:] == [None, 20.0, 100.0]


def test_minutes_without_a_measure_are_gaps_and_an_hour_later_nothing_is_left() -> None:
    trips = RoundTrips()
    trips.note(0.010, 6_000.0)
    trips.note(0.020, 6_000.0 + 10 * 60)
    told = trips.told_ms(6_000.0 + 12 * 60)
    assert len(told) == MINUTES_KEPT
    assert [told[-13], told[-3]] == [10.0, 20.0]
    assert [each for each in told if each is not None] == [10.0, 20.0]
    assert [trips.has_any(6_000.0 + minutes * 60) for minutes in (69, 70)] == [True, False]
    assert set(trips.told_ms(6_000.0 + 200 * 60)) == {None}


def test_what_comes_after_a_long_silence_stands_alone() -> None:
    trips = RoundTrips()
    trips.note(0.010, 60.0)
    trips.note(0.040, 60.0 * 10_000)
    assert [each for each in trips.told_ms(60.0 * 10_000) if each is not None] == [40.0]


def test_a_peer_that_answers_without_end_counts_within_its_minute() -> None:
    trips = RoundTrips()
    for _ in range(70_000):
        trips.note(0.010, 600.0)
    told = trips.told_ms(600.0)[-1]
    assert told is not None
    assert 9.0 < told < 11.0


def test_a_measure_is_of_a_peer_that_is_known_and_makes_nobody_known() -> None:
    directory = Directory(lambda: 600.0, {}, EventLog(lambda: 0))
    directory.note_round_trip(PEER, 0.010)
    assert directory.standing(PEER) is None
    directory.saw(PEER, 3)
    directory.note_round_trip(PEER, 0.012)
    standing = directory.standing(PEER)
    assert standing is not None
    assert standing.rtt_s == 0.012
    assert standing.round_trips is not None
    assert standing.round_trips.told_ms(600.0)[-1] == 12.0
