"""Whether others can dial this node: as a daemon's members have found, or a member that is asked.

A running daemon has asked the members of its network already. Of one that does not run, a visitor
listens in its place for some seconds, and asks a node that it has met to dial back.
"""

from collections.abc import Mapping
from typing import Any

import trio

from daa_node.cli.doctor.findings import Finding, amiss, unmeasured, well
from daa_node.cli.doctor.scene import Scene
from daa_node.cli.joining import Visit
from daa_node.cli.remote import reach_line
from daa_node.errors import UserError
from daa_node.genesis import Genesis
from daa_node.identity.keys import NodeKeys
from daa_node.network.config import NetworkConfig
from daa_node.network.reachability import Reach, ports_of
from daa_node.seams import Address

DIALLED_BACK_S = 12.0  # who is asked tries our addresses one after another
VISIT_TIMEOUT_S = 60.0
# Nobody dials a port that has no way through the router, so there is only this to be done.
FORWARD = (
    "Have the router pass TCP port {port} on to this host, and open it in this host's firewall. "
    "Where the provider gives no address of your own (CGNAT), no port can be opened"
)


def of_daemon(standing: Mapping[str, Any], addresses: list[str], network: NetworkConfig) -> Finding:
    """By what a running daemon says of its reachability; `addresses` are those it tells."""
    told = reach_line(standing)
    if standing["reach"] == Reach.DIRECT:
        return well("reach", told)
    if standing["reach"] == Reach.UNKNOWN:
        return unmeasured("reach", told)
    return amiss("reach", told, _advice(standing, addresses, network))


def _advice(standing: Mapping[str, Any], addresses: list[str], network: NetworkConfig) -> str:
    if not network.listen:
        return "Give this node an address under network.listen in config.yaml; it dials others now"
    parts = [_forward([Address(text) for text in addresses], network)]
    if network.announce:
        parts = ["See that what network.announce names leads to this host from outside", *parts]
    if standing["router"] is None and not network.announce and not network.upnp:
        parts.append("With `network.upnp: true` the router is asked for it")
    if standing["relays"]:
        parts.append("Meanwhile others come through a relay, which is slower")
    elif not standing["punched"]:
        parts.append(
            "No relay is held either: a member that others can dial may set `network.relay: true`"
        )
    return ". ".join(parts)


def _forward(addresses: list[Address], network: NetworkConfig) -> str:
    listened = [Address(text) for text in network.listen]
    ports = ports_of(listened) or ports_of(addresses)
    return FORWARD.format(port=ports[0] if ports else "of network.listen")


async def of_visit(scene: Scene, made: Genesis, met: Address | None) -> Finding:
    """Of a node that does not run; `met` is where another one answers."""
    config = scene.config
    assert config is not None
    if not config.network.listen:
        return well("reach", "this node listens nowhere: it dials the others")
    if met is None:
        return unmeasured("reach", "no other node was met that could dial this one")
    listen = tuple(map(Address, config.network.listen))
    visit = Visit(met, made.chain_id, NodeKeys.generate(), listen)
    is_dialled: bool | None = None
    with trio.move_on_after(VISIT_TIMEOUT_S):
        try:
            is_dialled = await visit.during(lambda one: one.is_dialled_back(DIALLED_BACK_S))
        except UserError as failure:
            return unmeasured("reach", f"nobody could be asked to dial back: {failure}")
    if is_dialled is None:
        return unmeasured("reach", f"{met} did not try to dial this host")
    if is_dialled:
        return well("reach", f"{met} has dialled this host, and got through")
    told = f"{met} has dialled this host, and did not get through"
    return amiss("reach", told, f"{_forward([], config.network)}. Without that, relays help")
