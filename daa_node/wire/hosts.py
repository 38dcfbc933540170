"""What a peer may name as a host: an address, as nobody looks up names for it."""

import ipaddress


def is_host(text: str) -> bool:
    """Whether it is an IP address without a zone.

    A name would let peers make us ask our resolver anything. So would the zone of an IPv6 address,
    which means nothing on another host; an operator's terminal would show it.
    """
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text
