"""What a router reads of an IPv4 packet and writes into it: one end's address and port.

TCP and UDP alone have ports; a fragment but the first has none, and the first of several is no
whole packet. Checksums are changed by what the packet has changed by (RFC 1624), not made anew: a
packet that was damaged before stays damaged.
"""

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Literal

TCP, UDP = 6, 17
HEADER_BYTES_MIN = 20
FIN, SYN, RST = 0x01, 0x02, 0x04
_HEADER_CHECKSUM = 10  # byte
_SOURCE, _DESTINATION = 12, 16  # bytes
_MORE_FRAGMENTS, _FRAGMENT_OFFSET = 0x2000, 0x1FFF
_FLAGS = 13  # byte of a TCP header
# protocol: (bytes of the shortest header, byte of its checksum)
_OF_PROTOCOL = {TCP: (20, 16), UDP: (8, 6)}

End = tuple[int, int]  # an address as a number, and a port
Side = Literal["source", "destination"]


@dataclass(frozen=True, slots=True)
class Heading:
    """What matters of a packet to a router."""

    protocol: int
    source: End
    destination: End
    tcp_flags: int  # 0 of UDP
    header_bytes: int


def address_number(text: str) -> int:
    return int(IPv4Address(text))


def heading_of(packet: bytes) -> Heading | None:
    """None for what no router of ours translates."""
    if len(packet) < HEADER_BYTES_MIN or packet[0] >> 4 != 4:
        return None
    header_bytes, protocol = (packet[0] & 0x0F) * 4, packet[9]
    (fragment,) = struct.unpack_from("!H", packet, 6)
    if header_bytes < HEADER_BYTES_MIN or fragment & (_MORE_FRAGMENTS | _FRAGMENT_OFFSET):
        return None
    if protocol not in _OF_PROTOCOL:
        return None
    if len(packet) < header_bytes + _OF_PROTOCOL[protocol][0]:
        return None
    source, destination = struct.unpack_from("!II", packet, _SOURCE)
    source_port, destination_port = struct.unpack_from("!HH", packet, header_bytes)
    flags = packet[header_bytes + _FLAGS] if protocol == TCP else 0
    return Heading(
        protocol, (source, source_port), (destination, destination_port), flags, header_bytes
    )


def rewritten(packet: bytes, heading: Heading, side: Side, end: End) -> bytes:
    """The same packet with another source or destination."""
    address_at = _SOURCE if side == "source" else _DESTINATION
    port_at = heading.header_bytes + (0 if side == "source" else 2)
    old = packet[address_at : address_at + 4], packet[port_at : port_at + 2]
    new = struct.pack("!I", end[0]), struct.pack("!H", end[1])
    changed = bytearray(packet)
    changed[address_at : address_at + 4], changed[port_at : port_at + 2] = new
    _mend(changed, _HEADER_CHECKSUM, old[0], new[0])
    at = heading.header_bytes + _OF_PROTOCOL[heading.protocol][1]
    # UDP without a checksum has zeros there, and keeps them
    if heading.protocol == TCP or changed[at : at + 2] != b"\0\0":
        _mend(changed, at, b"".join(old), b"".join(new))
        if heading.protocol == UDP and changed[at : at + 2] == b"\0\0":
            changed[at : at + 2] = b"\xff\xff"
    return bytes(changed)


def _mend(packet: bytearray, at: int, old: bytes, new: bytes) -> None:
    """HC' = ~(~HC + ~m + m'), equation 3 of RFC 1624."""
    (checksum,) = struct.unpack_from("!H", packet, at)
    words = f"!{len(old) // 2}H"
    total = ~checksum & 0xFFFF
    total += sum(~word & 0xFFFF for word in struct.unpack(words, old))
    total += sum(struct.unpack(words, new))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", packet, at, ~total & 0xFFFF)
