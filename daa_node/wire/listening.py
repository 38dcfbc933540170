"""Where an HTTP server of ours listens, as an operator writes it: an address and a port."""

import ipaddress

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def split_listen(text: str) -> tuple[str, int]:
    """Host, without the brackets of IPv6, and port. Raises ValueError."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is not like 127.0.0.1:8080")
    if host.lower() == "localhost":
        host = "127.0.0.1"  # whatever the system's table of hosts says: nobody else gets there
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"{text!r}: {host!r} is no IP address; names go under `hosts`") from None
    return host, int(port)


def is_loopback(listen: str) -> bool:
    """Whether nobody outside of this host gets there. Raises ValueError."""
    return ipaddress.ip_address(split_listen(listen)[0]).is_loopback


def can_listen(text: str) -> str:
    """The text itself. Raises ValueError."""
    split_listen(text)
    return text
