"""A box that translates addresses, as a home's router does, or a carrier's in front of many homes.

    a packet from inside: source (inside address, port) -> (outside address, a port of the box)
    a packet from outside: to a port of the box, from whom that port has been used to: back inside
                           anything else: dropped

`cone` uses one outside port of the box for all that come from one inside port, whomever they go to
(endpoint-independent mapping, RFC 4787 section 4.1); `symmetric` another one for each destination.
Both let in only whom the inside has written to, address and port (section 5, the strictest kind).
A port that the inside asks for lets everybody in for a while.
What goes from inside to the box's own outside is dropped: few boxes turn it round. A way that is
not used is forgotten; when the table is full of ways in use, no new one begins.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from simnet.nodes.processes.ipv4 import (
    FIN,
    RST,
    SYN,
    TCP,
    End,
    Heading,
    rewritten,
)
from simnet.world.links import NS

Mapping = Literal["cone", "symmetric"]

WAYS_MAX = 2048  # of a box: pairs of an inside port and whom it goes to
PORT_FIRST, PORT_LAST = 1024, 65_535
# Shorter than what RFC 5382 asks for, as many homes' boxes are: who is silent is cut off.
TCP_IDLE_NS = 300 * NS
TCP_ENDING_NS = 10 * NS  # after FIN or RST: the last acknowledgements still pass
TCP_OPENING_NS = 30 * NS  # a SYN that nobody has answered
UDP_IDLE_NS = 60 * NS
SWEEP_NS = NS  # a full table is looked through at most so often


@dataclass(slots=True)
class _Way:
    """From one inside end to one remote one."""

    used_ns: int
    idle_ns: int


@dataclass(slots=True)
class _Mapping:
    """An outside port, whose it is, and to whom it has been used."""

    key: tuple[int, End, End | None]  # (protocol, inside, remote: None of a cone)
    port: int
    ways: dict[End, _Way] = field(default_factory=dict)
    open_until_ns: int = 0  # until then for everybody, because the inside has asked for it

    @property
    def inside(self) -> End:
        return self.key[1]


class NatBox:
    """One box. All times are of one monotonic clock, in ns."""

    def __init__(self, mapping: Mapping, outside: int, chance: Random) -> None:
        """`outside` is its outside address as a number."""
        self.outside = outside
        self._is_symmetric = mapping == "symmetric"
        self._chance = chance
        self._by_key: dict[tuple[int, End, End | None], _Mapping] = {}
        self._by_port: dict[tuple[int, int], _Mapping] = {}  # (protocol, outside port)
        self._ways = 0
        self._swept_ns = -SWEEP_NS
        self.refused = 0  # packets from outside that nobody inside has asked for
        self.turned_away = 0  # from inside, for want of room or because they go to the box itself

    @property
    def ways(self) -> int:
        return self._ways

    def outward(self, packet: bytes, heading: Heading, now_ns: int) -> bytes | None:
        """What leaves on the outside; None if nothing does."""
        mapping = None
        if heading.destination[0] != self.outside:
            mapping = self._mapping_for(heading, now_ns)
        if mapping is None:
            self.turned_away += 1
            return None
        way = mapping.ways.get(heading.destination)
        if way is None:
            way = mapping.ways[heading.destination] = _Way(now_ns, 0)
            self._ways += 1
        self._use(way, heading, now_ns, from_inside=True)
        return rewritten(packet, heading, "source", (self.outside, mapping.port))

    def open_port(self, port: int, inside: End, seconds: int, now_ns: int) -> bool:
        """Let everybody in to an inside TCP port by this outside one; False if that is taken.

        0 seconds close it. Ways that are in use stay.
        """
        found = self._by_port.get((TCP, port))
        if seconds == 0:
            if found is not None and found.inside[0] == inside[0]:
                found.open_until_ns = 0
            return True
        key = (TCP, inside, None)
        before = self._by_key.get(key)
        if (found is not None and found is not before) or (before is not None and found is None):
            return False
        if before is None:
            before = self._by_key[key] = self._by_port[TCP, port] = _Mapping(key, port)
        before.open_until_ns = now_ns + seconds * NS
        return True

    def inside_of(self, heading: Heading) -> End | None:
        """Who has the outside port that a packet from outside goes to, let in or not."""
        mapping = self._by_port.get((heading.protocol, heading.destination[1]))
        return None if mapping is None else mapping.inside

    def inward(self, packet: bytes, heading: Heading, now_ns: int) -> bytes | None:
        """What arrives inside; None for what nobody there has asked for."""
        mapping = self._by_port.get((heading.protocol, heading.destination[1]))
        way = None if mapping is None else mapping.ways.get(heading.source)
        if mapping is not None and mapping.open_until_ns > now_ns and self._ways < WAYS_MAX:
            if way is None:
                way = mapping.ways[heading.source] = _Way(now_ns, 0)
                self._ways += 1
            way.used_ns = now_ns
        if mapping is None or way is None or now_ns - way.used_ns > way.idle_ns:
            self.refused += 1
            return None
        self._use(way, heading, now_ns, from_inside=False)
        return rewritten(packet, heading, "destination", mapping.inside)

    def _mapping_for(self, heading: Heading, now_ns: int) -> _Mapping | None:
        remote = heading.destination if self._is_symmetric else None
        key = (heading.protocol, heading.source, remote)
        found = self._by_key.get(key)
        if found is not None and heading.destination in found.ways:
            return found
        if self._ways >= WAYS_MAX and now_ns - self._swept_ns >= SWEEP_NS:
            self._swept_ns = now_ns
            self._sweep(now_ns)
            found = self._by_key.get(key)
        if self._ways >= WAYS_MAX:
            return None
        if found is not None:
            return found
        port = next(self._ports(heading), None)
        if port is None:
            return None
        found = self._by_key[key] = self._by_port[heading.protocol, port] = _Mapping(key, port)
        return found

    def _ports(self, heading: Heading) -> Iterator[int]:
        """Free ones: a cone keeps the inside's number if it can, a symmetric box draws."""
        if not self._is_symmetric and (heading.protocol, heading.source[1]) not in self._by_port:
            yield heading.source[1]
        first = self._chance.randint(PORT_FIRST, PORT_LAST)
        count = PORT_LAST - PORT_FIRST + 1
        for step in range(count):
            port = PORT_FIRST + (first - PORT_FIRST + step) % count
            if (heading.protocol, port) not in self._by_port:
                yield port

    def _use(self, way: _Way, heading: Heading, now_ns: int, from_inside: bool) -> None:
        way.used_ns = now_ns
        if heading.protocol != TCP:
            way.idle_ns = UDP_IDLE_NS
        elif heading.tcp_flags & (FIN | RST):
            way.idle_ns = TCP_ENDING_NS
        elif heading.tcp_flags & SYN and from_inside:
            way.idle_ns = TCP_OPENING_NS  # also of a new stream between ends that had one
        elif way.idle_ns != TCP_ENDING_NS:
            way.idle_ns = TCP_IDLE_NS

    def _sweep(self, now_ns: int) -> None:
        """Forget what has not been used for too long."""
        for mapping in list(self._by_key.values()):
            for remote, way in list(mapping.ways.items()):
                if now_ns - way.used_ns > way.idle_ns:
                    del mapping.ways[remote]
                    self._ways -= 1
            if not mapping.ways and mapping.open_until_ns <= now_ns:
                del self._by_key[mapping.key]
                del self._by_port[mapping.key[0], mapping.port]
