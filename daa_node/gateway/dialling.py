"""At which WebSocket addresses a page may dial this node, and what its policy calls them.

A browser refuses ws:// from a page that came over HTTPS, and its policies know no IPv6 literals
(Content Security Policy Level 3, 2.3.1): what a page could not dial is not told to it.
"""

from collections.abc import Iterable, Sequence

from daa_node.gateway.config import (
    DIAL_MAX,
    GatewayConfig,
    is_secure_address,
    is_websocket_address,
)
from daa_node.seams import Address, PeerId


def dialable(
    config: GatewayConfig, addresses: Iterable[Address], peer_id: PeerId
) -> tuple[str, ...]:
    """Multiaddrs with our peer id; `addresses` are those that the transport tells others.

    Where we have a certificate, the transport takes off TLS at the same ports.
    """
    found = [address.partition("/p2p/")[0] for address in addresses]
    found = [address for address in found if is_websocket_address(address)]
    if config.tls_certificate is not None:
        ports = dict.fromkeys(address.split("/")[4] for address in found)
        hosts = [host for host in config.hosts if not host.startswith("[")]
        found = [f"/{_kind(host)}/{host}/tcp/{port}/wss" for port in ports for host in hosts]
    told = config.dial or found[:DIAL_MAX]
    return tuple(f"{address}/p2p/{peer_id}" for address in told)


def origins(dialled: Sequence[str]) -> tuple[str, ...]:
    """`ws://host:port` or `wss://host:port` of each, as connect-src wants them."""
    found: dict[str, None] = {}
    for address in dialled:
        _, _, host, _, port = address.split("/")[:5]
        scheme = "wss" if is_secure_address(address) else "ws"
        found[f"{scheme}://{host}:{port}"] = None
    return tuple(found)


def _kind(host: str) -> str:
    return "ip4" if host.replace(".", "").isdigit() else "dns4"
