"""Two sockets dial each other at the same moment, and become one stream (RFC 9293, section 3.5).

Each end dials from the port that its connection with the relay comes from: a router that keeps one
outside port for each inside one has shown it to the relay, and lets in whom the inside has written
to. A router that drops what comes too early lets a repeated SYN pass; one that refuses it has us
dial again at once, until TRY_S are over.
"""

import ipaddress
from collections.abc import Awaitable, Callable

import trio

from daa_node.adapters.budgets import Endpoint
from daa_node.adapters.host_names import dial
from daa_node.errors import Unavailable

TRY_S = 4.0  # a SYN is repeated after 1 and 3 s
AGAIN_S = 0.1  # after a refusal

Cross = Callable[[Endpoint, Endpoint], Awaitable[trio.SocketStream]]  # own end, the other one


async def cross(own: Endpoint, other: Endpoint) -> trio.SocketStream:
    """Raises Unavailable when no stream came about in TRY_S."""
    failure = "no answer"
    with trio.move_on_after(TRY_S):
        while True:
            try:
                return await dial(other, own)
            except OSError as error:
                failure = error.strerror or str(error)
            await trio.sleep(AGAIN_S)
    raise Unavailable(f"{other[0]}:{other[1]} was dialled in vain: {failure}")


def is_in_reach(host: str, relay: str) -> bool:
    """Whether a host that a relay tells of is somebody whom that relay can see from where it is.

    A relay on the internet sees nobody in a private network: what it names there is in ours, or in
    somebody else's. One in a private network, or on this host, tells of its own kind alone.
    """
    return _kind_of(host) not in (None, "nowhere") and _kind_of(host) == _kind_of(relay)


def _kind_of(host: str) -> str | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    plain = getattr(address, "ipv4_mapped", None) or address
    if plain.is_multicast or plain.is_unspecified or plain.is_reserved:
        return "nowhere"
    if plain.is_loopback:
        return "loopback"
    if plain.is_link_local:
        return "link"
    return "global" if plain.is_global else "private"
