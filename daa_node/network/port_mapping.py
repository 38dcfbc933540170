"""The home's router is asked to let others in, once it was found that nobody can dial us.

    idle --nobody can dial us, or too few say for long--> asking
    asking --the router opens a port--> open --refreshed--> open
    asking --no router, or it refuses--> asked again much later
    members see us elsewhere than before, or this host is--> asking, at once
    open --the node stops--> the port is closed

What the router says of its own address is a claim: members must have seen us there, and dialling
us back must get through, before anybody is told of it (see reachability). An address that is not
the one that members see is that of a router behind another one, a carrier's say: its port would
lead nowhere, so it is closed again.
"""

import ipaddress
from collections.abc import Mapping
from typing import Any, Protocol

import trio

from daa_node.errors import Unavailable
from daa_node.network.addresses import host_in
from daa_node.network.reachability import Reach, Reachability, ports_of
from daa_node.observability.events import PORT_OPENED, PORT_REFUSED, EventLog
from daa_node.seams import Transport
from daa_node.wire.hosts import is_host

CHECK_S = 1.0
UNSURE_S = 60.0  # by then a second measurement has been made, and relays were asked for help
LEASE_S = 3600
REFRESH_S = LEASE_S / 2
AGAIN_S = 900.0  # somebody may have switched it on, or another router
CLOSE_TIMEOUT_S = 3.0  # whoever stops us waits


class HomeRouter(Protocol):
    """The one between this host and the internet, if it can be asked."""

    async def open_port(self, port: int, seconds: int) -> tuple[str, int]:
        """For so long; the host and port that it is outside. Raises Unavailable."""

    async def close_port(self, outside: int) -> None:
        """What was opened; nobody hears if that fails, it ends by itself."""


class PortMapping:
    """`run` asks, as long as it helps; `standing` says what came of it."""

    def __init__(
        self,
        router: HomeRouter,
        reachability: Reachability,
        transport: Transport,
        events: EventLog,
    ) -> None:
        self._router = router
        self._reachability = reachability
        self._transport = transport
        self._events = events
        self._port: int | None = None
        self._open: tuple[str, int] | None = None
        self._unsure_from_s: float | None = None  # since when too few members say how it is
        self._why = "not asked: no need of it was found"

    def standing(self) -> Mapping[str, Any]:
        """For `status`."""
        outside = None if self._open is None else f"{self._open[0]}:{self._open[1]}"
        return {"open": outside, "why": self._why}

    async def run(self) -> None:
        """Until cancelled; then the port is closed."""
        try:
            while True:
                if self._open is None:
                    while not self._is_wanted():
                        await trio.sleep(CHECK_S)
                rest_s, here = REFRESH_S if await self._ask() else AGAIN_S, self._hosts()
                await self._rest(rest_s, here)
                if not here <= self._hosts():
                    await self._close()  # it may lead to where this host was
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_TIMEOUT_S):
                await self._close()

    async def _rest(self, seconds: float, here: set[str]) -> None:
        """For so long, or until members see us where they have not: a home's address may change.

        What was claimed leads nowhere then, and what the router says may have seemed another's.
        One alone may say each time that it sees us elsewhere. Or until this host is not `here`
        any more within the home; that it is elsewhere as well, as on a bridge of its own, says
        nothing.
        """
        known = self._reachability.surely_seen_at()
        with trio.move_on_after(seconds):
            while self._reachability.surely_seen_at() <= known and here <= self._hosts():
                await trio.sleep(CHECK_S)

    def _hosts(self) -> set[str]:
        """Where this host is within the home, as far as it tells others."""
        hosts = {each for each in map(host_in, self._transport.addresses()) if is_host(each)}
        return {each for each in hosts if ":" not in each and _is_private(each)}

    def _is_wanted(self) -> bool:
        """Also where too few members are known to say: we may be behind a router all the same.

        Those that come are then asked for the port outside, and need not find first that nobody
        gets in.
        """
        if not self._reachability.is_unsure:
            self._unsure_from_s = None
            return self._reachability.reach is Reach.UNREACHABLE
        now_s = trio.current_time()
        self._unsure_from_s = self._unsure_from_s or now_s
        return now_s - self._unsure_from_s >= UNSURE_S

    async def _ask(self) -> bool:
        """Whether a port is open that leads to us."""
        # asked once: an address that was proven stands before our own, with the port outside
        port = self._port = self._port or _dialled_port(self._transport)
        before = self._open
        if port is None:
            self._why = "this node listens for its own host alone"
            return False
        try:
            found = self._open = await self._router.open_port(port, LEASE_S)
        except Unavailable as reason:
            return await self._give_up(str(reason))
        # where enough of them say, one alone does not make another router's address ours
        seen_at = sorted(self._reachability.surely_seen_at()) or self._reachability.seen_at()
        wrong = _why_elsewhere(found[0], seen_at)
        if wrong:
            return await self._give_up(wrong)
        self._why = f"the router lets others in at {found[0]}:{found[1]}"
        if found != before:
            self._reachability.claim(*found)
            self._events.emit(PORT_OPENED, host=found[0], port=found[1], seconds=LEASE_S)
        return True

    async def _give_up(self, why: str) -> bool:
        if why != self._why:
            self._events.emit(PORT_REFUSED, why=why)
        self._why = why
        await self._close()
        return False

    async def _close(self) -> None:
        found, self._open = self._open, None
        if found is not None:
            await self._router.close_port(found[1])
            self._reachability.claim(None, 0)


def _why_elsewhere(outside: str, seen_at: list[str]) -> str:
    """Why a port at that address does not lead to us; "" if it may."""
    if outside in seen_at or not (seen_at or _is_private(outside)):
        return ""
    seen = f", and members see us at {', '.join(seen_at)}" if seen_at else ""
    kind = "a private one" if _is_private(outside) else "not ours"
    return f"the router's own address {outside} is {kind}{seen}: another router is before it"


def _is_private(host: str) -> bool:
    """Also those that carriers share out among homes (100.64.0.0/10)."""
    return not ipaddress.ip_address(host).is_global


def _dialled_port(transport: Transport) -> int | None:
    """The first that is not of this host alone."""
    for address in transport.addresses():
        parts = address.split("/")
        if parts[1] != "ip4" or not ipaddress.ip_address(parts[2]).is_loopback:
            for port in ports_of([address]):
                return port
    return None
