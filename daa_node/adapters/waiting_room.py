"""Who has connected and not yet shown what we wait for, bounded, with a share for everybody.

When the room is full, whoever comes next takes the place of the one that has waited longest:

  1. of a network that holds more than its share of the room;
  2. else of a network from which no member was ever admitted;
  3. else of the network that holds most.

So one address drives out itself, and strangers from however many addresses do not drive out those
where members have lived.
"""

import ipaddress
from collections import OrderedDict

import trio

SHARES = 8  # a network that holds more than such a part of the room goes first
NETWORKS_KNOWN_MAX = 1024


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


class WaitingRoom:
    """Scopes of those that wait; whoever must make room is cancelled."""

    def __init__(self, capacity: int, familiar: Familiar | None = None) -> None:
        self._capacity = capacity
        self._familiar = familiar or Familiar()
        self._by_network: dict[str, OrderedDict[trio.CancelScope, None]] = {}

    def __len__(self) -> int:
        return sum(len(scopes) for scopes in self._by_network.values())

    def enter(self, host: str | None, scope: trio.CancelScope) -> None:
        if len(self) >= self._capacity:
            first = max(self._by_network, key=self._goes_first)
            oldest = next(iter(self._by_network[first]))
            self.leave(oldest)
            oldest.cancel()
        self._by_network.setdefault(network_of(host), OrderedDict())[scope] = None

    def leave(self, scope: trio.CancelScope) -> None:
        for name, scopes in list(self._by_network.items()):
            scopes.pop(scope, None)
            if not scopes:
                del self._by_network[name]

    def _goes_first(self, network: str) -> tuple[bool, bool, int]:
        held = len(self._by_network[network])
        return held > self._capacity // SHARES, network not in self._familiar, held


def network_of(host: str | None) -> str:
    """One IPv4 address, or one IPv6 /64: what a single customer holds."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return host or ""
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
