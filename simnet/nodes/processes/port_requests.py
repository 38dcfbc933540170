"""How a box is asked for a port from inside: NAT-PMP (RFC 6886), TCP alone.

who asks, to GATEWAY, UDP port 5351      the box
version, operation, ports, seconds  -->  opens it, or closes it where seconds are 0
                                    <--  result, the port outside
"""

import socket
import struct
from dataclasses import dataclass

from simnet.nodes.processes.ipv4 import UDP, End, Heading, address_number

GATEWAY = "10.86.1.254"  # of every home, beyond any node's own address in there
PORT = 5351
TIMEOUT_S = 2.0  # the box is on this machine; a busy one
DONE, REFUSED = 0, 2  # results
_VERSION, _MAP_TCP, _ANSWER = 0, 2, 128
_ASKED, _ANSWERED = struct.Struct("!BBHHHI"), struct.Struct("!BBHIHHI")
_IP, _UDP = struct.Struct("!BBHHHBBHII"), struct.Struct("!HHHH")
_HOPS = 64


@dataclass(frozen=True, slots=True)
class PortRequest:
    """By whom is in the packet's heading."""

    inside_port: int
    outside_port: int
    seconds: int


def request_in(packet: bytes, heading: Heading) -> PortRequest | None:
    """What a packet from inside asks of the box itself; None if it goes elsewhere."""
    if heading.protocol != UDP or heading.destination != (address_number(GATEWAY), PORT):
        return None
    body = packet[heading.header_bytes + _UDP.size :]
    if len(body) != _ASKED.size:
        return None
    version, operation, _, inside, outside, seconds = _ASKED.unpack(body)
    if (version, operation) != (_VERSION, _MAP_TCP):
        return None
    return PortRequest(inside, outside, seconds)


def answer(to: End, asked: PortRequest, result: int) -> bytes:
    """A packet from the box to who asked."""
    body = _ANSWERED.pack(
        *(_VERSION, _ANSWER + _MAP_TCP, result, 0),
        *(asked.inside_port, asked.outside_port, asked.seconds),
    )
    size = _UDP.size + len(body)
    segment = _UDP.pack(PORT, to[1], size, 0) + body  # without a checksum, as IPv4 allows
    ends = address_number(GATEWAY), to[0]
    fields = 0x45, 0, _IP.size + size, 0, 0, _HOPS, UDP
    checksum = _checksum(_IP.pack(*fields, 0, *ends))
    return _IP.pack(*fields, checksum, *ends) + segment


def asked_of_box(own: str, inside_port: int, outside_port: int, seconds: int) -> bool:
    """Whether the box of the home at `own` has opened the port, or closed it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind((own, 0))
        door.settimeout(TIMEOUT_S)
        asked = _ASKED.pack(_VERSION, _MAP_TCP, 0, inside_port, outside_port, seconds)
        door.sendto(asked, (GATEWAY, PORT))
        try:
            told = door.recv(64)
        except TimeoutError:
            return False
    return len(told) == _ANSWERED.size and _ANSWERED.unpack(told)[2] == DONE


def _checksum(header: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
