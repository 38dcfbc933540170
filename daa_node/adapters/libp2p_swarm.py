"""The library's swarm and host, with what a stranger may cost us bounded.

    accepted --(upgrade)--> stranger --(door)--> admitted
        \\                      |
         +---- Waiting room ----+   at most WAITING_MAX; see waiting_room for who gives way

A connection is refused nothing for what happened before it: no lifetime count, no memory of failed
dials, no fixed wait before a dial. Nothing that a stream's handler raises leaves its stream.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import cast

import trio
from libp2p.abc import INetConn, INetStream, IRawConnection, ISecureConn, ISecureTransport
from libp2p.crypto.keys import KeyPair
from libp2p.crypto.x25519 import create_new_key_pair as create_new_x25519_key_pair
from libp2p.custom_types import StreamHandlerFn, TMuxerClass, TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.exceptions import SwarmException
from libp2p.network.stream.net_stream import NetStream
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.peer.peerstore import PeerStore
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.security.noise.transport import Transport as Noise
from libp2p.transport.exceptions import MuxerUpgradeFailure
from libp2p.transport.upgrader import TransportUpgrader
from multiaddr import Multiaddr

from daa_node.adapters.libp2p_negotiation import BriefServer, PromptClient
from daa_node.adapters.libp2p_yamux import YamuxSession, YamuxStream
from daa_node.adapters.purses import (
    GREETING_UNITS,
    NOISE_UNITS,
    OPEN_SERVICE_UNITS,
    Admission,
    Purses,
)
from daa_node.adapters.waiting_room import WaitingRoom
from daa_node.network.addresses import is_numeric
from daa_node.seams import Address, PeerId
from daa_node.wire.limits import KIB

UPGRADE_TIMEOUT_S = 5.0  # noise and yamux take three round trips: 1.5 s on a bad satellite link
NEGOTIATE_TIMEOUT_S = 10
# Not yet admitted connections; 50 kB each. An honest one stays here for a few round trips.
WAITING_MAX = 64
CONNECTIONS_PER_PEER = 2  # both may dial at once
ADDRESSES_PER_PEER_MAX = 8
PEERS_KNOWN_MAX = 1024
DIALS_STAGGER_S = 0.25  # between two addresses of one peer, never before the first
READ_BYTES = 64 * KIB


class ExactReader(ReadWriteCloser):
    """Gives exactly what is asked for, from large reads.

    The library gives up after 100 pieces, and it asks as often again after the end of a connection.
    """

    def __init__(self, inner: ReadWriteCloser) -> None:
        self._inner = inner
        self._buffer = bytearray()

    async def read(self, n: int | None = None) -> bytes:
        """`n` bytes. Raises ConnectionClosedError when the connection ends first."""
        wanted = n if n is not None else 1
        while len(self._buffer) < wanted:
            piece = await self._inner.read(READ_BYTES)
            if not piece:
                raise ConnectionClosedError("the peer hung up")
            self._buffer += piece
        size = len(self._buffer) if n is None else n
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def write(self, data: bytes) -> None:
        await self._inner.write(data)

    async def close(self) -> None:
        await self._inner.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        return self._inner.get_remote_address()


class BoundedPeerStore(PeerStore):
    """At most ADDRESSES_PER_PEER_MAX addresses a peer, by number, and PEERS_KNOWN_MAX peers.

    What is here others have told, and the library dials it: no stranger has a name looked up.
    """

    def __init__(self) -> None:
        super().__init__(max_records=PEERS_KNOWN_MAX, max_peers=PEERS_KNOWN_MAX)

    def add_addrs(self, peer_id: ID, addrs: Sequence[Multiaddr], ttl: int = 0) -> None:
        numeric = list(filter(_is_numeric, addrs))
        super().add_addrs(peer_id, numeric[:ADDRESSES_PER_PEER_MAX], ttl)
        kept = self.peer_data_map.get(peer_id)
        if kept is not None:
            del kept.addrs[:-ADDRESSES_PER_PEER_MAX]

    def _enforce_peer_limit(self) -> None:
        """The oldest go first; the library began with us, who have keys and no addresses."""
        while len(self.peer_data_map) > self.max_peers:
            oldest = next(peer for peer, kept in self.peer_data_map.items() if not kept.privkey)
            del self.peer_data_map[oldest]
            self.peer_record_map.pop(oldest, None)


class Arrival(RawConnection):
    """An accepted connection, and who pays for what it makes us do."""

    def __init__(self, stream: ReadWriteCloser, admission: Admission) -> None:
        super().__init__(stream, False)
        self.admission = admission


class PaidNoise(Noise):
    """Whoever dials us pays for the handshake before we compute it; who only waits pays nothing."""

    def __init__(self, key_pair: KeyPair) -> None:
        super().__init__(key_pair, noise_privkey=create_new_x25519_key_pair().private_key)

    async def secure_inbound(self, conn: IRawConnection) -> ISecureConn:
        assert isinstance(conn, Arrival)
        await conn.admission.begin()
        await conn.admission.take(NOISE_UNITS)
        secured = await super().secure_inbound(conn)
        vars(secured)["admission"] = conn.admission  # the interface has no place for it
        return secured


class Upgrader(TransportUpgrader):
    """Noise, then our own yamux and no other muxer."""

    def __init__(
        self,
        secure_transports_by_protocol: Mapping[TProtocol, ISecureTransport],
        muxer_transports_by_protocol: Mapping[TProtocol, TMuxerClass],
    ) -> None:
        super().__init__(secure_transports_by_protocol, muxer_transports_by_protocol)
        for multistream in (self.security_multistream, self.muxer_multistream):
            multistream._selector.multiselect_client = PromptClient()
            multistream._selector.multiselect = BriefServer(multistream.multiselect.handlers)

    async def upgrade_connection(self, conn: ISecureConn, peer_id: ID) -> YamuxSession:
        admission: Admission | None = vars(conn).get("admission")  # of who dials us
        with trio.move_on_after(UPGRADE_TIMEOUT_S):
            if admission is not None:
                await admission.take(GREETING_UNITS)
            await self.muxer_multistream.select_transport(conn)
            return YamuxSession(conn, peer_id, admission)
        raise MuxerUpgradeFailure(f"no muxer agreed within {UPGRADE_TIMEOUT_S:.0f} s")


def _is_numeric(address: Multiaddr) -> bool:
    """Also whether it is one at all: the library reads its bytes only when it dials."""
    try:
        return is_numeric(Address(str(address)))
    except ValueError:
        return False


def _host_of(end: ISecureConn | IRawConnection | ReadWriteCloser) -> str | None:
    remote = end.get_remote_address()
    return remote[0] if remote else None


class BoundedSwarm(Swarm):
    """`admitted` tells the inbound side that a connection has left the waiting room."""

    def __init__(
        self,
        peer_id: ID,
        upgrader: Upgrader,
        connections_max: int,
        denied_networks: tuple[str, ...],
        purses: Purses,
    ) -> None:
        config = ConnectionConfig(
            min_connections=0,
            low_watermark=0,
            high_watermark=connections_max,
            max_connections=connections_max,
            max_connections_per_peer=connections_max,  # ours give way at once, see notify_connected
            inbound_upgrade_timeout=UPGRADE_TIMEOUT_S,
            outbound_upgrade_timeout=UPGRADE_TIMEOUT_S,
            inbound_stream_protocol_negotiation_timeout=NEGOTIATE_TIMEOUT_S,
            outbound_stream_protocol_negotiation_timeout=NEGOTIATE_TIMEOUT_S,
        )
        super().__init__(
            peer_id,
            BoundedPeerStore(),
            upgrader,
            transports=[],
            retry_config=RetryConfig(max_retries=0),
            connection_config=config,
        )
        self.notifees.clear()  # the library's own remember every peer there ever was
        self.waiting = WaitingRoom(WAITING_MAX, purses.familiar)
        self.is_member: Callable[[PeerId], bool] = _everybody
        self.on_gone: Callable[[ID], None] = _nobody_minds
        self._purses = purses
        self._denied = [ipaddress.ip_network(text) for text in denied_networks]
        self._dialling: dict[ID, trio.Lock] = {}
        self._admissions: dict[ID, trio.Event] = {}
        self.connected: dict[PeerId, None] = {}  # asked for at every turn

    async def run(self) -> None:
        """As the library's, without its pruner, auto-connector and health monitor."""
        async with trio.open_nursery() as nursery:
            self.background_nursery = nursery
            self.event_background_nursery_created.set()
            try:
                await self.manager.wait_finished()
            finally:
                with trio.CancelScope(shield=True), trio.move_on_after(2.0):
                    for listener in list(self.listeners.values()):
                        await listener.close()
                    for connection in self.get_connections():
                        await connection.close()
                nursery.cancel_scope.cancel()

    async def listen(self, *multiaddrs: Multiaddr) -> bool:
        """Unlike the library's, raises what the transport raised."""
        await self.event_background_nursery_created.wait()
        for maddr in multiaddrs:
            transport = self.transport_manager.transport_for_listening(maddr)
            if transport is None:
                raise SwarmException(f"no transport listens on {maddr}")
            listener = transport.create_listener(self._handler_of(maddr))
            # the interface lacks it; the library's own swarm hands it over in this way
            vars(listener)["background_nursery"] = self.background_nursery
            await listener.listen(maddr)
            self.listeners[str(maddr)] = listener
        return True

    def _handler_of(self, maddr: Multiaddr) -> Callable[[ReadWriteCloser], Awaitable[None]]:
        async def handler(raw: ReadWriteCloser) -> None:
            await self._handle_inbound_connection(raw, maddr)

        return handler

    def denies(self, host: str | None) -> bool:
        try:
            address = ipaddress.ip_address((host or "").split("%")[0])
        except ValueError:
            return False
        plain = getattr(address, "ipv4_mapped", None) or address
        return any(plain.version == net.version and plain in net for net in self._denied)

    async def _handle_inbound_connection(
        self, read_write_closer: ReadWriteCloser, maddr: Multiaddr
    ) -> None:
        """Lives as long as the connection does: its listener closes the socket afterwards."""
        host = _host_of(read_write_closer)
        session: YamuxSession | None = None
        with trio.CancelScope() as scope:
            if self.denies(host):
                await read_write_closer.close()
                return
            admission = self._purses.of(host, partial(self.waiting.serve, scope))
            try:
                self.waiting.enter(host, scope)
                raw = Arrival(ExactReader(read_write_closer), admission)
                session = cast(YamuxSession, await self.upgrade_inbound_raw_conn(raw, maddr))
                await self._wait_admitted_or_closed(session)
                self.waiting.leave(scope)
                admission.end()
                await session.event_closed.wait()
            except* Exception:
                # one connection: whatever its bytes provoke in the library ends it alone
                pass
            finally:
                self.waiting.leave(scope)
                admission.end()
                with trio.CancelScope(shield=True), trio.move_on_after(1.0):
                    await (session or read_write_closer).close()

    async def _wait_admitted_or_closed(self, session: YamuxSession) -> None:
        admission = self._admissions.get(session.peer_id, session.event_closed)
        async with trio.open_nursery() as nursery:
            for event in (admission, session.event_closed):
                nursery.start_soon(_cancel_after, event, nursery.cancel_scope)

    def admit(self, peer_id: ID) -> None:
        """The peer's connections, now and until the last one ends, are no stranger's."""
        if peer_id in self._admissions:
            self._admissions[peer_id].set()
        is_member = partial(self.is_member, PeerId(str(peer_id)))
        for connection in self.get_connections(peer_id):
            session = cast(YamuxSession, connection.muxed_conn)
            session.admit(is_member, self._purses.guests)
            self._purses.admit(session.secured_conn.get_remote_address(), is_member)

    async def wait_admitted(self, peer_id: ID, timeout_s: float) -> bool:
        """Both sides are admitted at different moments: a stream may come a little early."""
        event = self._admissions.get(peer_id)
        if event is not None:
            with trio.move_on_after(timeout_s):
                await event.wait()
        return self.is_admitted(peer_id)

    def is_admitted(self, peer_id: ID) -> bool:
        event = self._admissions.get(peer_id)
        return event is not None and event.is_set()

    async def dial_peer(self, peer_id: ID) -> list[INetConn]:
        """Dial the addresses known of the peer, best first. Raises SwarmException."""
        addresses = self.peerstore.addrs(peer_id) if self.peerstore.has_peer(peer_id) else []
        return [await self.dial_any(addresses, peer_id)]

    async def dial_any(self, addresses: list[Multiaddr], peer_id: ID) -> INetConn:
        """The first address that answers wins. Raises SwarmException naming each failure."""
        if peer_id == self.self_id:
            raise SwarmException("that is ourselves")
        lock = self._dialling.setdefault(peer_id, trio.Lock())
        try:
            async with lock:
                for connection in self.get_connections(peer_id):
                    if not connection.is_closed:
                        return connection
                return await self._race(addresses, peer_id)
        finally:
            if not lock.locked():
                self._dialling.pop(peer_id, None)

    async def _race(self, addresses: list[Multiaddr], peer_id: ID) -> INetConn:
        won: list[INetConn] = []
        failures: list[str] = []

        async def attempt(address: Multiaddr, failed: trio.Event) -> None:
            try:
                connection = await self.dial_addr(address, peer_id)
            except SwarmException as error:
                failures.append(f"{address}: {error.__cause__ or error}")
                failed.set()
            else:
                if won:
                    await connection.close()
                else:
                    won.append(connection)
                    nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for address in addresses[:ADDRESSES_PER_PEER_MAX]:
                failed = trio.Event()
                nursery.start_soon(attempt, address, failed)
                with trio.move_on_after(DIALS_STAGGER_S):
                    await failed.wait()
        if not won:
            raise SwarmException("; ".join(failures) or "no address is known")
        return won[0]

    async def upgrade_outbound_raw_conn(
        self, raw_conn: IRawConnection, peer_id: ID, pre_scope: None = None
    ) -> SwarmConn:
        exact = RawConnection(ExactReader(raw_conn), True)
        # the library bounds the muxer's negotiation alone, not the handshake before it
        with trio.move_on_after(2 * UPGRADE_TIMEOUT_S):
            return await super().upgrade_outbound_raw_conn(exact, peer_id, pre_scope)
        await raw_conn.close()
        raise SwarmException("connected, but no handshake came about")

    async def close_peer(self, peer_id: ID) -> None:
        """Close what there is. The library would forget what comes meanwhile, and not close it."""
        # A close that is cut short leaves its connection in the swarm's list for ever.
        with trio.CancelScope(shield=True):
            for connection in self.get_connections(peer_id):
                await connection.close()

    def remove_conn(self, swarm_conn: SwarmConn) -> None:
        """The peer has gone with its last connection: who dials again is a stranger, at once.

        The library tells of it a tenth of a second later, when it may have dialled again.
        """
        super().remove_conn(swarm_conn)
        peer_id = swarm_conn.muxed_conn.peer_id
        if (
            not self.get_connections(peer_id)
            and self.connected.pop(PeerId(str(peer_id)), 0) is None
        ):
            self._admissions.pop(peer_id, None)
            self.on_gone(peer_id)

    async def notify_connected(self, conn: INetConn) -> None:
        assert self.background_nursery is not None
        for surplus in self.get_connections(conn.muxed_conn.peer_id)[:-CONNECTIONS_PER_PEER]:
            # the oldest: whoever comes anew may not have noticed yet that it was gone
            self.background_nursery.start_soon(surplus.close)
        self._admissions.setdefault(conn.muxed_conn.peer_id, trio.Event())
        self.connected[PeerId(str(conn.muxed_conn.peer_id))] = None
        if self.is_admitted(conn.muxed_conn.peer_id):
            self.admit(conn.muxed_conn.peer_id)
        await self._notify("connected", conn)

    async def notify_disconnected(self, conn: INetConn) -> None:
        """`on_gone` has told."""

    async def notify_opened_stream(self, stream: INetStream) -> None:
        """Nobody counts streams."""

    notify_closed_stream = notify_opened_stream

    def _schedule_prune(self) -> None:
        """Connections are bounded where they begin, and network/discovery decides on them."""

    _schedule_auto_connect = _schedule_prune


def _everybody(_peer_id: PeerId) -> bool:
    return True


def _nobody_minds(_peer_id: ID) -> None:
    """Until somebody greets those who come."""


async def _serve_while_connected(stream: INetStream, handler: StreamHandlerFn) -> None:
    """The library lets a handler that does not read outlive its connection, for ever."""
    session = cast(YamuxSession, stream.muxed_conn)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_after, session.event_closed, nursery.cancel_scope)
        await handler(stream)
        nursery.cancel_scope.cancel()


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


class GatedHost(BasicHost):
    """Serves a stream only when its protocol is open to strangers or its peer is admitted."""

    def __init__(self, network: BoundedSwarm) -> None:
        super().__init__(
            network,
            negotiate_timeout=NEGOTIATE_TIMEOUT_S,
            disable_identify_address_discovery=True,
        )
        self.multiselect_client = PromptClient()
        self.multiselect = BriefServer()  # libp2p_courtesy's ping and identify, not the library's
        network.notifees.clear()  # what peers claim about themselves is read in hello, signed
        self.swarm = network
        self.open_protocols: frozenset[str] = frozenset()
        self.admission_timeout_s = 0.0

    async def _swarm_stream_handler(self, net_stream: INetStream) -> None:
        try:
            await self._answer(net_stream)
        except* Exception:
            # one stream: the library's own handlers raise on a peer's bytes, and would end us all
            await net_stream.reset()
        finally:
            cast(YamuxStream, cast(NetStream, net_stream).muxed_stream).release()

    async def _answer(self, net_stream: INetStream) -> None:
        protocol, handler = await self.multiselect.negotiate(
            MultiselectCommunicator(net_stream), NEGOTIATE_TIMEOUT_S
        )
        if protocol in self.open_protocols:
            cast(YamuxSession, net_stream.muxed_conn).bill.units += OPEN_SERVICE_UNITS
        welcome = protocol in self.open_protocols or await self.swarm.wait_admitted(
            net_stream.muxed_conn.peer_id, self.admission_timeout_s
        )
        if welcome and protocol is not None and handler is not None:
            net_stream.set_protocol(protocol)
            await _serve_while_connected(net_stream, handler)
        else:
            await net_stream.reset()

    def set_stream_handler(self, protocol_id: TProtocol, stream_handler: StreamHandlerFn) -> None:
        self.multiselect.add_handler(protocol_id, stream_handler)
