"""TCP for libp2p, with WebSocket and bulk on the same port: plain trio sockets, no SO_REUSEPORT.

The library's listener shares its port with whoever asks (SO_REUSEPORT), so that two daemons on one
port would both start; its sockets report no address for IPv6 peers. The first byte tells the
protocols apart: multistream opens with 0x13, an HTTP upgrade with "G", and TLS with 0x16, which
only an upgrade follows: a page that came over HTTPS dials no other way. Who dials us back says "R"
(see doorbell), while that is awaited. Who has agreed with us on a bulk session says "B" (see
bulk_door).

    accepted --(first byte, and the upgrade of a WebSocket)--> the swarm's
        |\\-------------(first byte, and a token)------------> the bulk channel's
        \\----- at most ARRIVING_MAX, see waiting_room -----/

All together hold at most as many sockets as there are places; more wait in the kernel's queue.
"""

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

import trio
import trio_websocket
from libp2p.abc import IListener, IRawConnection, ITransport
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.transport.exceptions import OpenConnectionError
from multiaddr import Multiaddr

from daa_node.adapters.budgets import Bill, Budgets, Endpoint
from daa_node.adapters.bulk_door import FIRST_BYTE as BULK
from daa_node.adapters.bulk_door import BulkDoor
from daa_node.adapters.certificate import Certificate
from daa_node.adapters.descriptors import Gate, Shortage, serve
from daa_node.adapters.doorbell import FIRST_BYTE as RING
from daa_node.adapters.doorbell import SocketDoorbell
from daa_node.adapters.host_names import HostNames
from daa_node.adapters.waiting_room import WaitingRoom
from daa_node.adapters.websocket_frames import FrameCounter
from daa_node.network.config import HOST_KINDS
from daa_node.wire.limits import KIB

DIAL_TIMEOUT_S = 10.0  # a SYN is repeated after 1, 3 and 7 s
READ_BYTES = 64 * KIB
ARRIVING_MAX = 128  # have not said a word, or no token yet; an honest dialler speaks at once
# A silent one costs 0.25 ms: a flood of them a fortieth of a core. Were it more, who says the first
# words would leave those who are served in the swarm's waiting room less than they need. Sockets
# for bulk share this pace and its burst: whoever waits for 2 s goes on over streams, more slowly.
ACCEPTS_PER_S = 100.0
UPGRADE_TIMEOUT_S = 5.0  # from the accepted socket to the first byte, and to the WebSocket's end
WEBSOCKET_MESSAGE_BYTES_MAX = 128 * KIB  # a message of noise is half of that
FRAME_UNITS = 4  # of ten microseconds, see budgets; a ping is answered, a last fragment passed on
TLS_UNITS = 300  # a signature with RSA of 2048 bits takes a third of it, one with P-256 a tenth
_HTTP_FIRST_BYTE, _TLS_FIRST_BYTE = b"G", b"\x16"
_TCP_USER_TIMEOUT_MS = 30_000  # a cut cable is noticed, though nobody sends FIN


class SocketStream(ReadWriteCloser):
    """A TCP connection as the library wants it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._remote = _other_end(stream)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)

    async def read(self, n: int | None = None) -> bytes:
        try:
            return bytes(await self._stream.receive_some(n or READ_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionClosedError(str(error), transport="tcp") from None

    async def write(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionClosedError(str(error), transport="tcp") from None

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)

    def get_remote_address(self) -> Endpoint | None:
        return self._remote


class PaidStream(trio.abc.Stream):
    """A socket whose other end pays for frames of WebSocket."""

    def __init__(self, stream: trio.abc.Stream, bill: Bill) -> None:
        self._stream = stream
        self._bill = bill
        self._frames = FrameCounter()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        piece = bytes(await self._stream.receive_some(max_bytes))
        self._bill.units += self._frames.begun_in(piece) * FRAME_UNITS
        await self._bill.settle()
        return piece

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


class WebSocketStream(ReadWriteCloser):
    """A WebSocket's binary messages, joined into a byte stream."""

    def __init__(self, channel: trio_websocket.WebSocketConnection, remote: Endpoint | None):
        self._channel = channel
        self._remote = remote
        self._left = b""

    async def read(self, n: int | None = None) -> bytes:
        while not self._left:
            try:
                message = await self._channel.get_message()
            except trio_websocket.ConnectionClosed:
                return b""
            self._left = message if isinstance(message, bytes) else message.encode()
        size = len(self._left) if n is None else min(n, len(self._left))
        piece, self._left = self._left[:size], self._left[size:]
        return piece

    async def write(self, data: bytes) -> None:
        try:
            await self._channel.send_message(data)
        except trio_websocket.ConnectionClosed as error:
            raise ConnectionClosedError(str(error), transport="ws") from None

    async def close(self) -> None:
        with trio.move_on_after(1.0):
            await self._channel.aclose()

    def get_remote_address(self) -> Endpoint | None:
        return self._remote


ConnectionHandler = Callable[[ReadWriteCloser], Awaitable[None]]


class WebSockets:
    """Other ends of those that are open."""

    def __init__(self) -> None:
        self._open: WeakValueDictionary[Endpoint, WebSocketStream] = WeakValueDictionary()

    def note(self, stream: WebSocketStream) -> WebSocketStream:
        remote = stream.get_remote_address()
        if remote is not None:
            self._open[remote] = stream
        return stream

    def lead_to(self, remote: Endpoint | None) -> bool:
        return remote is not None and remote in self._open


class Doorway:
    """What all listeners of a transport share: a gate, and who stands there without a word."""

    def __init__(
        self,
        sockets_max: int,
        budgets: Budgets,
        shortage: Shortage,
        names: HostNames,
        doorbell: SocketDoorbell,
        bulk: BulkDoor,
        certificate: Certificate | None = None,
    ) -> None:
        self.doorbell = doorbell
        self.bulk = bulk
        self.gate = Gate(sockets_max, ACCEPTS_PER_S, shortage)
        self.arrivals = WaitingRoom(ARRIVING_MAX, budgets.familiar)
        self.budgets = budgets
        self.names = names
        self.certificate = certificate
        self.websockets = WebSockets()


class SocketListener(IListener):
    """Accepts on one address; `background_nursery` is set by the swarm before `listen`."""

    background_nursery: trio.Nursery

    def __init__(self, handler: ConnectionHandler, websocket: bool, doorway: Doorway) -> None:
        self._handler = handler
        self._websocket = websocket
        self._doorway = doorway
        self._listeners: list[trio.SocketListener] = []
        self._scope = trio.CancelScope()
        self._addresses: tuple[Multiaddr, ...] = ()

    async def listen(self, maddr: Multiaddr) -> None:
        """Raises OSError: of the kernel, when the address is taken or not ours; socket.gaierror,
        when its name does not resolve.
        """
        self._listeners = await self._doorway.names.listen(*place_of(maddr))
        self._addresses = tuple(map(_bound, self._listeners))
        self.background_nursery.start_soon(self._serve)

    def get_addrs(self) -> tuple[Multiaddr, ...]:
        return self._addresses

    async def close(self) -> None:
        self._scope.cancel()
        for listener in self._listeners:
            await listener.aclose()

    async def _serve(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                for listener in self._listeners:
                    nursery.start_soon(serve, listener, self._on_connection, self._doorway.gate)

    async def _on_connection(self, stream: trio.SocketStream) -> None:
        remote = _other_end(stream)
        with trio.CancelScope() as scope:
            leave = partial(self._doorway.arrivals.leave, scope)
            self._doorway.arrivals.enter(remote[0] if remote else None, scope)
            try:
                first = await _first_byte(stream)
                if first == BULK:
                    await self._doorway.bulk.on_socket(stream, leave)
                elif first == RING and self._doorway.doorbell.is_awaited:
                    await self._doorway.doorbell.hear(stream)
                elif self._websocket and first in self._websocket_begins_with():
                    await self._on_websocket(stream, remote, scope)
                else:
                    leave()
                    await self._handler(SocketStream(stream))
            except* Exception:
                # one connection: whatever its bytes provoke in the library ends nothing but itself
                await trio.aclose_forcefully(stream)
            finally:
                leave()

    async def _on_websocket(
        self, stream: trio.SocketStream, remote: Endpoint | None, scope: trio.CancelScope
    ) -> None:
        async with trio.open_nursery() as nursery:
            with self._doorway.budgets.billed(remote) as bill:
                with trio.fail_after(UPGRADE_TIMEOUT_S):
                    request = await trio_websocket.wrap_server_stream(
                        nursery,
                        PaidStream(await self._without_tls(stream, bill), bill),
                        max_message_size=WEBSOCKET_MESSAGE_BYTES_MAX,
                    )
                    channel = await request.accept()
                self._doorway.arrivals.leave(scope)
                await self._handler(self._doorway.websockets.note(WebSocketStream(channel, remote)))
            nursery.cancel_scope.cancel()

    def _websocket_begins_with(self) -> tuple[bytes, ...]:
        secure = (_TLS_FIRST_BYTE,) if self._doorway.certificate is not None else ()
        return (_HTTP_FIRST_BYTE, *secure)

    async def _without_tls(self, stream: trio.SocketStream, bill: Bill) -> trio.abc.Stream:
        certificate = self._doorway.certificate
        if certificate is None or await _first_byte(stream) != _TLS_FIRST_BYTE:
            return stream
        bill.units += TLS_UNITS
        await bill.settle()
        return trio.SSLStream(
            stream, certificate.context(), server_side=True, https_compatible=True
        )


class DialledEnds:
    """From where we have dialled whom, as long as those sockets live."""

    def __init__(self) -> None:
        self._dialled: WeakValueDictionary[Endpoint, trio.SocketStream] = WeakValueDictionary()

    def note(self, stream: trio.SocketStream) -> None:
        self._dialled[stream.socket.getpeername()[:2]] = stream

    def own(self, other: Endpoint) -> Endpoint | None:
        """Host and port of our newest socket there."""
        stream = self._dialled.get(other)
        with suppress(OSError):  # it is closed
            return None if stream is None else stream.socket.getsockname()[:2]
        return None


class SocketTransport(ITransport):
    """Dials and listens; `nursery` is where dialled WebSockets are read."""

    def __init__(
        self, nursery: trio.Nursery, websocket: bool, doorway: Doorway, ends: DialledEnds
    ) -> None:
        self._nursery = nursery
        self._websocket = websocket
        self._doorway = doorway
        self._ends = ends

    async def dial(self, maddr: Multiaddr) -> IRawConnection:
        """Raises OpenConnectionError."""
        kind, (host, port) = place_of(maddr)
        try:
            with trio.fail_after(DIAL_TIMEOUT_S):
                stream = await self._doorway.names.connect(kind, (host, port))
                self._ends.note(stream)
                if not _names_websocket(maddr):
                    return RawConnection(SocketStream(stream), True)
                channel = await self._nursery.start(_carry_websocket, stream, f"{host}:{port}")
                carried = WebSocketStream(channel, (host, port))
                return RawConnection(self._doorway.websockets.note(carried), True)
        except (OSError, trio.TooSlowError) as error:
            cause = str(error) or f"no answer within {DIAL_TIMEOUT_S:.0f} s"
            raise OpenConnectionError(f"{maddr}: {cause}") from None

    def create_listener(self, handler_function: ConnectionHandler) -> SocketListener:
        return SocketListener(handler_function, self._websocket, self._doorway)

    def can_dial(self, maddr: Multiaddr) -> bool:
        names = {protocol.name for protocol in maddr.protocols()}
        return "tcp" in names and not names & {"wss", "tls", "p2p-circuit"}

    def can_listen(self, maddr: Multiaddr) -> bool:
        return self.can_dial(maddr) and not _names_websocket(maddr)

    def protocols(self) -> list[str]:
        return ["tcp", "ws"]


async def _carry_websocket(
    stream: trio.SocketStream,
    host: str,
    task_status: trio.TaskStatus[trio_websocket.WebSocketConnection],
) -> None:
    """Start with the WebSocket, once it is open, and read it until it ends.

    Raises OpenConnectionError when none comes about; what comes later ends this one alone.
    """
    is_open = False
    try:
        async with trio.open_nursery() as nursery:
            channel = await trio_websocket.wrap_client_stream(
                nursery, stream, host, "/", max_message_size=WEBSOCKET_MESSAGE_BYTES_MAX
            )
            is_open = not channel.closed
            if is_open:
                task_status.started(channel)
    except* Exception:
        # one connection: whatever its bytes provoke in the library ends nothing but itself
        pass
    finally:
        await trio.aclose_forcefully(stream)
    if not is_open:
        raise OpenConnectionError(f"{host} answers with no WebSocket")


def _other_end(stream: trio.SocketStream) -> Endpoint | None:
    """Host and port; None when nobody is there any more."""
    with suppress(OSError):
        # IPv6 gives four items; the first two are what both families share
        host, port = stream.socket.getpeername()[:2]
        return host, port
    return None


def _names_websocket(maddr: Multiaddr) -> bool:
    return any(protocol.name == "ws" for protocol in maddr.protocols())


async def _first_byte(stream: trio.SocketStream) -> bytes:
    """Looks at it without taking it. Raises OSError, TooSlowError."""
    with trio.fail_after(UPGRADE_TIMEOUT_S):
        return await stream.socket.recv(1, socket.MSG_PEEK)


def place_of(maddr: Multiaddr) -> tuple[str, Endpoint]:
    """Kind of host (as network.config has them), host and port. Raises OpenConnectionError."""
    values = {protocol.name: value for protocol, value in maddr.items()}
    kind = next((kind for kind in HOST_KINDS if kind in values), None)
    if kind is None or "tcp" not in values:
        raise OpenConnectionError(f"{maddr} is not a TCP address")
    return kind, (str(values[kind]), int(values["tcp"]))


def _bound(listener: trio.SocketListener) -> Multiaddr:
    family = "ip6" if listener.socket.family == socket.AF_INET6 else "ip4"
    host, port = listener.socket.getsockname()[:2]
    return Multiaddr(f"/{family}/{host}/tcp/{port}")
