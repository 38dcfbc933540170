"""The fetch machine where many peers are said to have little, and some of it is not true."""

import pytest

from daa_dag.fetch import (
    Ask,
    ChunkMissing,
    PeerGained,
    PeerJoined,
    PeerLacks,
    PeerLeft,
)
from tests.daa_dag.test_fetch import (
    ALICE,
    BIG,
    BOB,
    MALLORY,
    MANIFEST,
    START_CHUNKS,
    asks,
    fetch_of,
)


def test_what_a_peer_lacked_is_asked_of_it_again_once_it_is_said_to_have_it() -> None:
    """Whoever said so the first time may have lied, or been early."""
    fetch = fetch_of()
    fetch.step(PeerJoined(ALICE, frozenset()))
    assert asks(fetch.step(PeerGained(ALICE, frozenset({3})))) == [Ask(ALICE, 3)]
    assert fetch.step(ChunkMissing(ALICE, 3)) == []
    assert asks(fetch.step(PeerGained(ALICE, frozenset({3})))) == [Ask(ALICE, 3)]


def test_a_peer_is_not_asked_for_what_nobody_says_that_it_has_any_more() -> None:
    fetch = fetch_of()
    fetch.step(PeerJoined(ALICE, frozenset()), PeerLacks(BOB, frozenset({1})))
    told = PeerGained(ALICE, frozenset({1, 2}))
    assert asks(fetch.step(told, PeerLacks(ALICE, frozenset({1})))) == [Ask(ALICE, 2)]
    assert asks(fetch.step(PeerGained(ALICE, frozenset({1})))) == [Ask(ALICE, 1)]


@pytest.mark.parametrize("few", [8, 9])
def test_one_that_has_few_pieces_is_asked_for_them_in_the_order_of_all(few: int) -> None:
    """Up to an eighth of 64 is looked for piece by piece, and what is more along the order."""
    fetch = fetch_of(BIG)
    fetch.step(PeerJoined(BOB, frozenset({60, 61})), PeerJoined(MALLORY, frozenset({0, 60})))
    fetch.step(PeerLeft(BOB), PeerLeft(MALLORY))  # both were asked for what they have
    pieces = [0, 60, 61, *range(1, few - 2)]
    assert [ask.index for ask in asks(fetch.step(PeerJoined(ALICE, frozenset(pieces))))] == [
        *(61, 60, 0),
        *range(1, few - 2),
    ][:START_CHUNKS]


def test_what_one_that_has_left_was_asked_for_is_asked_of_one_that_has_few() -> None:
    fetch = fetch_of(BIG)
    assert asks(fetch.step(PeerJoined(BOB, frozenset({5})))) == [Ask(BOB, 5)]
    assert fetch.step(PeerJoined(ALICE, frozenset({5}))) == []
    assert asks(fetch.step(PeerLeft(BOB))) == [Ask(ALICE, 5)]


def test_whoever_comes_to_have_all_lacks_nothing_that_was_said_too_early() -> None:
    fetch = fetch_of()
    everything = frozenset(range(len(MANIFEST.sizes)))
    fetch.step(PeerJoined(ALICE, frozenset()), PeerLacks(ALICE, everything))
    asked = fetch.step(PeerGained(ALICE, None), PeerLacks(ALICE, everything))
    assert asked == [Ask(ALICE, index) for index in sorted(everything)]
    # What others say of it counts no more, and what it said itself it may take back.
    assert fetch.step(ChunkMissing(ALICE, 0)) == []
    assert fetch.step(PeerGained(ALICE, frozenset({0}))) == [Ask(ALICE, 0)]


def test_what_no_blob_has_so_many_chunks_for_is_neither_gained_nor_lacked() -> None:
    fetch = fetch_of()
    fetch.step(PeerJoined(ALICE, frozenset()))
    assert fetch.step(PeerGained(ALICE, frozenset({99})), PeerLacks(ALICE, frozenset({99}))) == []
