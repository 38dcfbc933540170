"""The Transport seam over py-libp2p: TCP and WebSocket, noise, yamux, gossipsub, Kademlia.

    connected --door--> admitted --last connection ends--> forgotten
        \\------refused, or no answer in DOOR_TIMEOUT_S------> hung up on

A simulation passes its own raw transports; everything above the bytes is the same code.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random
from typing import cast

import trio
from libp2p.abc import INetConn, INetStream, INetwork, INotifee, ITransport
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.io.exceptions import IOException
from libp2p.network.exceptions import SwarmException
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.peer.id import ID
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE_ID
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX_ID
from libp2p.stream_muxer.yamux.yamux import Yamux
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

from daa_consensus.committee import VALIDATORS_MAX
from daa_node.adapters import libp2p_hardening
from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.libp2p_courtesy import Courtesies
from daa_node.adapters.libp2p_dht import BoundedDht
from daa_node.adapters.libp2p_mdns import listen_and_tell
from daa_node.adapters.libp2p_pubsub import BoundedGossip, BoundedPubsub
from daa_node.adapters.libp2p_sockets import ARRIVING_MAX, Doorway, SocketTransport
from daa_node.adapters.libp2p_swarm import (
    CONNECTIONS_PER_PEER,
    WAITING_MAX,
    BoundedSwarm,
    GatedHost,
    PaidNoise,
    Upgrader,
)
from daa_node.adapters.libp2p_yamux import YamuxSession
from daa_node.adapters.own_addresses import hosts_for
from daa_node.adapters.purses import Purses
from daa_node.adapters.waiting_room import Familiar, network_of
from daa_node.errors import NodeError, PeerFault, Unavailable, UserError
from daa_node.network.addresses import is_numeric
from daa_node.network.config import NetworkConfig
from daa_node.seams import (
    Address,
    ByteStream,
    Door,
    GossipFilter,
    GossipJudge,
    IsMember,
    OnFault,
    PeerId,
    RecordJudge,
    StreamHandler,
)
from daa_node.wire.limits import GOSSIP_BYTES_MAX

DOOR_TIMEOUT_S = 10.0  # a hello is two messages of 7 kB and two signatures
PARTING_S = 0.2  # closing at once would throw away the reason that was just sent
DIAL_TIMEOUT_S = 20.0
OPEN_TIMEOUT_S = 10.0
DHT_TIMEOUT_S = 30.0
SEARCH_TIMEOUT_S = 5.0  # whoever searches for providers has peers that wait for it
# Of one committee and the next, of which less than a third is other: they always find a place.
MEMBERS_MAX = VALIDATORS_MAX + VALIDATORS_MAX // 3
DIALS_MAX = 32  # sockets on their way to a connection: a few peers, some addresses each
ADDRESS_TTL_S = 3600
RECEIVE_BYTES = 64 * 1024

RawTransports = Callable[[trio.Nursery], list[ITransport]]


class PeerStream:
    """A libp2p stream as a ByteStream."""

    def __init__(self, stream: INetStream) -> None:
        self._stream = stream
        self._peer_id = PeerId(str(stream.muxed_conn.peer_id))

    @property
    def peer_id(self) -> PeerId:
        return self._peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        try:
            await self._stream.write(bytes(payload))
        except (IOException, BaseLibp2pError) as error:
            raise trio.BrokenResourceError(f"stream to {self._peer_id} was cut: {error}") from None

    async def receive_some(self, size_bytes_max: int = RECEIVE_BYTES) -> bytes:
        try:
            return await self._stream.read(size_bytes_max)
        except StreamEOF:
            return b""
        except (IOException, BaseLibp2pError) as error:
            raise trio.BrokenResourceError(f"stream of {self._peer_id} was cut: {error}") from None

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):  # it only queues a frame
            try:
                await self._stream.close()
            except (IOException, BaseLibp2pError):
                return

    async def abort(self) -> None:
        with trio.CancelScope(shield=True):
            await self._stream.reset()


class _Parts:
    """The library's objects of one running transport."""

    def __init__(
        self,
        ed25519_seed: bytes,
        namespace: str,
        config: NetworkConfig,
        raw_transports: list[ITransport],
        purses: Purses,
        on_fault: OnFault,
    ) -> None:
        key_pair = create_new_key_pair(ed25519_seed)
        noise = PaidNoise(key_pair)
        self.swarm = BoundedSwarm(
            ID.from_pubkey(key_pair.public_key),
            Upgrader({TProtocol(NOISE_ID): noise}, {TProtocol(YAMUX_ID): Yamux}),
            _connections_max(config),
            config.deny,
            purses,
        )
        self.swarm.peerstore.add_key_pair(self.swarm.self_id, key_pair)
        self.swarm.transport_manager.add_transports(raw_transports)
        self.host = GatedHost(self.swarm)
        self.gossip = BoundedGossip()
        self.pubsub = BoundedPubsub(self.host, self.gossip, on_fault)
        self.dht = BoundedDht(self.host, namespace)


class _Doorkeeper(INotifee):
    """Greets every new peer once; the rest of the library's interface is not for us."""

    def __init__(self, parts: _Parts, door: Door | None, nursery: trio.Nursery) -> None:
        self._parts = parts
        self._door = door
        self._nursery = nursery
        self._greetings: dict[ID, trio.CancelScope] = {}

    async def connected(self, network: INetwork, conn: INetConn) -> None:
        peer_id = conn.muxed_conn.peer_id
        if peer_id not in self._greetings:
            self._greetings[peer_id] = trio.CancelScope()
            self._nursery.start_soon(self._greet, peer_id, self._greetings[peer_id])

    def gone(self, peer_id: ID) -> None:
        """Its last connection has ended."""
        scope = self._greetings.pop(peer_id, None)
        if scope is not None:
            scope.cancel()
        self._parts.pubsub.farewell(peer_id)

    async def disconnected(self, network: INetwork, conn: INetConn) -> None:
        """The swarm tells sooner, see `gone`."""

    async def _greet(self, peer_id: ID, scope: trio.CancelScope) -> None:
        admitted = False
        with scope:
            try:
                with trio.fail_after(DOOR_TIMEOUT_S):
                    admitted = self._door is None or await self._door(PeerId(str(peer_id)))
            except (NodeError, trio.BrokenResourceError, trio.TooSlowError):
                admitted = False
            if admitted:
                self._parts.swarm.admit(peer_id)
                self._parts.pubsub.welcome(peer_id)
                self._parts.dht.welcome(peer_id)
                return
            await trio.sleep(PARTING_S)
            await self._parts.swarm.close_peer(peer_id)

    async def opened_stream(self, network: INetwork, stream: INetStream) -> None:
        """Nothing of ours counts streams."""

    async def closed_stream(self, network: INetwork, stream: INetStream) -> None:
        """Nothing of ours counts streams."""

    async def listen(self, network: INetwork, multiaddr: Multiaddr) -> None:
        """`run` knows."""

    async def listen_close(self, network: INetwork, multiaddr: Multiaddr) -> None:
        """`run` knows."""


class Libp2pTransport:
    """One node's libp2p. `run` must be running before anything is dialled, opened or published."""

    def __init__(
        self,
        ed25519_seed: bytes,
        namespace: str,
        config: NetworkConfig,
        raw_transports: RawTransports | None = None,
        shortage: Shortage | None = None,
        acquaintances: Sequence[Address] = (),
    ) -> None:
        """`acquaintances`: where members were when the network was made, or have been since."""
        self._acquaintances = (*map(Address, config.bootstrap), *acquaintances)
        self._seed = ed25519_seed
        self._namespace = namespace
        self._config = config
        self._raw_transports = raw_transports
        self._shortage = shortage or Shortage()
        self._id = ID.from_pubkey(create_new_key_pair(ed25519_seed).public_key)
        self._handlers: dict[str, StreamHandler] = {}
        self._topics: dict[str, tuple[GossipFilter, GossipJudge]] = {}
        self._door: Door | None = None
        self._on_fault: OnFault = _nobody_is_told
        self._open_protocols: frozenset[str] = frozenset()
        self._is_member: IsMember | None = None
        self._record_judge: RecordJudge | None = None
        self._parts: _Parts | None = None
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. Raises UserError when an address cannot be listened on."""
        libp2p_hardening.install()
        # who is drawn can be told by nobody who lacks our key
        lots = Random(blake2b(b"turns at the door", key=self._seed).digest())
        purses = Purses(_familiar_from(self._acquaintances), lots)
        async with trio.open_nursery() as nursery:
            if self._raw_transports is not None:
                raw = self._raw_transports(nursery)
            else:
                places = _connections_max(self._config) + ARRIVING_MAX
                doorway = Doorway(places, purses, self._shortage)
                raw = [SocketTransport(nursery, self._config.websocket, doorway)]
            parts = _Parts(self._seed, self._namespace, self._config, raw, purses, self._on_fault)
            parts.host.open_protocols = self._open_protocols
            parts.swarm.is_member = self._is_member or parts.swarm.is_member
            parts.host.admission_timeout_s = DOOR_TIMEOUT_S
            Courtesies(parts.host, self.addresses).serve()
            parts.dht.records.judge = self._record_judge
            async with (
                background_trio_service(parts.swarm),
                background_trio_service(parts.pubsub),
                background_trio_service(parts.gossip),
                background_trio_service(parts.dht),
                # Whoever is greeted is told to these services: they come first and end last.
                trio.open_nursery() as greetings,
            ):
                doorkeeper = _Doorkeeper(parts, self._door, greetings)
                parts.swarm.register_notifee(doorkeeper)
                parts.swarm.on_gone = doorkeeper.gone
                for protocol, handler in self._handlers.items():
                    _serve(parts, protocol, handler)
                self._nursery, self._parts = nursery, parts
                try:
                    await _listen(parts.swarm, self._config.listen)
                    for name, (may_be_news, judge) in self._topics.items():
                        nursery.start_soon(parts.pubsub.join, name, may_be_news, judge)
                    if self._config.mdns:
                        nursery.start_soon(
                            listen_and_tell,
                            self._namespace,
                            self.addresses(),
                            lambda found: nursery.start_soon(_dial_first, self, found),
                        )
                    task_status.started()
                    await trio.sleep_forever()
                finally:
                    self._nursery = self._parts = None

    @property
    def peer_id(self) -> PeerId:
        return PeerId(str(self._id))

    def addresses(self) -> list[Address]:
        bare = list(self._config.announce) or self._listening()
        return [Address(f"{address}/p2p/{self._id}") for address in bare]

    def _listening(self) -> list[str]:
        if self._parts is None:
            return []
        bound = [
            str(address)
            for listener in self._parts.swarm.listeners.values()
            for address in listener.get_addrs()
        ]
        dialable = [told for address in bound for told in _without_wildcard(address)]
        if self._config.websocket and self._raw_transports is None:
            dialable += [address + "/ws" for address in dialable]
        return dialable

    async def dial(self, address: Address) -> PeerId:
        parts = self._running()
        try:
            maddr = Multiaddr(address)
            peer_id = ID.from_base58(maddr.value_for_protocol("p2p"))
        except (ValueError, LookupError) as error:
            raise Unavailable(f"{address!r} is no address with a peer id: {error}") from None
        try:
            with trio.fail_after(DIAL_TIMEOUT_S):
                await parts.swarm.dial_any([maddr], peer_id)
        except (SwarmException, trio.TooSlowError) as error:
            raise Unavailable(f"cannot reach {address}: {error or 'no answer'}") from None
        parts.swarm.peerstore.add_addrs(peer_id, [maddr], ADDRESS_TTL_S)
        return PeerId(str(peer_id))

    async def hang_up(self, peer_id: PeerId) -> None:
        if self._parts is not None:
            await self._parts.swarm.close_peer(ID.from_base58(peer_id))

    def connected(self) -> list[PeerId]:
        if self._parts is None:
            return []
        return list(self._parts.swarm.connected)

    def network_of(self, peer_id: PeerId) -> str:
        connections = self._running().swarm.get_connections(ID.from_base58(peer_id))
        remotes = [
            cast(YamuxSession, connection.muxed_conn).secured_conn.get_remote_address()
            for connection in connections
        ]
        return network_of(remotes[0][0] if remotes and remotes[0] is not None else None)

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        parts = self._running()
        peer = ID.from_base58(peer_id)
        if peer not in parts.swarm.connections:
            raise Unavailable(f"{peer_id} is not connected")
        try:
            with trio.fail_after(OPEN_TIMEOUT_S):
                return PeerStream(await parts.host.new_stream(peer, [TProtocol(protocol)]))
        except (BaseLibp2pError, trio.TooSlowError) as error:
            raise Unavailable(f"{peer_id} does not open {protocol}: {error}") from None

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        self._handlers[protocol] = handler
        if self._parts is not None:
            _serve(self._parts, protocol, handler)

    def guard(
        self,
        door: Door,
        open_protocols: frozenset[str],
        on_fault: OnFault,
        is_member: IsMember,
    ) -> None:
        assert self._parts is None  # a peer could have slipped in before
        self._door = door
        self._open_protocols = open_protocols
        self._on_fault = on_fault
        self._is_member = is_member

    def set_record_judge(self, judge: RecordJudge) -> None:
        self._record_judge = judge
        if self._parts is not None:
            self._parts.dht.records.judge = judge

    def join_topic(self, topic: str, may_be_news: GossipFilter, judge: GossipJudge) -> None:
        assert topic not in self._topics
        self._topics[topic] = (may_be_news, judge)
        if self._parts is not None and self._nursery is not None:
            self._nursery.start_soon(self._parts.pubsub.join, topic, may_be_news, judge)

    async def publish(self, topic: str, payload: bytes) -> None:
        # beyond a mebibyte the library drops it without a word; we stop long before, aloud
        assert len(payload) <= GOSSIP_BYTES_MAX, f"{len(payload)} bytes are no announcement"
        await self._running().pubsub.publish(topic, payload)

    async def put_record(self, key: str, payload: bytes) -> None:
        parts = self._running()
        if not parts.swarm.connections:
            raise Unavailable("no peer to store a record at")
        try:
            with trio.fail_after(DHT_TIMEOUT_S):
                await parts.dht.put(key, payload)
        except (ValueError, trio.TooSlowError) as error:
            raise Unavailable(f"record {key} was not stored: {error}") from None

    async def get_record(self, key: str) -> bytes | None:
        with trio.move_on_after(DHT_TIMEOUT_S):
            return await self._running().dht.get(key)
        return None

    async def provide(self, key: str) -> None:
        noted = False
        with trio.move_on_after(DHT_TIMEOUT_S):
            noted = await self._running().dht.provide_key(key)
        if not noted:
            raise Unavailable(f"nobody has noted that we provide {key}")

    async def find_providers(self, key: str, count_max: int) -> list[PeerId]:
        found = await self._running().dht.search_providers(key, count_max, SEARCH_TIMEOUT_S)
        return [PeerId(str(peer_id)) for peer_id in found]

    def _running(self) -> _Parts:
        if self._parts is None:
            raise Unavailable("the transport does not run")
        return self._parts


def _connections_max(config: NetworkConfig, members: int = MEMBERS_MAX) -> int:
    return CONNECTIONS_PER_PEER * (config.peers_max + members) + WAITING_MAX


def sockets_max(config: NetworkConfig, members: int) -> int:
    """How many descriptors a transport may hold in a network of so many members."""
    return _connections_max(config, members) + ARRIVING_MAX + DIALS_MAX


async def _dial_first(transport: Libp2pTransport, addresses: list[Address]) -> None:
    for address in filter(is_numeric, addresses):
        try:
            await transport.dial(address)
        except Unavailable:
            continue
        return


async def _listen(swarm: BoundedSwarm, addresses: tuple[str, ...]) -> None:
    for text in addresses:
        try:
            await swarm.listen(Multiaddr(text))
        except OSError as error:
            port = text.split("/tcp/")[-1].split("/")[0]
            raise UserError(
                f"cannot listen on {text}: {error.strerror or error}. If port {port} is taken, "
                f"stop what holds it (`ss -ltnp 'sport = :{port}'`) or set another one under "
                f"network.listen"
            ) from None


def _serve(parts: _Parts, protocol: str, handler: StreamHandler) -> None:
    async def serve(stream: INetStream) -> None:
        peer_stream = PeerStream(stream)
        served = False
        try:
            await handler(peer_stream)
            served = True
        except (NodeError, trio.BrokenResourceError, trio.TooSlowError):
            return  # of this peer, of this stream
        finally:
            if served:
                await peer_stream.aclose()
            else:
                await peer_stream.abort()

    parts.host.set_stream_handler(TProtocol(protocol), serve)


def _familiar_from(addresses: Sequence[Address]) -> Familiar:
    """A cluster that starts again amid strangers finds itself."""
    familiar = Familiar()
    for address in addresses:
        match address.split("/"):  # others wrote it: it may be no multiaddr at all
            case ["", "ip4" | "ip6", host, *_]:
                familiar.note(host)
            case _:
                pass
    return familiar


def _nobody_is_told(_peer_id: PeerId, _fault: PeerFault) -> None:
    """A transport without a guard admits everybody, and holds nothing against them."""


def _without_wildcard(address: str) -> list[str]:
    """What others can dial: nobody can dial a wildcard."""
    _, kind, host, rest = address.split("/", 3)
    return [f"/{kind}/{own}/{rest}" for own in hosts_for(kind, host)]
