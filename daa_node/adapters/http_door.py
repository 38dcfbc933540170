"""Where HTTP/1.1 comes in, over trio sockets and h11: bounded whatever visitors do.

    closed --bind--> open --crash, or the address is taken--> closed, and again after a pause

    accepted --(TLS)--> a head --budget--> the desk's answer --> the next head, or the end
        \\-- at most SOCKETS_MAX, a share for each address, see waiting_room --/

Where a door has an anteroom, whoever has said nothing yet waits there, and takes none of these.

Nothing that goes wrong here ends the daemon. A body is read by whoever wants it, and where nobody
does the connection ends. No connection becomes a WebSocket: pages dial libp2p's own port. Sending
has a deadline as reading has, and ends at once when the daemon does. Whoever is answered next is
drawn by lot among addresses (see turns).
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import partial
from random import Random
from typing import Any, Protocol

import h11
import trio

from daa_node.adapters.anteroom import Anteroom, serve_who_speaks
from daa_node.adapters.certificate import Certificate
from daa_node.adapters.descriptors import ACCEPT_BACKLOG, Gate, Shortage, serve
from daa_node.adapters.mishaps import Mishaps
from daa_node.adapters.turns import DrawnPace
from daa_node.adapters.waiting_room import Familiar, WaitingRoom, network_of
from daa_node.errors import UserError
from daa_node.observability.events import (
    GATEWAY_FAILED,
    GATEWAY_OPENED,
    VISIT_FAILED,
    EventLog,
)
from daa_node.wire.http_messages import AskingDesk, Desk, Headers, ReadBody, Reply, Stream, Visit
from daa_node.wire.limits import KIB, MIB
from daa_node.wire.listening import split_listen

SOCKETS_MAX = 128  # a browser holds six: twenty that load at once, or many that come and go
NEWCOMERS = 16  # sockets beyond it, while whoever gives way to them ends
DESCRIPTORS_MAX = SOCKETS_MAX + NEWCOMERS + 2  # and its listeners
ACCEPTS_PER_S = 50.0  # each costs up to a millisecond: a flood of them a twentieth of a core
# A request line and its headers; browsers send one or two. Looked at while more is missing, so
# that one which ends with the next piece may be twice as large.
HEAD_BYTES_MAX = 16 * KIB
HEAD_TIMEOUT_S = 5.0  # for a whole head, from the accepted socket or the last answer on
BODY_TIMEOUT_S = 5.0  # for a whole body, from when somebody wants it
REQUESTS_MAX = 200  # of one connection: a page loads a few dozen files
PIECE_BYTES = 256 * KIB
PIECE_TIMEOUT_S = 20.0  # to take one: a reader slower than 13 KiB/s is no use to a volunteer
# All visitors together. Six whole pages at once, then one every two or three seconds; answers of
# next to nothing 64 a second, each up to a millisecond: another twentieth of a core.
BYTES_PER_S, BYTES_AT_ONCE = 8 * MIB, 128 * MIB
REQUEST_COST_BYTES = 128 * KIB
RETRY_S_MIN, RETRY_S_MAX = 1.0, 60.0
_LAST = ("Connection", "close")
_GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)

Pay = Callable[[float], Awaitable[None]]  # waits for a turn to send so many bytes


class Place(Protocol):
    """Where a door is, and what stands before it; `GatewayConfig` says it for the page."""

    @property
    def listen(self) -> str: ...

    @property
    def hosts(self) -> tuple[str, ...]: ...

    @property
    def behind_proxy(self) -> bool: ...

    @property
    def is_secure(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Manners:
    """In what the doors of two services differ."""

    service: str  # as `visit_failed` names it
    tell_opened: Callable[[EventLog, str | None, str], None]  # url, listens
    tell_failed: Callable[[EventLog, str | None, float], None]  # error, retry_s
    sockets_max: int
    newcomers: int
    refusal_headers: Headers = ()  # on what is no HTTP: no desk sees it
    streams_max: int = 0  # beside these: of visitors who stay and listen, as the desk lets them
    anteroom: int = 0  # places for those that have said nothing yet; 0: these take the others'
    takes_bodies: bool = False  # else a request that has one is refused, and no desk sees it


PAGE = Manners(
    "gateway",
    lambda events, url, listens: events.emit(GATEWAY_OPENED, url=url, listens=listens),
    lambda events, error, retry_s: events.emit(GATEWAY_FAILED, error=error, retry_s=retry_s),
    SOCKETS_MAX,
    NEWCOMERS,
)


class HttpDoor:
    """Serves one desk at the configured address while `run` runs."""

    def __init__(
        self,
        config: Place,
        certificate: Certificate | None,
        events: EventLog,
        shortage: Shortage,
        lots: Random,
        manners: Manners = PAGE,
    ) -> None:
        """With a certificate it speaks HTTPS, and nothing else."""
        self._config = config
        self._certificate = certificate
        self._events = events
        self._shortage = shortage
        self._lots = lots
        self._manners = manners
        self._desk: AskingDesk | None = None
        self._listens: str | None = None  # host:port, while it is open
        self._failure: str | None = None  # why it is not
        self._familiar = Familiar()  # where visitors came from who had a token
        self._room = WaitingRoom(manners.sockets_max, self._familiar)
        self._anteroom: Anteroom | None = None
        if manners.anteroom:
            self._anteroom = Anteroom(manners.anteroom, HEAD_TIMEOUT_S, self._familiar)
        self._streams = 0
        self._mishaps = Mishaps(
            lambda where, detail, count: events.emit(
                VISIT_FAILED, where=where, error=detail, count=count
            )
        )

    def set_desk(self, desk: Desk) -> None:
        async def answer(visit: Visit) -> Reply:
            return desk(visit)

        self._desk = answer

    def set_asking_desk(self, desk: AskingDesk) -> None:
        """It has a limit of its own on how long it asks."""
        self._desk = desk

    def standing(self) -> Mapping[str, Any]:
        """Where a person opens the page, or why that is not possible now."""
        return {
            "url": self._url(),
            "listens": self._listens,
            "failure": self._failure,
            "connections": len(self._room) + self._streams + len(self._anteroom or ()),
        }

    async def run(self) -> None:
        """Until cancelled; opens again after whatever closed it."""
        pause_s = RETRY_S_MIN
        while True:
            began_s = trio.current_time()
            try:
                await self._serve()
            except* Exception as failed:  # no mistake in here is worth the daemon's rounds
                self._failure = _cause(failed)
            self._listens = None
            if trio.current_time() - began_s > RETRY_S_MAX:
                pause_s = RETRY_S_MIN
            self._manners.tell_failed(self._events, self._failure, pause_s)
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    async def _serve(self) -> None:
        """Raises OSError, also as ssl.SSLError, when it cannot listen, or its files cannot be."""
        if self._certificate is not None:
            self._certificate.context()  # what is wrong with its files is told at once
        host, port = split_listen(self._config.listen)
        manners = self._manners
        sockets_max = manners.sockets_max + manners.newcomers + manners.streams_max
        gate = Gate(sockets_max, ACCEPTS_PER_S, self._shortage)
        budget = DrawnPace(BYTES_PER_S, BYTES_AT_ONCE, self._lots)
        (listener,) = await trio.open_tcp_listeners(port, host=host, backlog=ACCEPT_BACKLOG)
        async with listener:
            name = listener.socket.getsockname()
            self._listens = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
            self._failure = None
            self._manners.tell_opened(self._events, self._url(), self._listens)
            await self._serve_at(listener, partial(self._on_socket, budget=budget), gate)

    async def _serve_at(
        self,
        listener: trio.SocketListener,
        handler: Callable[[trio.SocketStream], Awaitable[None]],
        gate: Gate,
    ) -> None:
        if self._anteroom is None:
            await serve(listener, handler, gate)
        else:
            await serve_who_speaks(listener, handler, gate, self._anteroom)

    def _url(self) -> str | None:
        if self._listens is None:
            return None
        if self._config.behind_proxy:
            return f"https://{self._config.hosts[0]}/"
        if self._config.is_secure:
            return f"https://{self._config.hosts[0]}:{self._listens.rpartition(':')[2]}/"
        return f"http://{self._listens}/"

    async def _on_socket(self, socket: trio.SocketStream, budget: DrawnPace) -> None:
        with trio.CancelScope() as scope:
            try:
                host = str(socket.socket.getpeername()[0])
                self._room.enter(host, scope)
                stream: trio.abc.Stream = socket
                if self._certificate is not None:
                    tls = self._context_of(self._certificate)
                    secured = trio.SSLStream(socket, tls, server_side=True, https_compatible=True)
                    with trio.fail_after(HEAD_TIMEOUT_S):
                        await secured.do_handshake()
                    stream = secured
                await self._converse(stream, host, budget, scope)
            except _GONE:
                pass  # left, or too slow: its own loss
            except Exception as broken:  # one visit must not end the others
                self._mishaps.note(self._manners.service, broken)
            finally:
                self._room.leave(scope)

    def _context_of(self, certificate: Certificate) -> ssl.SSLContext:
        """Raises UserError, which is told: its files were right when the door opened."""
        try:
            return certificate.context()
        except OSError as fault:
            raise UserError(f"the renewed certificate cannot be used: {fault}") from fault

    async def _converse(
        self, stream: trio.abc.Stream, host: str, budget: DrawnPace, place: trio.CancelScope
    ) -> None:
        assert self._desk is not None, "the desk is set before the door opens"
        machine = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        for requests_left in reversed(range(REQUESTS_MAX)):
            visitor = host
            try:
                came = await _next_request(machine, stream)
                if came is None:
                    return
                request, begun = came
                headers = _joined(request)
                visitor = self.visitor(headers) or host
                has_body = machine.their_state is h11.SEND_BODY
                if has_body and not self._manners.takes_bodies:
                    reply = self._refusal(413, "a request has no body here")
                else:
                    body = has_body, partial(_read_body, machine, stream, request, begun)
                    reply = await self._desk(_visit(request, headers, visitor, body))
            except h11.RemoteProtocolError as fault:
                if machine.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    refusal = self._refusal(fault.error_status_hint, str(fault))
                    await _send(machine, stream, refusal, partial(_pay, budget, visitor))
                return
            if reply.is_trusted:
                self._familiar.note(host)
            if request.method == b"HEAD":
                reply = replace(reply, body=b"", stream=None)
            is_last = requests_left == 0 or machine.their_state is h11.SEND_BODY or reply.stream
            if is_last and _LAST not in reply.headers:
                reply = replace(reply, headers=(*reply.headers, _LAST))
            await _send(machine, stream, reply, partial(_pay, budget, visitor))
            if reply.stream is not None:
                self._room.leave(place)  # it listens for hours, and gives way to nobody
                await self._listened_to(machine, stream, reply.stream)
                return
            if machine.our_state is not h11.DONE or machine.their_state is not h11.DONE:
                return
            machine.start_next_cycle()

    async def _listened_to(
        self, machine: h11.Connection, stream: trio.abc.Stream, run: Stream
    ) -> None:
        """Until the visitor leaves, or says anything more."""
        if machine.trailing_data[0]:
            return  # it has already

        async def send(piece: bytes) -> None:
            await _send_piece(stream, machine.send(h11.Data(data=piece)))

        self._streams += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_heard, stream, nursery.cancel_scope)
                await run(send)
                nursery.cancel_scope.cancel()
        except* _GONE:
            pass
        finally:
            self._streams -= 1

    def _refusal(self, status: int, words: str) -> Reply:
        body = f"{words}\n".encode()
        headers = (
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            *self._manners.refusal_headers,
            _LAST,
        )
        return Reply(status, headers, body)

    def visitor(self, headers: Mapping[str, str]) -> str:
        """For whom our own proxy asks; what stands before the last comma others wrote."""
        if not self._config.behind_proxy:
            return ""
        return headers.get("x-forwarded-for", "").rpartition(",")[2].strip()


async def _next_request(
    machine: h11.Connection, stream: trio.abc.Stream
) -> tuple[h11.Request, bytes] | None:
    """With what has come of its body, or with its end if it has none; None at the end.

    Raises h11.RemoteProtocolError and _GONE.
    """
    with trio.fail_after(HEAD_TIMEOUT_S):
        while (event := machine.next_event()) is h11.NEED_DATA:
            machine.receive_data(bytes(await stream.receive_some(HEAD_BYTES_MAX)))
    if not isinstance(event, h11.Request):
        return None
    begun = machine.next_event()
    return event, bytes(begun.data) if isinstance(begun, h11.Data) else b""


async def _read_body(
    machine: h11.Connection,
    stream: trio.abc.Stream,
    request: h11.Request,
    begun: bytes,
    bytes_max: int,
) -> bytes | None:
    """All of it, or None if it has more. Raises h11.RemoteProtocolError and _GONE."""
    if any(name == b"content-length" and int(value) > bytes_max for name, value in request.headers):
        return None  # as it says itself
    held = bytearray(begun)
    with trio.fail_after(BODY_TIMEOUT_S):
        if machine.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            await stream.send_all(machine.send(go_on) or b"")
        while machine.their_state is h11.SEND_BODY and len(held) <= bytes_max:
            event = machine.next_event()
            if event is h11.NEED_DATA:
                machine.receive_data(bytes(await stream.receive_some(HEAD_BYTES_MAX)))
            elif isinstance(event, h11.Data):
                held += event.data
    return bytes(held) if len(held) <= bytes_max else None


async def _send(machine: h11.Connection, stream: trio.abc.Stream, reply: Reply, pay: Pay) -> None:
    """Piece by piece, each in its turn. Raises _GONE, and TooSlowError for who does not take it."""
    headers = [*reply.headers, ("Date", formatdate(usegmt=True))]
    await pay(REQUEST_COST_BYTES)
    await _send_piece(stream, machine.send(h11.Response(status_code=reply.status, headers=headers)))
    for at in range(0, len(reply.body), PIECE_BYTES):
        piece = reply.body[at : at + PIECE_BYTES]
        await pay(len(piece))
        await _send_piece(stream, machine.send(h11.Data(data=piece)))
    if reply.stream is None:
        machine.send(h11.EndOfMessage())


async def _until_heard(stream: trio.abc.Stream, scope: trio.CancelScope) -> None:
    await stream.receive_some(1)
    scope.cancel()


async def _send_piece(stream: trio.abc.Stream, piece: bytes | None) -> None:
    with trio.fail_after(PIECE_TIMEOUT_S):
        await stream.send_all(piece or b"")


async def _pay(budget: DrawnPace, visitor: str, size_bytes: float) -> None:
    await budget.take(network_of(visitor), size_bytes, _nothing)


def _joined(request: h11.Request) -> dict[str, str]:
    """Each name once, in small letters (RFC 9110, 5.3: one that comes again is one more value)."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in request.headers:
        name, value = raw_name.decode(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _visit(
    request: h11.Request, headers: Mapping[str, str], visitor: str, body: tuple[bool, ReadBody]
) -> Visit:
    has_body, read_body = body
    return Visit(
        method=request.method.decode(),
        target=request.target.decode(),
        host=headers.get("host", ""),
        accept_encoding=headers.get("accept-encoding", ""),
        if_none_match=headers.get("if-none-match", ""),
        authorization=headers.get("authorization", ""),
        origin=headers.get("origin", ""),
        sec_fetch_site=headers.get("sec-fetch-site", ""),
        last_event_id=headers.get("last-event-id", ""),
        content_type=headers.get("content-type", ""),
        visitor=visitor,
        has_body=has_body,
        read_body=read_body,
    )


def _cause(group: BaseExceptionGroup[Exception]) -> str:
    """In words, of what an operator may mend."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    if isinstance(first, OSError):
        return f"{first.strerror or first}" + (f": {first.filename}" if first.filename else "")
    return repr(first)


def _nothing() -> None:
    """Nobody waits to hear that a turn has come."""
