"""Whose addresses we follow where: a number may be anybody's, a name only that of who is trusted.

To dial a name asks our resolver, and whatever servers it asks, what a stranger chose, in a thread
for as long as those take. So names are for the operator's own settings, the genesis, and members'
records; who is no member is dialled by number, or dials us.
"""

from daa_node.seams import Address, PeerId

RELAYED_BY = "relayed by "  # and the relay: the network of who comes through it
CIRCUIT = "p2p-circuit"  # in an address: what follows it is reached through the peer before


def is_numeric(address: Address) -> bool:
    """Whether no resolver is asked where this is."""
    return address.startswith(("/ip4/", "/ip6/"))


def host_in(address: Address) -> str:
    """What a multiaddr names first; empty where it names nothing."""
    return address.split("/")[2] if address.count("/") > 1 else ""


def is_circuit(address: Address) -> bool:
    """Whether this leads through a relay."""
    return CIRCUIT in address.split("/")


def peer_id_in(address: Address) -> PeerId:
    """The peer that a multiaddr names last; empty when it names none."""
    return PeerId(address.rpartition("/p2p/")[2]) if "/p2p/" in address else PeerId("")
