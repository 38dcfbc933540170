"""What faults cost a peer, and when that is a ban."""

import pytest

from daa_node.network.reputation import BAN_S_FIRST, BAN_S_MAX, Reputation


def faults_to_ban(peer: Reputation, reason: str, now_s: float) -> int:
    """How many at once get it banned."""
    for count in range(1, 1_000):
        peer.count(reason, now_s)
        if peer.ban_if_due(now_s):
            return count
    raise AssertionError(f"a thousand times {reason} and no ban")


@pytest.mark.parametrize(
    ("reason", "count"),
    [("malformed", 10), ("bad-signature", 3), ("late_offer", 100), ("unread", 400)],
)
def test_a_fault_weighs_as_much_as_it_tells_of_its_sender(reason: str, count: int) -> None:
    assert faults_to_ban(Reputation(), reason, 5.0) == count


def test_what_follows_a_ban_counts_sooner_than_a_first_offence() -> None:
    peer = Reputation()
    first = faults_to_ban(peer, "malformed", 0.0)
    assert faults_to_ban(peer, "malformed", BAN_S_FIRST) == pytest.approx(first / 2, abs=1)


def test_faults_within_a_ban_make_it_no_longer() -> None:
    """What was under way when it began is of the same offence."""
    peer = Reputation()
    faults_to_ban(peer, "bad-signature", 0.0)
    for _ in range(20):
        peer.count("bad-signature", 1.0)
        assert not peer.ban_if_due(1.0)
    assert peer.banned_for_s(1.0) == BAN_S_FIRST - 1.0


def test_no_ban_is_longer_than_an_hour() -> None:
    peer, now_s = Reputation(), 0.0
    for _ in range(20):
        faults_to_ban(peer, "bad-signature", now_s)
        assert peer.banned_for_s(now_s) <= BAN_S_MAX
        now_s += peer.banned_for_s(now_s)
    assert peer.ban_s == BAN_S_MAX
