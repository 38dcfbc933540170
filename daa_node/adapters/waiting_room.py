"""Who has connected and not yet shown what we wait for, bounded, with a share for everybody.

When there are too many, one of them goes, whoever came last included:

  1. of a network that holds more than its share of the room;
  2. else of a network from which no member was ever admitted;
  3. of these, who is not being served, or has been for SERVED_S;
  4. of these, of the network that holds most, the one that has waited longest.

So one address drives out itself, strangers from however many addresses do not drive out those
where members have lived, and nobody is thrown out half served.
"""

import ipaddress
from collections import Counter, OrderedDict
from dataclasses import dataclass

import trio

SHARES = 8  # a network that holds more than such a part of the room goes first
NETWORKS_KNOWN_MAX = 1024
# Four long round trips, from the turn to the end of the hello. Of those who say the first words and
# no more twenty a second are served (see budgets): they hold forty of sixty-four places.
SERVED_S = 2.0


class Familiar:
    """The networks from which a member was admitted, the newest of them."""

    def __init__(self) -> None:
        self._networks: OrderedDict[str, None] = OrderedDict()

    def note(self, host: str | None) -> None:
        network = network_of(host)
        self._networks[network] = None
        self._networks.move_to_end(network)
        if len(self._networks) > NETWORKS_KNOWN_MAX:
            self._networks.popitem(last=False)

    def __contains__(self, network: str) -> bool:
        return network in self._networks


@dataclass(slots=True)
class _Place:
    network: str
    served_at_s: float | None = None


class WaitingRoom:
    """Scopes of those that wait; whoever must make room is cancelled."""

    def __init__(self, capacity: int, familiar: Familiar | None = None) -> None:
        self._capacity = capacity
        self._familiar = familiar or Familiar()
        self._places: dict[trio.CancelScope, _Place] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, host: str | None, scope: trio.CancelScope) -> None:
        self._places[scope] = _Place(network_of(host))
        if len(self) > self._capacity:
            who_goes = self._who_goes()
            self.leave(who_goes)
            who_goes.cancel()

    def serve(self, scope: trio.CancelScope) -> None:
        """Its turn has come: it stays while others wait, for SERVED_S."""
        if scope in self._places:
            self._places[scope].served_at_s = trio.current_time()

    def leave(self, scope: trio.CancelScope) -> None:
        self._places.pop(scope, None)

    def _who_goes(self) -> trio.CancelScope:
        held = Counter(place.network for place in self._places.values())
        now_s = trio.current_time()

        def rank(scope: trio.CancelScope) -> tuple[bool, bool, bool, int]:
            place = self._places[scope]
            count = held[place.network]
            return (
                count > self._capacity // SHARES,
                place.network not in self._familiar,
                place.served_at_s is None or now_s - place.served_at_s >= SERVED_S,
                count,
            )

        return max(self._places, key=rank)  # the first of equals, which is the oldest


def network_of(host: str | None) -> str:
    """One IPv4 address, or one IPv6 /64: what a single customer holds."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return host or ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
