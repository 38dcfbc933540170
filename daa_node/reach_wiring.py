"""How a node is reached: the parts of it that find out, and those that help."""

from daa_node.config import NodeConfig
from daa_node.network.contacts import NEVER_TRAINS, Contacts
from daa_node.network.directory import Directory
from daa_node.network.hole_punching import HolePunching
from daa_node.network.port_mapping import PortMapping
from daa_node.network.reachability import Reachability
from daa_node.network.relaying import CAPABILITY, Aids, Relaying
from daa_node.network.requests import Requests
from daa_node.node_parts import NodeParts


def make_relaying(
    parts: NodeParts, contacts: Contacts, directory: Directory, requests: Requests
) -> Relaying:
    outside = parts.doorbell, parts.transport, contacts, requests
    insists = bool(parts.config.network.announce)
    found = Reachability(*outside, parts.entropy, parts.events, insists)
    around = parts.transport, contacts, directory
    mapping = None
    if parts.router is not None:
        mapping = PortMapping(parts.router, found, parts.transport, parts.events)
    aids = Aids(_punching(parts, contacts, directory), mapping)
    return Relaying(found, parts.circuits, *around, parts.events, aids)


def capabilities_of(config: NodeConfig) -> tuple[str, ...]:
    """What this node's record says that it does, in ascending order."""
    can = {"validator"}
    if config.network.relay:
        can.add(CAPABILITY)
    if not config.trainer.contribute:
        can.add(NEVER_TRAINS)
    return tuple(sorted(can))


def _punching(parts: NodeParts, contacts: Contacts, directory: Directory) -> HolePunching | None:
    if parts.punches is None or parts.circuits is None:
        return None
    return HolePunching(
        parts.punches,
        parts.transport,
        parts.circuits.is_relayed,
        directory.node_of,
        directory.is_member,
        contacts.blame,
        parts.events,
    )
