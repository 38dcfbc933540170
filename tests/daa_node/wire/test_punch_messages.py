"""What a relay and a peer say of circuits and holes is bounded to the last number and letter."""

import pytest

from daa_dag import canonical
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import PeerId
from daa_node.wire import punch_messages, relay_messages
from daa_node.wire.punch_messages import PORT_FIRST, PORT_LAST
from daa_node.wire.relay_messages import (
    MESSAGE_BYTES_MAX,
    PEER_ID_CHARACTERS_MAX,
    RESERVED_S_MAX,
    WHY_CHARACTERS_MAX,
)

LONGEST = PeerId("x" * PEER_ID_CHARACTERS_MAX)
LONGER = PeerId("x" * (PEER_ID_CHARACTERS_MAX + 1))


def test_a_place_is_an_address_and_a_port_that_a_router_shows() -> None:
    for host in ("203.0.113.9", "2606:4700::1111"):
        for port in (PORT_FIRST, PORT_LAST):
            assert punch_messages.place_of(punch_messages.at(host, port)) == (host, port)
        for port in (PORT_FIRST - 1, PORT_LAST + 1):
            with pytest.raises(PeerFault, match="punch-malformed"):
                punch_messages.place_of(punch_messages.at(host, port))
    for host in ("router.example", "", "relayed by x", "1.2.3"):
        with pytest.raises(PeerFault, match="punch-malformed"):
            punch_messages.place_of(punch_messages.at(host, PORT_FIRST))


def test_a_peer_is_named_in_as_many_letters_as_one_has() -> None:
    assert punch_messages.wish_of(punch_messages.where(LONGEST)) == LONGEST
    assert relay_messages.wish_of(relay_messages.connect(LONGEST)) == ("connect", LONGEST)
    with pytest.raises(PeerFault, match="punch-malformed"):
        punch_messages.wish_of(punch_messages.where(LONGER))
    with pytest.raises(PeerFault, match="relay-malformed"):
        relay_messages.wish_of(relay_messages.connect(LONGER))


def test_nothing_is_promised_for_longer_than_may_be_nor_for_less_than_nothing() -> None:
    for seconds in (0, RESERVED_S_MAX):
        assert relay_messages.seconds_granted(relay_messages.granted(seconds)) == seconds
    for seconds in (-1, RESERVED_S_MAX + 1):
        with pytest.raises(PeerFault, match="relay-malformed"):
            relay_messages.seconds_granted(relay_messages.granted(seconds))


@pytest.mark.parametrize(
    "read", [punch_messages.word_of, punch_messages.place_of, relay_messages.seconds_granted]
)
def test_a_refusal_is_cut_to_what_a_message_holds_and_moves_no_terminal(read: object) -> None:
    assert callable(read)
    why = "é" * 2 * WHY_CHARACTERS_MAX
    assert len(relay_messages.refused(why)) <= MESSAGE_BYTES_MAX
    with pytest.raises(Unavailable, match=f"refuses: {why[:WHY_CHARACTERS_MAX]}$"):
        read(relay_messages.refused(why))
    with pytest.raises(PeerFault, match="-malformed"):
        read(canonical.encode(["refused", "\x1b[31m"]))
