"""Where a node is, as a person types it, and the multiaddr that it stands for.

    203.0.113.5:4001                     /ip4/203.0.113.5/tcp/4001
    [2001:db8::1]:4001                   /ip6/2001:db8::1/tcp/4001
    node.example:4001                    /dns/node.example/tcp/4001
    node.example                         the same: without a port it is PORT_DEFAULT
    ws://node.example:4001               /dns/node.example/tcp/4001/ws
    node.example:4001/p2p/12D3Koo...     /dns/node.example/tcp/4001/p2p/12D3Koo...

A name stands for its addresses of both families. Who wants one family alone writes the multiaddr,
with dns4 or dns6. A multiaddr is taken as it is.
"""

import ipaddress
import re

PORT_DEFAULT = 4001
HOST_CHARACTERS_MAX = 253  # of a name in the DNS (RFC 1035, 2.3.4)
# RFC 1123, 2.1; and with the underscores that names of containers and services may have.
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_ALL_OF_HOST = re.compile(r"\*?(:[0-9]+)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PEER = re.compile(r"(?P<plain>.*?)(?P<peer>/p2p/[^/]*)?", re.DOTALL)
_HOST_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(:(?P<port>.*))?", re.DOTALL)


def multiaddr_of(text: str) -> str:
    """Raises ValueError with what is wrong, and what would be right."""
    if text.startswith("/"):
        return text
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1] != "ws":
        raise ValueError(f"{text!r}: leave out {scheme[0]}, or write ws:// for a WebSocket")
    whole = _PEER.fullmatch(text[scheme.end() :] if scheme else text)
    assert whole is not None  # any text is plain
    ends = ("/ws" if scheme else "") + (whole["peer"] or "")
    host, port = _host_and_port(text, whole["plain"])
    return f"/{_kind_and_host(text, host)}/tcp/{port}{ends}"


def listened_on(text: str) -> str:
    """`:4001` and `*:4001` are all addresses, as where nothing is said; others stay as they are."""
    port = _ALL_OF_HOST.fullmatch(text)
    return text if port is None else f"0.0.0.0{port[1]}"


def _host_and_port(text: str, plain: str) -> tuple[str, int]:
    if _is_ip6(plain):
        raise ValueError(f"{text!r}: brackets tell an IPv6 address from its port: [{plain}]:4001")
    parts = _HOST_PORT.fullmatch(plain)
    if parts is None or not parts["host"]:
        raise ValueError(
            f"{text!r} is no address: write a host and a port, like node.example:4001, "
            "203.0.113.5:4001 or [2001:db8::1]:4001"
        )
    digits = parts["port"]
    if digits is None:
        return parts["host"], PORT_DEFAULT
    if not (digits.isascii() and digits.isdigit()) or int(digits[:6]) > 65535:
        raise ValueError(f"{text!r}: the port is not a number up to 65535")
    return parts["host"], int(digits)


def _kind_and_host(text: str, host: str) -> str:
    if host.startswith("["):
        if not _is_ip6(host[1:-1]):
            raise ValueError(f"{text!r}: {host[1:-1]!r} is no IPv6 address")
        return f"ip6/{ipaddress.IPv6Address(host[1:-1])}"
    last = host.removesuffix(".").rpartition(".")[2]
    if last.isdigit():  # no name ends so (RFC 3696, 2): meant as a number
        try:
            return f"ip4/{ipaddress.IPv4Address(host)}"
        except ValueError:
            raise ValueError(f"{text!r}: {host!r} is no IPv4 address, nor a host's name") from None
    check_name(text, host)
    return f"dns/{host}"


def check_name(text: str, host: str) -> None:
    """Raises ValueError if `host`, a part of `text`, is no name that a host can have."""
    if not host.isascii():
        raise ValueError(f"{text!r}: write the name as the DNS has it{_encoded(host)}")
    labels = host.removesuffix(".").split(".")
    if len(host) > HOST_CHARACTERS_MAX or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"{text[:80]!r}: {host[:80]!r} is no name of a host")


def _is_ip6(text: str) -> bool:
    """A zone (%eth0) means nothing to others."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text


def _encoded(host: str) -> str:
    try:
        return f": {host.encode('idna').decode()}"
    except UnicodeError:
        return ""
