"""A home's router, asked by UPnP to let others in: trio sockets and h11, no thread and no C.

The library that libp2p brings for it (miniupnpc) blocks, so it wants a thread, and parses in C what
any host of the local network says, in the process that holds our keys. It is a handful of messages.
Asked is only who answers from a private address, about itself, with limits on bytes and time.
"""

import ipaddress
import socket
from contextlib import suppress

import h11
import trio

from daa_node.adapters.own_addresses import hosts_for
from daa_node.errors import Unavailable
from daa_node.wire import upnp_messages
from daa_node.wire.limits import KIB
from daa_node.wire.upnp_messages import PAGE_BYTES_MAX, PERMANENT_ONLY, TAKEN, Place, Service

SEARCH_S = 2.0  # they answer within MX, one second
SEARCHES = 2  # UDP may be lost
ANSWERS_MAX = 16  # of who answers at all, one after another until one is a router
REQUEST_TIMEOUT_S = 5.0
OUTSIDE_PORTS_MAX = 4  # that are tried, from our own number on
PORT_LAST = 65_535
READ_BYTES = 16 * KIB
HEAD_BYTES_MAX = 16 * KIB
NOTE = "daa-compute"  # what the router's own page shows of it


class UpnpRouter:
    """HomeRouter, see network.port_mapping."""

    def __init__(
        self,
        search_at: tuple[str, int] = (upnp_messages.GROUP, upnp_messages.PORT),
    ) -> None:
        self._search_at = search_at
        self._found: tuple[Service, str] | None = None  # and our address as it sees us

    async def open_port(self, port: int, seconds: int) -> tuple[str, int]:
        """Where others find it: host and port outside. Raises Unavailable."""
        found, self._found = self._found, None  # it may be another router by now
        here = hosts_for("ip4", "0.0.0.0")
        if found is not None and found[1] in here:
            opened = await self._open_at(*found, port, seconds)
            self._found = found
            return opened
        why = "no router answers to UPnP"
        for own in here:
            for sender, answer in await self._answers(own):
                try:
                    at = upnp_messages.description_at(answer, sender)
                    service = upnp_messages.service_in(await _fetch(at, [], b""), at)
                    opened = await self._open_at(service, own, port, seconds)
                except Unavailable as reason:
                    why = str(reason)  # another one may open it
                else:
                    self._found = service, own
                    return opened
        raise Unavailable(why)

    async def _open_at(
        self, service: Service, own: str, port: int, seconds: int
    ) -> tuple[str, int]:
        outside = await self._outside(service)
        for number in range(port, min(port + OUTSIDE_PORTS_MAX, PORT_LAST + 1)):
            if await self._map(service, own, (port, number), seconds):
                return outside, number
        raise Unavailable(f"the router has given port {port} and those after it to others")

    async def close_port(self, outside: int) -> None:
        """What `open_port` opened, as far as the router is still there."""
        if self._found is None:
            return
        service, _ = self._found
        arguments = {"NewRemoteHost": "", "NewExternalPort": str(outside), "NewProtocol": "TCP"}
        with suppress(Unavailable):
            await self._ask(service, "DeletePortMapping", arguments)

    async def _map(self, service: Service, own: str, ports: tuple[int, int], seconds: int) -> bool:
        """Whether the number outside was free. Raises Unavailable."""
        arguments = {
            "NewRemoteHost": "",
            "NewExternalPort": str(ports[1]),
            "NewProtocol": "TCP",
            "NewInternalPort": str(ports[0]),
            "NewInternalClient": own,
            "NewEnabled": "1",
            "NewPortMappingDescription": NOTE,
            "NewLeaseDuration": str(seconds),
        }
        error = upnp_messages.error_in(await self._ask(service, "AddPortMapping", arguments))
        if error == PERMANENT_ONLY:  # it is taken back when we stop
            arguments["NewLeaseDuration"] = "0"
            error = upnp_messages.error_in(await self._ask(service, "AddPortMapping", arguments))
        if error not in (0, TAKEN):
            raise Unavailable(f"the router refuses, UPnP error {error}")
        return error == 0

    async def _outside(self, service: Service) -> str:
        answer = await self._ask(service, "GetExternalIPAddress", {})
        told = upnp_messages.fields_of(answer).get("NewExternalIPAddress", "")
        try:
            host = ipaddress.ip_address(told)
        except ValueError:
            raise Unavailable("the router does not know its own address outside") from None
        if host.is_unspecified or "%" in told:
            raise Unavailable("the router has no address outside")
        return str(host)

    async def _ask(self, service: Service, action: str, arguments: dict[str, str]) -> bytes:
        body = upnp_messages.request(service.kind, action, arguments)
        headers = [
            ("Content-Type", 'text/xml; charset="utf-8"'),
            ("SOAPAction", f'"{service.kind}#{action}"'),
        ]
        return await _fetch(service.control, headers, body)

    async def _answers(self, own: str) -> list[tuple[str, bytes]]:
        """Of who is asked from this address of ours, by sender."""
        found: dict[str, bytes] = {}
        try:
            with trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
                await door.bind((own, 0))
                door.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 2)
                door.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
                for _ in range(SEARCHES):
                    await door.sendto(upnp_messages.search(), self._search_at)
                    with trio.move_on_after(SEARCH_S / SEARCHES):
                        while len(found) < ANSWERS_MAX:
                            answer, (sender, _) = await door.recvfrom(
                                upnp_messages.ANSWER_BYTES_MAX
                            )
                            if ipaddress.ip_address(sender).is_private:
                                found.setdefault(sender, answer)
        except OSError:
            return list(found.items())  # no such way out of this host
        return list(found.items())


async def _fetch(at: Place, headers: list[tuple[str, str]], body: bytes) -> bytes:
    """A page of the router; with a body it is posted. Raises Unavailable."""
    host = f"{at.host}:{at.port}"
    told = [("Host", host), ("Connection", "close"), ("Content-Length", str(len(body))), *headers]
    talk = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    asked = h11.Request(method="POST" if body else "GET", target=at.path, headers=told)
    out = [talk.send(asked), talk.send(h11.Data(body)), talk.send(h11.EndOfMessage())]
    try:
        with trio.fail_after(REQUEST_TIMEOUT_S):
            async with await trio.open_tcp_stream(at.host, at.port) as stream:
                await stream.send_all(b"".join(piece or b"" for piece in out))
                return await _page(talk, stream)
    except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError) as fault:
        raise Unavailable(f"the router at {host} answers with nothing: {fault}") from None
    except trio.TooSlowError:
        raise Unavailable(f"the router at {host} takes too long") from None


async def _page(talk: h11.Connection, stream: trio.SocketStream) -> bytes:
    """Whatever the status: an error of SOAP comes with 500. Raises Unavailable."""
    page = bytearray()
    while True:
        event = talk.next_event()
        if event is h11.NEED_DATA:
            talk.receive_data(await stream.receive_some(READ_BYTES))
        elif isinstance(event, h11.Response) and event.status_code not in (200, 500):
            raise Unavailable(f"the router answers with {event.status_code}")
        elif isinstance(event, h11.Data):
            page += event.data
            if len(page) > PAGE_BYTES_MAX:
                raise Unavailable("the router says more than a description")
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return bytes(page)
