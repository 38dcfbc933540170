"""Names of hosts, looked up by the system's resolver: dns is both families, dns4 and dns6 one.

Only names that `network/addresses` lets pass get here. A name that does not resolve is told of
once, and again only when it has resolved in between; whoever asked tries again.
"""

import errno
import socket
from collections.abc import Callable

import trio

from daa_node.adapters.budgets import Endpoint
from daa_node.adapters.descriptors import ACCEPT_BACKLOG

RESOLVE_TIMEOUT_S = 5.0  # the system's resolver asks twice in this time, by default
NUMBERS_MAX = 8  # of one name: of no more than a peer has addresses
UNRESOLVED_MAX = 256  # names that we remember to have told of: the longest ago is forgotten
STAGGER_S = 0.25  # between attempts at two addresses of one name (RFC 8305, 5)
_FAMILIES = {"dns": socket.AF_UNSPEC, "dns4": socket.AF_INET, "dns6": socket.AF_INET6}

_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

Tell = Callable[[str, str], None]  # the name, and what the resolver says of it


def _nobody_is_told(_name: str, _why: str) -> None:
    """A transport of its own, without a log."""


class HostNames:
    """Looks up, and tells of what it does not find."""

    def __init__(self, tell: Tell = _nobody_is_told) -> None:
        self._tell = tell
        self._unresolved: dict[str, None] = {}  # told of, longest ago first

    async def numbers_of(self, kind: str, host: str) -> list[str]:
        """IP addresses of `host`, best first; of an ip4 or ip6 the host itself.

        Raises socket.gaierror if the name has none, or if nobody answers.
        """
        if kind not in _FAMILIES:
            return [host]
        try:
            found = await _look_up(host, _FAMILIES[kind])
        except socket.gaierror as error:
            if host not in self._unresolved:
                self._tell(host, error.strerror or str(error))
                self._unresolved[host] = None
                for oldest in list(self._unresolved)[:-UNRESOLVED_MAX]:
                    del self._unresolved[oldest]
            raise
        self._unresolved.pop(host, None)
        return found

    async def connect(self, kind: str, endpoint: Endpoint) -> trio.SocketStream:
        """To whichever address answers first. Raises OSError, the first attempt's."""
        host, port = endpoint
        won: list[trio.SocketStream] = []
        failures: list[OSError] = []

        async def attempt(number: str, failed: trio.Event) -> None:
            try:
                stream = await dial((number, port))
            except OSError as error:
                failures.append(error)
                failed.set()
                return
            if won:
                await trio.aclose_forcefully(stream)
            else:
                won.append(stream)
                nursery.cancel_scope.cancel()

        numbers = await self.numbers_of(kind, host)
        async with trio.open_nursery() as nursery:
            for number in numbers:
                failed = trio.Event()
                nursery.start_soon(attempt, number, failed)
                with trio.move_on_after(STAGGER_S):
                    await failed.wait()
        if not won:
            raise failures[0]
        return won[0]

    async def listen(self, kind: str, endpoint: Endpoint) -> list[trio.SocketListener]:
        """On each address that is this host's: a name may have others, or a family that is off.

        Raises OSError, the first address's, when nothing listens: gaierror if the name has none.
        """
        host, port = endpoint
        listeners: list[trio.SocketListener] = []
        failures: list[OSError] = []
        for number in await self.numbers_of(kind, host):
            try:
                listeners += await trio.open_tcp_listeners(
                    port, host=number, backlog=ACCEPT_BACKLOG
                )
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    for listener in listeners:
                        await listener.aclose()
                    raise
                failures.append(error)
        if not listeners:
            raise failures[0]
        return listeners


async def dial(other: Endpoint, own: Endpoint | None = None) -> trio.SocketStream:
    """By number, from `own` or any free port. Raises OSError.

    The port is ours alone: one that the kernel draws when it connects may be that of strangers'
    sockets, too. And another socket of ours may be bound to it, see simultaneous_open.
    """
    is_ip6 = ":" in other[0]
    dialling = trio.socket.socket(socket.AF_INET6 if is_ip6 else socket.AF_INET)
    is_open = False
    try:
        dialling.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        await dialling.bind(own or ("::" if is_ip6 else "0.0.0.0", 0))
        await dialling.connect(other)
        is_open = True
    finally:
        if not is_open:
            dialling.close()
    return trio.SocketStream(dialling)


async def _look_up(host: str, family: int) -> list[str]:
    with trio.move_on_after(RESOLVE_TIMEOUT_S):
        found = await trio.socket.getaddrinfo(host, None, family, socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))[:NUMBERS_MAX]
    raise socket.gaierror(socket.EAI_AGAIN, f"no answer within {RESOLVE_TIMEOUT_S:.0f} s")
