"""Under which addresses others can reach this host, when a node listens on all of them."""

import ipaddress
import socket

import ifaddr

WILDCARDS = {"ip4": "0.0.0.0", "ip6": "::"}
# Documentation networks: nobody is there, and asking the routing table sends no packet.
_FAR = {"ip4": "192.0.2.1", "ip6": "2001:db8::1"}
# A record holds 16 addresses: TCP and WebSocket on four hosts, in both families.
HOSTS_TOLD_MAX = 4
_LOOPBACK = {"ip4": "127.0.0.1", "ip6": "::1"}


def hosts_for(kind: str, host: str) -> list[str]:
    """`host`, or, for the wildcard of its kind (ip4 or ip6), the addresses to tell others.

    The one of the default route comes first, then those of the other interfaces; loopback and
    link-local ones only if there is nothing else.
    """
    if kind not in WILDCARDS or not ipaddress.ip_address(host).is_unspecified:
        return [host]
    routed = _of_default_route(kind)
    found = dict.fromkeys([routed] if routed is not None else [])
    for adapter in ifaddr.get_adapters():
        for bound in adapter.ips:
            if kind == "ip4" and isinstance(bound.ip, str):
                found[bound.ip] = None
            elif kind == "ip6" and not isinstance(bound.ip, str):
                found[bound.ip[0]] = None
    reachable = [text for text in found if _is_reachable(text)]
    return reachable[:HOSTS_TOLD_MAX] or [_LOOPBACK[kind]]


def _of_default_route(kind: str) -> str | None:
    family = socket.AF_INET6 if kind == "ip6" else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_FAR[kind], 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None  # a host without a way out, or without this family


def _is_reachable(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)
