"""Packets in, packets out: what boxes that translate addresses let pass, and how it looks then."""

import struct
from random import Random

import pytest

from simnet.nodes.processes import nat, port_requests
from simnet.nodes.processes.borders import CARRIER, Borders, own_address_of, public_address_of
from simnet.nodes.processes.ipv4 import (
    FIN,
    SYN,
    TCP,
    UDP,
    End,
    address_number,
    heading_of,
)
from simnet.nodes.processes.nat import NatBox
from simnet.world.determinism import Streams
from simnet.world.links import NS
from simnet.world.node_classes import Nat

INSIDE, OUTSIDE = address_number("192.168.1.2"), address_number("203.0.113.9")
HOME: End = (INSIDE, 4001)
ONE: End = (address_number("198.51.100.1"), 80)
OTHER: End = (address_number("198.51.100.2"), 443)
ACK = 0x10


def folded(words: bytes | bytearray) -> int:
    total: int = sum(struct.unpack(f"!{len(words) // 2}H", words))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def packet(
    source: End, destination: End, flags: int = ACK, protocol: int = TCP, payload: bytes = b"even"
) -> bytes:
    """A whole one with right checksums."""
    ports = struct.pack("!HH", source[1], destination[1])
    if protocol == TCP:
        header, at = bytearray(ports + struct.pack("!IIBBHHH", 7, 8, 5 << 4, flags, 99, 0, 0)), 16
    else:
        header, at = bytearray(ports + struct.pack("!HH", 8 + len(payload), 0)), 6
    ends = struct.pack("!II", source[0], destination[0])
    size = len(header) + len(payload)
    pseudo = ends + struct.pack("!BBH", 0, protocol, size)
    struct.pack_into("!H", header, at, ~folded(pseudo + header + payload) & 0xFFFF or 0xFFFF)
    ip = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, 20 + size, 1, 0, 64, protocol, 0) + ends)
    struct.pack_into("!H", ip, 10, ~folded(ip) & 0xFFFF)
    return bytes(ip + header) + payload


def is_sound(whole: bytes) -> bool:
    """Both checksums are right, by the book and not by how they were changed."""
    pseudo = whole[12:20] + struct.pack("!BBH", 0, whole[9], len(whole) - 20)
    return folded(whole[:20]) == folded(pseudo + whole[20:]) == 0xFFFF


def sent(box: NatBox, whole: bytes, now_ns: int = 0) -> bytes | None:
    heading = heading_of(whole)
    assert heading is not None
    return box.outward(whole, heading, now_ns)


def came(box: NatBox, whole: bytes, now_ns: int = 0) -> bytes | None:
    heading = heading_of(whole)
    assert heading is not None
    return box.inward(whole, heading, now_ns)


def seen_as(whole: bytes | None) -> End:
    """Where a packet comes from, as who gets it sees it."""
    heading = heading_of(whole) if whole is not None else None
    assert heading is not None
    return heading.source


def cone() -> NatBox:
    return NatBox("cone", OUTSIDE, Random(1))


def symmetric() -> NatBox:
    return NatBox("symmetric", OUTSIDE, Random(1))


@pytest.mark.parametrize("protocol", [TCP, UDP])
@pytest.mark.parametrize("box", [cone(), symmetric()])
def test_a_packet_goes_out_and_its_answer_comes_back_with_right_checksums(
    box: NatBox, protocol: int
) -> None:
    out = sent(box, packet(HOME, ONE, SYN, protocol))
    assert out is not None
    assert is_sound(out)
    address, port = seen_as(out)
    assert address == OUTSIDE
    back = came(box, packet(ONE, (OUTSIDE, port), SYN | ACK, protocol, b"answer"))
    assert back is not None
    assert is_sound(back)
    assert back == packet(ONE, HOME, SYN | ACK, protocol, b"answer")


def test_every_checksum_is_right_for_whatever_is_in_the_packet() -> None:
    chance, box = Random(5), cone()
    for _ in range(500):
        ends = [(chance.getrandbits(32), chance.randint(1, 65535)) for _ in range(2)]
        payload = chance.randbytes(2 * chance.randint(0, 40))
        whole = packet(ends[0], ends[1], ACK, chance.choice([TCP, UDP]), payload)
        assert is_sound(whole)
        out = sent(box, whole)
        assert out is not None
        assert is_sound(out)
        assert out[28:] == whole[28:] or out[9] == TCP


def test_a_datagram_without_a_checksum_gets_none() -> None:
    whole = bytearray(packet(HOME, ONE, protocol=UDP))
    whole[26:28] = b"\0\0"
    out = sent(cone(), bytes(whole))
    assert out is not None
    assert out[26:28] == b"\0\0"


def test_a_cone_has_one_outside_port_for_all_and_a_symmetric_box_one_for_each() -> None:
    box = cone()
    assert seen_as(sent(box, packet(HOME, ONE))) == seen_as(sent(box, packet(HOME, OTHER)))
    box = symmetric()
    assert seen_as(sent(box, packet(HOME, ONE))) != seen_as(sent(box, packet(HOME, OTHER)))
    assert seen_as(sent(box, packet(HOME, ONE))) == seen_as(sent(box, packet(HOME, ONE)))


def test_two_inside_share_no_outside_port() -> None:
    box = cone()
    neighbour = (INSIDE + 1, HOME[1])
    assert seen_as(sent(box, packet(HOME, ONE)))[1] == HOME[1]
    assert seen_as(sent(box, packet(neighbour, ONE))) != seen_as(sent(box, packet(HOME, ONE)))


def test_nobody_comes_in_unasked_not_even_from_another_port_of_who_was_asked() -> None:
    for box in (cone(), symmetric()):
        assert came(box, packet(ONE, (OUTSIDE, HOME[1]), SYN)) is None
        port = seen_as(sent(box, packet(HOME, ONE, SYN)))[1]
        assert came(box, packet(OTHER, (OUTSIDE, port), SYN)) is None
        assert came(box, packet((ONE[0], ONE[1] + 1), (OUTSIDE, port), SYN)) is None
        assert came(box, packet(ONE, (OUTSIDE, port), protocol=UDP)) is None
        assert box.refused == 4


def test_what_goes_from_inside_to_the_box_itself_is_dropped() -> None:
    box = cone()
    sent(box, packet(HOME, ONE))
    assert sent(box, packet((INSIDE + 1, 5), (OUTSIDE, HOME[1]))) is None
    assert box.turned_away == 1


def test_a_way_ends_when_nobody_uses_it_and_a_stream_sooner_once_it_has_ended() -> None:
    box = cone()
    port = seen_as(sent(box, packet(HOME, ONE, SYN)))[1]
    back = packet(ONE, (OUTSIDE, port))
    assert came(box, back, nat.TCP_OPENING_NS) is not None
    assert came(box, back, nat.TCP_OPENING_NS + nat.TCP_IDLE_NS) is not None
    late_ns = nat.TCP_OPENING_NS + 2 * nat.TCP_IDLE_NS
    assert came(box, back, late_ns + 1) is None
    sent(box, packet(HOME, ONE), late_ns)
    assert came(box, packet(ONE, (OUTSIDE, port), FIN | ACK), late_ns + NS) is not None
    assert came(box, back, late_ns + NS + nat.TCP_ENDING_NS + 1) is None
    sent(box, packet(HOME, OTHER, SYN))
    other = packet(OTHER, (OUTSIDE, port), SYN | ACK)
    assert came(box, other, nat.TCP_OPENING_NS + 1) is None


def test_a_full_table_begins_nothing_new_until_something_has_ended() -> None:
    box = symmetric()
    for number in range(nat.WAYS_MAX):
        assert sent(box, packet(HOME, (ONE[0] + number, 80), protocol=UDP)) is not None
    late = packet((INSIDE, 9), ONE, protocol=UDP)
    assert sent(box, late, nat.UDP_IDLE_NS) is None
    assert sent(box, packet(HOME, ONE, protocol=UDP), nat.UDP_IDLE_NS) is not None  # it has one
    assert box.ways == nat.WAYS_MAX
    assert sent(box, late, nat.UDP_IDLE_NS + 2 * nat.SWEEP_NS) is not None
    assert box.ways == 2


def test_fragments_and_other_protocols_pass_no_box() -> None:
    whole = bytearray(packet(HOME, ONE))
    whole[6] = 0x20  # more fragments
    assert heading_of(bytes(whole)) is None
    whole[6], whole[9] = 0, 1  # ICMP
    assert heading_of(bytes(whole)) is None
    assert heading_of(packet(HOME, ONE)[:30]) is None


class Net:
    """Nodes 0 and 1 on the internet, 2 and on behind what `nats` says."""

    def __init__(self, *nats: Nat) -> None:
        self.nats: tuple[Nat | None, ...] = (None, None, *nats)
        self.borders = Borders(self.nats, Streams(3))

    def own(self, node: int, port: int = 4001) -> End:
        return address_number(own_address_of(node, self.nats[node])), port

    def send(self, node: int, destination: End, flags: int = ACK) -> tuple[int, bytes | None]:
        """Who gets it, and what."""
        letter = self.borders.outward(node, packet(self.own(node), destination, flags), 0)
        return (-1, None) if letter is None else (letter.receiver, self.borders.inward(letter, 0))


def test_who_is_behind_no_box_sends_and_gets_packets_as_they_are() -> None:
    net = Net("cone")
    whole = packet(net.own(0), net.own(1))
    assert net.send(0, net.own(1)) == (1, whole)
    assert net.send(0, net.own(2)) == (-1, None)  # an inside address means nothing outside
    assert net.borders.outward(0, whole[:10], 0) is None  # nor does what is no packet


@pytest.mark.parametrize("kind", ["cone", "symmetric", "cgnat"])
def test_a_node_behind_each_kind_dials_out_and_is_dialled_by_nobody(kind: Nat) -> None:
    net = Net(kind)
    seen = address_number(CARRIER if kind == "cgnat" else public_address_of(2))
    assert net.send(0, (seen, 4001), SYN)[1] is None
    node, arrived = net.send(2, net.own(0), SYN)
    assert node == 0
    assert seen_as(arrived)[0] == seen
    node, answer = net.send(0, seen_as(arrived), SYN | ACK)
    assert node == 2
    assert answer == packet(net.own(0), net.own(2), SYN | ACK)
    assert net.send(1, seen_as(arrived), SYN)[1] is None


def test_homes_of_one_carrier_share_its_address_and_do_not_reach_each_other() -> None:
    net = Net("cgnat", "cgnat")
    ends = [seen_as(net.send(node, net.own(0), SYN)[1]) for node in (2, 3)]
    assert ends[0][0] == ends[1][0] == address_number(CARRIER)
    assert ends[0][1] != ends[1][1]
    assert [net.send(0, end, SYN | ACK)[0] for end in ends] == [2, 3]
    assert net.send(2, ends[1]) == (-1, None)
    counts = net.borders.counts()
    assert counts["nat_ways"] == 5  # each home's, and the carrier's of both; one never left
    assert counts["nat_turned_away"] == 1


def test_two_behind_boxes_of_their_own_meet_if_both_send_first_through_cones() -> None:
    net = Net("cone", "cone")
    ends = [seen_as(net.send(node, net.own(0), SYN)[1]) for node in (2, 3)]
    assert net.send(2, ends[1], SYN)[1] is None  # the other one has not written to us yet
    assert net.send(3, ends[0], SYN) == (2, packet(ends[1], net.own(2), SYN))


def test_a_port_that_the_inside_asks_for_lets_everybody_in_until_its_time_is_over() -> None:
    box = NatBox("cone", OUTSIDE, Random(1))

    def comes_in(now_ns: int, remote: End = ONE) -> bool:
        asked = packet(remote, (OUTSIDE, 4001), SYN)
        heading = heading_of(asked)
        assert heading is not None
        passed = box.inward(asked, heading, now_ns)
        assert passed is None or is_sound(passed)
        return passed is not None

    assert not comes_in(0)
    assert box.open_port(4001, HOME, 60, 0)
    assert comes_in(1)
    assert comes_in(1, OTHER)
    answer = packet(HOME, ONE)
    heading = heading_of(answer)
    assert heading is not None
    seen = box.outward(answer, heading, 2)
    assert seen is not None
    assert heading_of(seen).source == (OUTSIDE, 4001)  # type: ignore[union-attr]
    assert not box.open_port(4001, (INSIDE + 1, 4001), 60, 3)  # another home's host
    assert box.open_port(4001, (INSIDE + 1, 0), 0, 3)  # nor may that close it
    late: End = (address_number("198.51.100.3"), 443)
    assert comes_in(4, late)
    assert not comes_in(61 * NS, (late[0], 444))
    assert box.open_port(4001, HOME, 60, 62 * NS)
    assert box.open_port(4001, (INSIDE, 0), 0, 63 * NS)
    assert not comes_in(64 * NS, (late[0], 445))


def test_a_box_opens_ports_for_its_own_home_and_only_if_it_is_of_that_kind() -> None:
    borders = Borders((None, "upnp", "cone"), Streams(5))
    for node, result in ((1, port_requests.DONE), (2, port_requests.REFUSED)):
        own = address_number(own_address_of(node, "cone")), 9
        ask = struct.pack("!BBHHHI", 0, 2, 0, 4001, 4001, 60)
        gateway = address_number(port_requests.GATEWAY), port_requests.PORT
        told = borders.answer(node, packet(own, gateway, protocol=UDP, payload=ask), 0)
        assert told is not None
        assert folded(told[:20]) == 0xFFFF
        heading = heading_of(told)
        assert heading is not None
        assert (heading.source, heading.destination) == (gateway, own)
        assert struct.unpack_from("!H", told, 30)[0] == result
    assert borders.answer(1, packet((5, 5), ONE), 0) is None
    assert borders.answer(0, packet((5, 5), gateway, protocol=UDP, payload=ask), 0) is None
