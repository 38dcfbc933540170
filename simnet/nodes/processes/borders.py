"""Where each node is: on the internet itself, or behind one box or two that translate.

    cone, symmetric   node -> its home's box -> internet
    upnp              the same with a cone that opens ports on request, see router_face
    cgnat             node -> its home's box -> its carrier's box -> internet

Every home has a box and an address of its own; all homes of one carrier share the carrier's. A
carrier's box maps as a cone does (RFC 6888 asks for it).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simnet.nodes.processes.ipv4 import address_number, heading_of
from simnet.nodes.processes.nat import Mapping, NatBox
from simnet.nodes.processes.port_requests import DONE, REFUSED, answer, request_in
from simnet.world.determinism import Streams
from simnet.world.node_classes import Nat

NETWORK = "10.86"  # seen by nobody outside; every namespace reaches all of it through its device
# Third byte: nodes and homes on the internet, nodes inside a home, homes inside a carrier.
_PUBLIC, _INSIDE, _OF_CARRIER = 0, 1, 2
CARRIER = f"{NETWORK}.{_PUBLIC}.250"  # beyond any node's


def public_address_of(node: int) -> str:
    """Of a node without a box, or of its home's box."""
    return f"{NETWORK}.{_PUBLIC}.{node + 1}"


def own_address_of(node: int, nat: Nat | None) -> str:
    """What the node's own device is called."""
    if nat is None:
        return public_address_of(node)
    return f"{NETWORK}.{_INSIDE}.{node + 1}"


@dataclass(frozen=True, slots=True)
class Letter:
    """A packet on the internet, and the node that it is on the way to."""

    receiver: int
    packet: bytes


class Borders:
    """The boxes of one run. `nats` has the kind of each node's, or None."""

    def __init__(self, nats: Sequence[Nat | None], streams: Streams) -> None:
        self._behind: list[tuple[NatBox, ...]] = []  # of each node, the home's first
        self._public: dict[int, int] = {}  # by address on the internet
        self._carrier: NatBox | None = None
        self._obliging: set[int] = set()  # nodes whose boxes open ports
        self._homes: dict[int, int] = {}  # by address inside the carrier
        for node, nat in enumerate(nats):
            self._behind.append(tuple(self._boxes(node, nat, streams)))
            if nat == "upnp":
                self._obliging.add(node)
            if nat != "cgnat":
                self._public[address_number(public_address_of(node))] = node

    def answer(self, node: int, packet: bytes, now_ns: int) -> bytes | None:
        """What the node's box says to a packet that asks something of itself; None if it does not.

        Most boxes say that they open no ports.
        """
        heading = heading_of(packet)
        asked = None if heading is None else request_in(packet, heading)
        if heading is None or asked is None or not self._behind[node]:
            return None
        inside = heading.source[0], asked.inside_port
        is_done = node in self._obliging and self._behind[node][0].open_port(
            asked.outside_port, inside, asked.seconds, now_ns
        )
        return answer(heading.source, asked, DONE if is_done else REFUSED)

    def outward(self, node: int, packet: bytes, now_ns: int) -> Letter | None:
        """A packet of the node as the internet sees it; None if it gets nowhere."""
        passed: bytes | None = packet
        for box in self._behind[node]:
            heading = None if passed is None else heading_of(passed)
            if passed is None or heading is None:
                return None
            passed = box.outward(passed, heading, now_ns)
        receiver = None if passed is None else self._receiver_of(passed)
        return None if passed is None or receiver is None else Letter(receiver, passed)

    def inward(self, letter: Letter, now_ns: int) -> bytes | None:
        """What the receiver gets of it; None if a box lets it not in."""
        passed: bytes | None = letter.packet
        for box in reversed(self._behind[letter.receiver]):
            heading = None if passed is None else heading_of(passed)
            if passed is None or heading is None:
                return None
            passed = box.inward(passed, heading, now_ns)
        return passed

    def counts(self) -> dict[str, int]:
        """Of all boxes."""
        boxes = {id(box): box for behind in self._behind for box in behind}.values()
        return {
            "nat_ways": sum(box.ways for box in boxes),
            "nat_refused": sum(box.refused for box in boxes),
            "nat_turned_away": sum(box.turned_away for box in boxes),
        }

    def _boxes(self, node: int, nat: Nat | None, streams: Streams) -> Iterable[NatBox]:
        if nat is None:
            return
        chance = streams.random(f"nat {node}")
        if nat != "cgnat":
            mapping: Mapping = "symmetric" if nat == "symmetric" else "cone"
            yield NatBox(mapping, address_number(public_address_of(node)), chance)
            return
        home = address_number(f"{NETWORK}.{_OF_CARRIER}.{node + 1}")
        self._homes[home] = node
        yield NatBox("cone", home, chance)
        if self._carrier is None:
            outside = address_number(CARRIER)
            self._carrier = NatBox("cone", outside, streams.random("nat of the carrier"))
        yield self._carrier

    def _receiver_of(self, packet: bytes) -> int | None:
        """The node that a packet on the internet goes to, whether or not it will be let in."""
        destination = int.from_bytes(packet[16:20])
        if self._carrier is None or destination != self._carrier.outside:
            return self._public.get(destination)
        heading = heading_of(packet)
        home = None if heading is None else self._carrier.inside_of(heading)
        return None if home is None else self._homes.get(home[0])
