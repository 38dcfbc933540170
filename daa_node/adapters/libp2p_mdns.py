"""Neighbours on the local network, by multicast DNS (specs/discovery/mdns.md), for one chain.

The library's own writes into the address book from another thread and lets any datagram clear any
peer's addresses. Here a datagram can do no more than make us dial an address that it names.
"""

from collections.abc import Callable

import trio
from zeroconf import ServiceBrowser, ServiceInfo, ServiceListener, Zeroconf

from daa_node.adapters.own_addresses import WILDCARDS, hosts_for
from daa_node.seams import Address

SERVICES_MAX = 64  # names heard of; whoever shouts more is not listened to
ADDRESSES_MAX = 8  # of one neighbour
LOOK_UP_MS = 2000


class _Ear(ServiceListener):
    """Called in zeroconf's own thread."""

    def __init__(self, own_name: str, on_found: Callable[[list[Address]], None]) -> None:
        self._own_name = own_name
        self._on_found = on_found
        self._heard: set[str] = set()

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        if name == self._own_name or len(self._heard) >= SERVICES_MAX:
            return
        self._heard.add(name)
        info = zc.get_service_info(type_, name, timeout=LOOK_UP_MS)
        if info is None:
            return
        found = [
            Address(value.decode(errors="replace"))
            for key, value in info.properties.items()
            if key.startswith(b"dnsaddr") and value is not None and b"/p2p/" in value
        ]
        self._on_found(found[:ADDRESSES_MAX])

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        self._heard.discard(name)
        self.add_service(zc, type_, name)

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        self._heard.discard(name)


async def listen_and_tell(
    namespace: str, addresses: list[Address], on_found: Callable[[list[Address]], None]
) -> None:
    """Until cancelled: tell our addresses, and call `on_found` in the trio thread with others'."""
    token = trio.lowlevel.current_trio_token()
    kind = f"_p2p-{namespace[:9]}._udp.local."  # a DNS-SD name has at most 15 characters
    own_name = f"{addresses[0].rpartition('/')[2][-32:]}.{kind}"
    ear = _Ear(own_name, lambda found: token.run_sync_soon(on_found, found))
    loopback = all("/127." in address for address in addresses)
    zeroconf = Zeroconf(interfaces=["127.0.0.1"]) if loopback else Zeroconf()
    try:
        browser = ServiceBrowser(zeroconf, kind, listener=ear)
        info = ServiceInfo(
            kind,
            own_name,
            port=int(addresses[0].split("/tcp/")[1].split("/")[0]),
            properties={f"dnsaddr{number}": text for number, text in enumerate(addresses)},
            server=f"{own_name.split('.')[0]}.local.",
            parsed_addresses=_hosts_in(addresses)[:1],
        )
        await trio.to_thread.run_sync(zeroconf.register_service, info)
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True), trio.move_on_after(2.0):
            browser.cancel()
            await trio.to_thread.run_sync(zeroconf.close, abandon_on_cancel=True)


def _hosts_in(addresses: list[Address]) -> list[str]:
    """Those that are no names; else our own, for a service without any is not told of."""
    parts = [address.split("/")[1:3] for address in addresses]
    found = [host for kind, host in parts if kind in WILDCARDS]
    return found or hosts_for("ip4", WILDCARDS["ip4"])
