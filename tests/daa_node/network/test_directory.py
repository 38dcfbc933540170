"""Scores sink with faults and heal with time; bans grow and end; strangers never crowd us out."""

import time
from dataclasses import replace

import pytest

from daa_node.errors import PeerFault
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import NodeRecord, Role, SignedRecord, sign_record
from daa_node.network.directory import OTHERS_MAX, Directory
from daa_node.network.reputation import BAN_S_FIRST
from daa_node.observability.events import EventLog
from daa_node.seams import Address, PeerId

KEYS = [NodeKeys.from_seed(bytes([number + 50]) * 32) for number in range(3)]


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def make(members: tuple[int, ...] = ()) -> tuple[Directory, Clock, EventLog]:
    clock, events = Clock(), EventLog(time.time_ns)
    table = {KEYS[number].node_id: KEYS[number].peer_id for number in members}
    return Directory(clock, table, events), clock, events


def record(number: int, sequence: int, port: int = 1) -> SignedRecord:
    keys, now_ns = KEYS[number], time.time_ns()
    address = Address(f"/ip4/127.0.0.1/tcp/{port}/p2p/{keys.peer_id}")
    return sign_record(
        NodeRecord(
            keys.ml_dsa_public_key,
            keys.ml_kem_public_key,
            keys.peer_id,
            (address,),
            Role.CLOUD,
            (),
            sequence,
            now_ns,
            now_ns + 10**9,
        ),
        keys,
    )


def test_only_a_higher_sequence_replaces_a_record() -> None:
    directory, _, _ = make()
    newer, older = record(0, 5), record(0, 4)
    assert directory.learn(newer)
    assert not directory.learn(older)
    assert not directory.learn(newer)
    assert directory.record_of(KEYS[0].node_id) == newer
    assert directory.peer_of(KEYS[0].node_id) == KEYS[0].peer_id
    assert directory.node_of(KEYS[0].peer_id) == KEYS[0].node_id


def test_a_member_is_known_before_it_is_met() -> None:
    directory, _, _ = make(members=(1,))
    assert directory.peer_of(KEYS[1].node_id) == KEYS[1].peer_id
    assert directory.node_of(KEYS[1].peer_id) == KEYS[1].node_id
    assert directory.record_of(KEYS[1].node_id) is None


def test_faults_are_counted_by_reason_and_heal_by_half_in_ten_minutes() -> None:
    directory, clock, events = make()
    peer = PeerId("peer")
    directory.blame(peer, PeerFault("late", "a little"))
    directory.blame(peer, PeerFault("late"))
    standing = directory.standing(peer)
    assert standing is not None
    assert standing.reputation.faults == {"late": 2}
    assert directory.score(peer) == -20.0
    clock.now_s += 600
    assert directory.score(peer) == -10.0
    assert [event["reason"] for event in events.tail()] == ["late", "late"]


def test_being_late_costs_a_tenth_of_being_wrong() -> None:
    directory, _, _ = make(members=(0,))
    peer_id = KEYS[0].peer_id
    assert not any(directory.blame(peer_id, PeerFault("late_offer")) for _ in range(90))
    assert directory.score(peer_id) == -90.0


def test_a_ban_ends_and_the_next_one_is_twice_as_long() -> None:
    directory, clock, _ = make()
    peer = PeerId("peer")
    bans = []
    for _ in range(3):
        while not directory.blame(peer, PeerFault("bad-signature")):
            pass
        bans.append(directory.banned_for_s(peer))
        clock.now_s += bans[-1]
        assert directory.banned_for_s(peer) == 0.0
    assert bans == [BAN_S_FIRST, 2 * BAN_S_FIRST, 4 * BAN_S_FIRST]


def test_a_node_takes_its_ban_along_to_another_transport_key() -> None:
    """Whoever bans it hears its new record from somebody that it has done nothing to yet."""
    directory, clock, _ = make(members=(0,))
    directory.learn(record(0, 5))
    before, after = KEYS[0].peer_id, PeerId("another")
    while not directory.banned_for_s(before):
        directory.blame(before, PeerFault("malformed"))
    newer = record(0, 6)
    assert directory.learn(replace(newer, record=replace(newer.record, peer_id=after)))
    assert directory.peer_of(KEYS[0].node_id) == after
    assert directory.banned_for_s(after) == BAN_S_FIRST
    assert directory.score(after) == directory.score(before)
    clock.now_s += BAN_S_FIRST
    for _ in range(10):
        directory.blame(after, PeerFault("malformed"))
    assert directory.banned_for_s(after) == 2 * BAN_S_FIRST


def test_occasional_faults_never_add_up_to_a_ban() -> None:
    directory, clock, _ = make()
    for _ in range(500):
        assert not directory.blame(PeerId("clumsy"), PeerFault("late"))
        clock.now_s += 120


def test_reasons_that_a_peer_invents_are_not_all_remembered() -> None:
    directory, clock, _ = make()
    peer = PeerId("peer")
    for number in range(100):
        directory.blame(peer, PeerFault(f"word-{number}"))
        clock.now_s += 3600
    standing = directory.standing(peer)
    assert standing is not None
    assert len(standing.reputation.faults) == 17
    assert standing.reputation.faults["other"] == 84


@pytest.mark.parametrize("banned_first", [True, False])
def test_strangers_make_room_for_each_other_but_never_for_a_member(banned_first: bool) -> None:
    directory, clock, _ = make(members=(0,))
    directory.learn(record(0, 1))
    if banned_first:
        while not directory.blame(PeerId("banned"), PeerFault("bad-signature")):
            pass
    for number in range(OTHERS_MAX + 50):
        clock.now_s += 0.01
        directory.saw(PeerId(f"stranger {number}"), height=0)
    assert len(directory.standings()) == OTHERS_MAX + 1
    assert directory.record_of(KEYS[0].node_id) is not None
    assert directory.standing(PeerId("stranger 0")) is None
    assert (directory.standing(PeerId("banned")) is not None) == banned_first


def test_a_transport_key_speaks_for_one_node_only() -> None:
    directory, _, _ = make(members=(0, 1))
    stolen = record(0, 9)
    forged = NodeRecord(
        KEYS[1].ml_dsa_public_key,
        KEYS[1].ml_kem_public_key,
        KEYS[0].peer_id,
        stolen.record.addresses,
        Role.CLOUD,
        (),
        9,
        stolen.record.issued_ns,
        stolen.record.expiry_ns,
    )
    assert directory.learn(stolen)
    assert not directory.learn(SignedRecord(forged, b"", b""))
    assert directory.peer_of(KEYS[1].node_id) == KEYS[1].peer_id
