"""What lies between nodes: packets that our switch carries, or a relay's streams."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from daa_node.cli.free_ports import free_ports
from daa_node.errors import Unavailable, UserError
from simnet.nodes.processes import kernel, relay, router_face, switch
from simnet.nodes.processes.backends import Backend
from simnet.nodes.processes.borders import own_address_of, public_address_of
from simnet.nodes.processes.fork_server import ForkServer
from simnet.nodes.processes.lines import Line
from simnet.world.link_conditions import Ends, LinkStates
from simnet.world.node_classes import Nat
from simnet.world.scenario import Scenario

DAEMON_PORT = 4001


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where nodes are, as multiaddrs without a peer's name."""

    listening: tuple[str, ...]  # of each node, on its own device
    hidden: frozenset[int] = frozenset()  # whom nobody can dial
    announced: str | None = None  # what everybody tells others instead
    doors: Mapping[Ends, str] = field(default_factory=dict)  # instead of where the other listens

    def dial(self, node: int, other: int) -> str:
        """Where one node finds the other."""
        return self.doors.get((node, other), self.listening[other])


class Internet:
    """Made before any daemon; its links are cut until `set_links` first opens them."""

    def __init__(
        self,
        carrier: Line,
        addresses: Addresses,
        namespaces: list[int],
        faces: Sequence[Line] = (),
    ) -> None:
        """`carrier` carries what is sent; `namespaces` has a descriptor for each node, or none.

        `faces` are those of routers that can be asked for a port.
        """
        self._faces = faces
        self._carrier = carrier
        self._namespaces = namespaces
        self.addresses = addresses
        # by all others, for bulk as well; else that goes over libp2p's streams
        self.dialable = bool(namespaces)

    def set_links(self, states: LinkStates) -> None:
        """From now on. Raises Unavailable when the carrier has died."""
        self._carrier.ask(states)

    def counts(self) -> dict[str, float]:
        """What the carrier has done so far."""
        counts: dict[str, float] = self._carrier.ask({})
        return counts

    def namespace_of(self, node: int) -> int | None:
        """The descriptor of the network namespace that the node lives in, if it has one."""
        return self._namespaces[node] if self._namespaces else None

    def end(self) -> None:
        for line in (*self._faces, self._carrier):
            line.close()
        for descriptor in self._namespaces:
            os.close(descriptor)


def open_internet(backend: Backend, server: ForkServer, scenario: Scenario) -> Internet:
    """Raises UserError where the system refuses after all."""
    count, seed = scenario.node_count, scenario.seed
    try:
        if backend.name == "tun":
            return tun_internet(server, scenario.nats, seed, backend.user_namespace)
        return relayed_internet(server, count, seed)
    except Unavailable as failed:
        raise UserError(f"{backend.name}: {failed}", exit_code=1) from None


def tun_internet(
    server: ForkServer, nats: tuple[Nat | None, ...], seed: int, as_user: bool
) -> Internet:
    """A namespace for each node, and our switch between their TUN devices.

    `nats`: of each node, what it is behind.
    """
    count, own = len(nats), [own_address_of(node, nat) for node, nat in enumerate(nats)]
    # forked before there may be a user namespace, in which nobody is punctual
    carrier = server.fork_helper("switch", partial(switch.serve, seed, nats))
    # at most 15 characters, and no other run's
    device = f"daa{os.getpid()}n"
    made = server.call(partial(kernel.namespaces_with_tuns, own, device, as_user))
    try:
        carrier.ask(None, made[count:])
    finally:
        for tun in made[count:]:
            os.close(tun)  # else the devices would outlive the switch
    listening = tuple(f"/ip4/{address}/tcp/{DAEMON_PORT}" for address in own)
    hidden = frozenset(node for node, nat in enumerate(nats) if nat is not None)
    faces = []
    for node, nat in enumerate(nats):
        if nat == "upnp":
            life = partial(router_face.serve, own[node], public_address_of(node))
            faces.append(server.fork_helper("router", life, made[node]))
            faces[-1].hear()
    return Internet(carrier, Addresses(listening, hidden), made[:count], faces)


def relayed_internet(server: ForkServer, count: int, seed: int) -> Internet:
    """Daemons on loopback, every connection through the relay.

    Nobody may learn where a daemon really listens, or it would be dialled past the relay. So each
    one announces a port where nobody listens, and is told by its settings, for each of the others,
    the relay's port for the two of them. Bulk sessions travel over the same connections.
    """
    carrier = server.fork_helper("relay", partial(relay.serve, count, seed))
    doors: dict[Ends, int] = carrier.hear()[0]
    # once the doors are open: they must not be where a daemon is to listen
    ports = free_ports(count)
    carrier.ask(ports)
    addresses = Addresses(
        tuple(_on_loopback(port) for port in ports),
        frozenset(),
        _on_loopback(1),
        {ends: _on_loopback(port) for ends, port in doors.items()},
    )
    return Internet(carrier, addresses, [])


def _on_loopback(port: int) -> str:
    return f"/ip4/{relay.LOOPBACK}/tcp/{port}"
