"""Where a node is, as a person reads it: `203.0.113.5:4001`, or the relay that it is behind.

Whole addresses, with every peer id in them, are in the JSON.
"""

HOSTS = ("ip4", "ip6", "dns", "dns4", "dns6")


def place_of(address: str | None) -> str | None:
    """Of a multiaddr; one of another form as it is.

    >>> place_of("/ip4/203.0.113.5/tcp/4001/p2p/12D3KooWDsUU/p2p-circuit/p2p/12D3KooWK7mj")
    'through 203.0.113.5:4001'
    """
    if address is None:
        return None
    match address.split("/"):
        case ["", kind, host, "tcp", port, *rest] if kind in HOSTS:
            place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            return f"through {place}" if "p2p-circuit" in rest else place
        case _:
            return address
