"""The library's swarm, with what a stranger may cost us bounded.

    accepted --(upgrade)--> stranger --(door)--> admitted | kept as a visitor
        \\                      |
         +---- Waiting room ----+   at most WAITING_MAX; see waiting_room for who gives way

A connection is refused nothing for what happened before it: no lifetime count, no memory of failed
dials, no fixed wait before a dial.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import cast

import trio
from libp2p.abc import IMuxedConn, INetConn, INetStream, IRawConnection, ISecureConn
from libp2p.io.abc import ReadWriteCloser
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.exceptions import SwarmException
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.transport.exceptions import OpenConnectionError
from multiaddr import Multiaddr

from daa_node.adapters.budgets import Budgets
from daa_node.adapters.libp2p_admissions import Admissions
from daa_node.adapters.libp2p_peer_store import ADDRESSES_PER_PEER_MAX, BoundedPeerStore
from daa_node.adapters.libp2p_upgrade import UPGRADE_TIMEOUT_S, Arrival, ExactReader, Upgrader
from daa_node.adapters.libp2p_yamux import YamuxSession
from daa_node.adapters.waiting_room import WaitingRoom
from daa_node.seams import PeerId

NEGOTIATE_TIMEOUT_S = 10
# Not yet admitted connections; 50 kB each. An honest one stays here for a few round trips.
WAITING_MAX = 64
CONNECTIONS_PER_PEER = 2  # both may dial at once
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
DIALS_STAGGER_S = 0.25  # between two addresses of one peer, never before the first


def _host_of(end: ISecureConn | IRawConnection | ReadWriteCloser) -> str | None:
    remote = end.get_remote_address()
    return remote[0] if remote else None


class BoundedSwarm(Swarm):
    """`admissions` tell the inbound side that a connection has left the waiting room."""

    def __init__(
        self,
        peer_id: ID,
        upgrader: Upgrader,
        connections_max: int,
        denied_networks: tuple[str, ...],
        budgets: Budgets,
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
        self.waiting = WaitingRoom(WAITING_MAX, budgets.familiar)
        self._own_upgrader = upgrader
        self.is_member: Callable[[PeerId], bool] = _everybody
        self.on_gone: Callable[[ID], None] = _nobody_minds
        self.on_round_trip: Callable[[PeerId, float], None] | None = None  # of who is admitted
        self._budgets = budgets
        self._denied = [ipaddress.ip_network(text) for text in denied_networks]
        self._dialling: dict[ID, trio.Lock] = {}
        self.admissions = Admissions()
        self.connected: dict[PeerId, None] = {}  # asked for at every turn
        self.visiting: dict[PeerId, None] = {}  # connected as well, and none of these

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
            listener = transport.create_listener(self.handler_of(maddr))
            # the interface lacks it; the library's own swarm hands it over in this way
            vars(listener)["background_nursery"] = self.background_nursery
            await listener.listen(maddr)
            self.listeners[str(maddr)] = listener
        return True

    def handler_of(self, maddr: Multiaddr) -> Callable[[ReadWriteCloser], Awaitable[None]]:
        """For who connects there; returns when that connection has ended."""

        async def handler(raw: ReadWriteCloser) -> None:
            await self._handle_inbound_connection(raw, maddr)

        return handler

    def host_of(self, peer_id: ID) -> str | None:
        """Where the other end of its first connection is; None if there is none from an address."""
        for connection in self.get_connections(peer_id):
            remote = remote_of(connection)
            return None if remote is None else remote[0]
        return None

    async def _handle_inbound_connection(
        self, read_write_closer: ReadWriteCloser, maddr: Multiaddr
    ) -> None:
        """Lives as long as the connection does: its listener closes the socket afterwards."""
        host = _host_of(read_write_closer)
        session: YamuxSession | None = None
        with trio.CancelScope() as scope:
            if _is_denied(host, self._denied):
                await read_write_closer.close()
                return
            admission = self._budgets.of(host, partial(self.waiting.serve, scope))
            try:
                self.waiting.enter(host, scope)
                raw = Arrival(ExactReader(read_write_closer), admission)
                session = cast(YamuxSession, await self.upgrade_inbound_raw_conn(raw, maddr))
                await self.admissions.wait_unless(session.peer_id, session.event_closed)
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

    def admit(self, peer_id: ID) -> None:
        """The peer's connections, now and until the last one ends, are no stranger's."""
        self.admissions.admit(peer_id)
        is_member = partial(self.is_member, PeerId(str(peer_id)))
        for connection in self.get_connections(peer_id):
            session = cast(YamuxSession, connection.muxed_conn)
            session.admit(is_member, self._budgets.guests)
            if self.on_round_trip is not None:
                _hear_round_trips(session, partial(self.on_round_trip, PeerId(str(peer_id))))
            self._budgets.admit(session.secured_conn.get_remote_address(), is_member)

    def keep(self, peer_id: ID, protocol: str) -> bool:
        """As a visitor, for this protocol alone. False if it is admitted, or has gone."""
        if not self.admissions.keep(peer_id, protocol):
            return False
        name = PeerId(str(peer_id))
        self.connected.pop(name, None)
        self.visiting[name] = None
        _bill_visitor(self.get_connections(peer_id), self._budgets)
        return True

    async def dial_peer(self, peer_id: ID) -> list[INetConn]:
        """Dial the addresses known of the peer, best first. Raises SwarmException."""
        addresses = self.peerstore.addrs(peer_id) if self.peerstore.has_peer(peer_id) else []
        return [await self.dial_any(addresses, peer_id)]

    async def who_is_at(self, maddr: Multiaddr) -> ID:
        """Whose key answers there: one handshake, and no connection. Raises SwarmException."""
        transport = self.transport_manager.transport_for_dialing(maddr)
        if transport is None:
            raise SwarmException(f"no transport dials {maddr}")
        try:
            raw = await transport.dial(maddr)
        except OpenConnectionError as error:
            raise SwarmException(str(error)) from None
        try:
            with trio.move_on_after(2 * UPGRADE_TIMEOUT_S):
                return await self._own_upgrader.key_of(RawConnection(ExactReader(raw), True))
        except Exception as error:
            # one connection: whatever its bytes provoke in the library ends it alone
            cause = str(error) or type(error).__name__
            raise SwarmException(f"{maddr}: connected, but no handshake: {cause}") from None
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(1.0):
                await raw.close()
        raise SwarmException(f"{maddr}: connected, but no handshake came about")

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

    async def add_conn(self, muxed_conn: IMuxedConn, direction: str = "unknown") -> SwarmConn:
        """The library serves its streams, then tells of it: who is early waits at the door, too."""
        peer_id = muxed_conn.peer_id
        self.admissions.expect(peer_id)
        try:
            return await super().add_conn(muxed_conn, direction)
        finally:
            if not self.get_connections(peer_id):
                self.admissions.forget(peer_id)

    def remove_conn(self, swarm_conn: SwarmConn) -> None:
        """The peer has gone with its last connection: who dials again is a stranger, at once.

        The library tells of it a tenth of a second later, when it may have dialled again.
        """
        super().remove_conn(swarm_conn)
        peer_id = swarm_conn.muxed_conn.peer_id
        if self.get_connections(peer_id):
            return
        name = PeerId(str(peer_id))
        if name in self.connected or name in self.visiting:
            self.connected.pop(name, None)
            self.visiting.pop(name, None)
            self.admissions.forget(peer_id)
            self.on_gone(peer_id)

    async def notify_connected(self, conn: INetConn) -> None:
        assert self.background_nursery is not None
        for surplus in self.get_connections(conn.muxed_conn.peer_id)[:-CONNECTIONS_PER_PEER]:
            # the oldest: whoever comes anew may not have noticed yet that it was gone
            self.background_nursery.start_soon(surplus.close)
        self.admissions.expect(conn.muxed_conn.peer_id)
        name = PeerId(str(conn.muxed_conn.peer_id))
        if name in self.visiting:
            _bill_visitor(self.get_connections(conn.muxed_conn.peer_id), self._budgets)
        else:
            self.connected[name] = None
        if self.admissions.has(conn.muxed_conn.peer_id):
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


def remote_of(connection: INetConn) -> tuple[str, int] | None:
    """Host and port of the other end; the host of a relayed one is told in libp2p_circuits."""
    return cast(YamuxSession, connection.muxed_conn).secured_conn.get_remote_address()


def _bill_visitor(connections: Sequence[INetConn], budgets: Budgets) -> None:
    for connection in connections:
        session = cast(YamuxSession, connection.muxed_conn)
        session.keep(budgets.visitors)
        budgets.keep(session.secured_conn.get_remote_address())


def _hear_round_trips(session: YamuxSession, hear: Callable[[float], None]) -> None:
    """From now on, and what was measured before it was admitted."""
    if session.on_round_trip is None and session.rtt_s is not None:
        hear(session.rtt_s)
    session.on_round_trip = hear


def _is_denied(host: str | None, denied: Sequence[IPNetwork]) -> bool:
    try:
        address = ipaddress.ip_address((host or "").split("%")[0])
    except ValueError:
        return False
    plain = getattr(address, "ipv4_mapped", None) or address
    return any(plain.version == net.version and plain in net for net in denied)


def _everybody(_peer_id: PeerId) -> bool:
    return True


def _nobody_minds(_peer_id: ID) -> None:
    """Until somebody greets those who come."""
