"""Sockets that carry bulk: tuned for it, and named by addresses that nothing has to look up."""

import ipaddress
import socket
import sys
from contextlib import suppress

import trio

from daa_node.identity.session import WHERE_SEEN, Endpoint
from daa_node.network.config import HOST_KINDS
from daa_node.wire.hosts import is_host

# Unsent bytes that the kernel holds before it calls a socket writable again: trio's 16 KiB would
# wake us for every few packets of a bulk transfer.
NOTSENT_BYTES = 512 * 1024
_TCP_NOTSENT_LOWAT = 25  # Linux; the socket module names it from Python 3.12 on


def tune(stream: trio.SocketStream) -> None:
    """Fit the socket to bulk; what this kernel does not offer is left as it is."""
    if sys.platform != "linux":
        return
    with suppress(OSError):
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, NOTSENT_BYTES)
    # cubic wastes 90 % of a link at 1 % loss, bbr under a tenth (measured: 20 Mbit/s, 100 ms). On
    # loopback nothing is lost, and bbr's pacing halves the throughput (1.8 instead of 5.5 GiB/s).
    algorithm = b"cubic" if _is_loopback(stream) else b"bbr"
    with suppress(OSError):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm)


def _is_loopback(stream: trio.SocketStream) -> bool:
    host = host_at(stream)
    return host is not None and ipaddress.ip_address(host.split("%")[0]).is_loopback


def host_at(stream: trio.SocketStream) -> str | None:
    """Who is at the other end; None when nobody is any more."""
    with suppress(OSError):
        return str(stream.socket.getpeername()[0])
    return None


async def read_up_to(stream: trio.SocketStream, size_bytes: int) -> bytes:
    """`size_bytes` bytes, fewer at an early end."""
    taken = b""
    while len(taken) < size_bytes:
        piece = await stream.receive_some(size_bytes - len(taken))
        if not piece:
            break
        taken += piece
    return taken


def endpoint_of(address: str) -> Endpoint | None:
    """Of a multiaddr; None for a relay, an unspecified address, or another than plain TCP.

    Of a name it is where the peer sees us, as nobody looks up names that others tell. Who announces
    a WebSocket alone may have a proxy there that lets nothing else through.
    """
    parts = address.split("/")
    is_plain = len(parts) == 5 or (len(parts) == 7 and parts[5] == "p2p")
    if not is_plain or parts[1] not in HOST_KINDS or parts[3] != "tcp":
        return None
    if parts[1] not in ("ip4", "ip6"):
        return Endpoint(WHERE_SEEN, int(parts[4]))
    if not is_host(parts[2]) or ipaddress.ip_address(parts[2]).is_unspecified:
        return None
    return Endpoint(parts[2], int(parts[4]))
