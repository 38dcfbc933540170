"""Connections through a relay: dialled, taken, and reserved.

    we dial    /<relay's address>/p2p/<relay>/p2p-circuit/p2p/<peer>
    a relay that has promised us a reservation opens a stream to us: somebody dials us through it

Either is a byte stream on which noise and yamux run as on a socket, so the relay reads nothing and
can be nobody but itself. The library has circuits of its own (circuit_v2), made for its own swarm
and streams; ours here are hardened, and a relay of ours serves this network alone.
"""

from collections.abc import Callable
from functools import partial

import trio
from libp2p.abc import IListener, INetConn, IRawConnection, ITransport
from libp2p.custom_types import THandler, TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from libp2p.transport.exceptions import OpenConnectionError
from multiaddr import Multiaddr

from daa_node.adapters.libp2p_host import GatedHost
from daa_node.adapters.libp2p_peer_stream import PeerStream, count_elsewhere, serving, set_apart
from daa_node.adapters.libp2p_swarm import BoundedSwarm
from daa_node.adapters.relay_desk import RelayDesk
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.addresses import CIRCUIT, RELAYED_BY
from daa_node.network.link_limits import LinkLimits
from daa_node.seams import ByteStream, OnFault, PeerId
from daa_node.wire import protocols, relay_messages
from daa_node.wire.framing import read_message, write_message
from daa_node.wire.hosts import is_host

OPEN_TIMEOUT_S = 10.0  # the relay may first have to welcome us
READ_BYTES = 64 * 1024
RELAYS_MAX = 64  # that have promised us something
ENDED_KEPT_MAX = 256  # circuits


def _nobody_minds() -> None:
    """The other end asks again, if anybody does."""


class CircuitStream(ReadWriteCloser):
    """A relayed byte stream as the library wants a socket."""

    def __init__(
        self, stream: ByteStream, relay: PeerId, on_end: Callable[[], None] = _nobody_minds
    ) -> None:
        set_apart(stream)
        count_elsewhere(stream)  # by the streams of the connection that runs on it
        self._on_end = on_end
        self._stream = stream
        self._relay = relay

    async def read(self, n: int | None = None) -> bytes:
        try:
            return await self._stream.receive_some(n or READ_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionClosedError(str(error), transport="circuit") from None

    async def write(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionClosedError(str(error), transport="circuit") from None

    async def close(self) -> None:
        self._on_end()
        await self._stream.aclose()

    def get_remote_address(self) -> tuple[str, int]:
        """No address of the other end is known: all that come by one relay are one network."""
        return RELAYED_BY + self._relay, 0


class RelayedConnections(ITransport):
    """The Circuits seam, for one transport; works once `serve` was called."""

    def __init__(self) -> None:
        self._host: GatedHost | None = None
        # by relays: until when, and on which connections
        self._promised: dict[PeerId, tuple[float, list[INetConn]]] = {}
        # relay and called, of circuits that we had and lost: oldest first
        self._ended: dict[tuple[PeerId, PeerId], None] = {}
        self.desk: RelayDesk | None = None
        self._limits: LinkLimits | None = None

    def serve(self, host: GatedHost, on_fault: OnFault, offers: bool) -> None:
        """Dial and take circuits from now on; `offers`: relay those of others as well."""
        self._host, swarm = host, host.swarm
        swarm.transport_manager.add_transport(self)
        host.set_stream_handler(TProtocol(protocols.RELAYED), serving(self._on_circuit))
        if offers:
            around = self.is_relayed, self._is_connected, swarm.is_member
            self.desk = RelayDesk(self._open, *around, on_fault, lambda: self._limits)
            host.set_stream_handler(TProtocol(protocols.RELAY), serving(self.desk.serve))

    def keep_to(self, limits: LinkLimits) -> None:
        """What we relay for others counts, and keeps to these."""
        self._limits = limits

    def is_relayed(self, peer_id: PeerId) -> bool:
        """Whether we are connected with it through a relay."""
        host = self._swarm().host_of(ID.from_base58(peer_id))
        return host is not None and not is_host(host)

    def _is_connected(self, peer_id: PeerId) -> bool:
        return ID.from_base58(peer_id) in self._swarm().connections

    def is_promised(self, relay: PeerId) -> bool:
        here = self._swarm().get_connections(ID.from_base58(relay))
        return any(connection in here for connection in self._promise_of(relay)[1])

    def _promise_of(self, relay: PeerId) -> tuple[float, list[INetConn]]:
        return self._promised.get(relay, (0.0, []))

    async def reserve(self, relay: PeerId) -> float:
        """For how many seconds others reach us through it. Raises Unavailable or PeerFault."""
        stream, seconds = await self._agreed(relay, relay_messages.reserve())
        await stream.aclose()
        now_s = trio.current_time()
        self._promised = {peer: kept for peer, kept in self._promised.items() if kept[0] > now_s}
        if relay in self._promised or len(self._promised) < RELAYS_MAX:
            on = self._swarm().get_connections(ID.from_base58(relay))
            self._promised[relay] = now_s + seconds, on
        return float(seconds)

    async def dial(self, maddr: Multiaddr) -> IRawConnection:
        """Raises OpenConnectionError."""
        before, _, called = str(maddr).partition(f"/{CIRCUIT}/p2p/")
        _, _, relay = before.rpartition("/p2p/")
        try:
            if not relay or not called or CIRCUIT in called:
                raise Unavailable("no address of a peer behind one relay")
            ends = PeerId(relay), PeerId(called)
            if ends in self._ended:
                del self._ended[ends]
                raise Unavailable("the last circuit there has ended: another relay goes first")
            relay_id = ID.from_base58(relay)
            if relay_id not in self._swarm().connections:
                await self._swarm().dial_any([Multiaddr(before)], relay_id)
            stream, _ = await self._agreed(ends[0], relay_messages.connect(ends[1]))
        except (Unavailable, PeerFault, SwarmException, ValueError) as error:
            raise OpenConnectionError(f"{maddr}: {error}") from None
        return RawConnection(CircuitStream(stream, ends[0], partial(self._note_end, ends)), True)

    def _note_end(self, ends: tuple[PeerId, PeerId]) -> None:
        """A relay that cuts its circuits is not tried twice in a row: the peer has another one."""
        self._ended[ends] = None
        if len(self._ended) > ENDED_KEPT_MAX:
            del self._ended[next(iter(self._ended))]

    async def _agreed(self, relay: PeerId, wish: bytes) -> tuple[ByteStream, int]:
        """A stream on which the relay has granted our wish. Raises Unavailable or PeerFault."""
        stream = await self._open(relay, protocols.RELAY)
        is_agreed = False
        try:
            with trio.fail_after(OPEN_TIMEOUT_S):
                await write_message(stream, wish)
                answer = await read_message(stream, relay_messages.MESSAGE_BYTES_MAX)
            seconds = relay_messages.seconds_granted(answer)
            is_agreed = True
            return stream, seconds
        except (trio.TooSlowError, trio.BrokenResourceError) as error:
            raise Unavailable(f"{relay} relays nothing: {error or 'no answer'}") from None
        finally:
            if not is_agreed:
                await stream.aclose()

    async def _open(self, peer_id: PeerId, protocol: str) -> ByteStream:
        peer = ID.from_base58(peer_id)
        if self._host is None or not self._is_connected(peer_id):
            raise Unavailable(f"{peer_id} is not connected")
        try:
            with trio.fail_after(OPEN_TIMEOUT_S):
                return PeerStream(await self._host.new_stream(peer, [TProtocol(protocol)]))
        except (BaseLibp2pError, trio.TooSlowError) as error:
            raise Unavailable(f"{peer_id} does not open {protocol}: {error}") from None

    async def _on_circuit(self, stream: ByteStream) -> None:
        """Somebody dials us through a relay; lives as long as the connection does."""
        relay = stream.peer_id
        with trio.fail_after(OPEN_TIMEOUT_S):
            payload = await read_message(stream, relay_messages.MESSAGE_BYTES_MAX)
            if self._promise_of(relay)[0] <= trio.current_time():
                await write_message(stream, relay_messages.refused("nothing is reserved there"))
                return
            word, _ = relay_messages.wish_of(payload)  # who it is, noise shows
            if word != "from":
                raise PeerFault("relay-malformed", f"{word!r} from a relay")
            await write_message(stream, relay_messages.granted())
        maddr = Multiaddr(f"/p2p/{relay}/{CIRCUIT}")
        await self._swarm().handler_of(maddr)(CircuitStream(stream, relay))

    def _swarm(self) -> BoundedSwarm:
        assert self._host is not None, "nothing is relayed before the transport runs"
        return self._host.swarm

    def create_listener(self, handler_function: THandler) -> IListener:
        raise OpenConnectionError("a relay listens for us: nothing is listened on here")

    def can_dial(self, maddr: Multiaddr) -> bool:
        return any(protocol.name == CIRCUIT for protocol in maddr.protocols())

    def can_listen(self, maddr: Multiaddr) -> bool:
        return False

    def protocols(self) -> list[str]:
        return [CIRCUIT]
