"""Whose addresses we follow where: a number may be anybody's, a name only that of who is trusted.

To dial a name asks our resolver, and whatever servers it asks, what a stranger chose, in a thread
for as long as those take. So names are for the operator's own settings, the genesis, and members'
records; who is no member is dialled by number, or dials us.
"""

from daa_node.seams import Address


def is_numeric(address: Address) -> bool:
    """Whether no resolver is asked where this is."""
    return address.startswith(("/ip4/", "/ip6/"))
