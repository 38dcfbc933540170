"""Ports of the loopback address for daemons that are started on this machine alone."""

import socket
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 10_000
ENOUGH = 1_000  # to find free ones among
LENT_FROM = 32_768  # where the system does not say
TRIES = 1_000


def free_ports(count: int, but: int | None = None) -> list[int]:
    """So many different ports that nobody listens on now; none is `but`, which has its use.

    None is one that the system lends to outgoing connections: a daemon that is started again wants
    the port back which it left a moment ago, and any caller of this machine may hold such a one.

    Raises OSError where next to all ports are in use.
    """
    chance, held = SystemRandom(), list[int]()
    with ExitStack() as stack:
        for _ in range(TRIES):
            if len(held) == count:
                break
            port = chance.randrange(LOWEST, _lent_from())
            if port == but:
                continue
            listener = stack.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            held.append(port)
    if len(held) < count:
        raise OSError(f"127.0.0.1 has no {count} free ports between {LOWEST} and {_lent_from()}")
    return held


def _lent_from() -> int:
    """The first port that the system may lend to whoever dials."""
    try:
        first = int(RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return LENT_FROM
    return first if first >= LOWEST + ENOUGH else LENT_FROM
