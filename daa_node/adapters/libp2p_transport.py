"""The Transport seam over py-libp2p: TCP and WebSocket, noise, yamux, gossipsub, Kademlia.

    connected --door--> admitted --last connection ends--> forgotten
        |\\-----refused, or no answer in DOOR_TIMEOUT_S------> hung up on
        kept as a visitor --last connection ends--> forgotten

A simulation passes its own raw transports; everything above the bytes is the same code.
"""

import errno
import socket
from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random

import trio
from libp2p.abc import ITransport
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

from daa_node.adapters import libp2p_hardening
from daa_node.adapters.budgets import Budgets
from daa_node.adapters.bulk_door import BulkDoor
from daa_node.adapters.bulk_places import SESSIONS_MAX
from daa_node.adapters.certificate import Certificate
from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.doorbell import SocketDoorbell
from daa_node.adapters.hole_punches import HolePunches
from daa_node.adapters.host_names import HostNames
from daa_node.adapters.libp2p_circuits import RelayedConnections
from daa_node.adapters.libp2p_courtesy import Courtesies
from daa_node.adapters.libp2p_mdns import listen_and_tell
from daa_node.adapters.libp2p_parts import (
    DOOR_TIMEOUT_S,
    Doorkeeper,
    Parts,
    connections_max,
)
from daa_node.adapters.libp2p_paths import ConnectionPaths
from daa_node.adapters.libp2p_peer_stream import PeerStream, serving
from daa_node.adapters.libp2p_sockets import (
    ARRIVING_MAX,
    DialledEnds,
    Doorway,
    SocketTransport,
)
from daa_node.adapters.libp2p_swarm import BoundedSwarm
from daa_node.adapters.mishaps import Mishaps
from daa_node.adapters.waiting_room import Familiar, network_of
from daa_node.errors import PeerFault, Unavailable, UserError
from daa_node.network.addresses import is_numeric
from daa_node.network.carried import Carried
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

DIAL_TIMEOUT_S = 20.0
OPEN_TIMEOUT_S = 10.0
DHT_TIMEOUT_S = 30.0
SEARCH_TIMEOUT_S = 5.0  # whoever searches for providers has peers that wait for it
DIALS_MAX = 32  # sockets on their way to a connection: a few peers, some addresses each
ADDRESS_TTL_S = 3600
NAME_RETRY_S = 1.0  # of one that we listen on and that does not resolve
NAME_WAIT_S = 60.0  # for it, at the start: a network that comes up takes half of that

RawTransports = Callable[[trio.Nursery], list[ITransport]]


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
        mishaps: Mishaps | None = None,
    ) -> None:
        """`acquaintances`: where members were when the network was made, or have been since."""
        self._acquaintances = (*map(Address, config.bootstrap), *acquaintances)
        self._seed = ed25519_seed
        self._namespace = namespace
        self._config = config
        self._raw_transports = raw_transports
        self._shortage = shortage or Shortage()
        self._mishaps = mishaps or Mishaps()
        self.doorbell = SocketDoorbell()
        self.bulk_door = BulkDoor(lambda: self.doorbell.is_dialable)
        self.circuits = RelayedConnections()
        self.paths = ConnectionPaths()
        self.carried = Carried()
        self.punches = HolePunches(self.circuits)
        # with one, set before `run`, WebSockets may also come over TLS, on the same port
        self.certificate: Certificate | None = None
        self.names = HostNames()  # set before `run` by whoever wants to hear of those unknown
        self._id = ID.from_pubkey(create_new_key_pair(ed25519_seed).public_key)
        self._handlers: dict[str, StreamHandler] = {}
        self._topics: dict[str, tuple[GossipFilter, GossipJudge]] = {}
        self._door: Door | None = None
        self._on_fault: OnFault = _nobody_is_told
        self._open_protocols: frozenset[str] = frozenset()
        self._is_member: IsMember | None = None
        self._record_judge: RecordJudge | None = None
        self._parts: Parts | None = None
        self._doorkeeper: Doorkeeper | None = None
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. Raises UserError when an address cannot be listened on."""
        libp2p_hardening.install()
        # who is drawn can be told by nobody who lacks our key
        lots = Random(blake2b(b"turns at the door", key=self._seed).digest())
        budgets = Budgets(_familiar_from(self._acquaintances), lots)
        ends = DialledEnds()
        async with trio.open_nursery() as nursery:
            websockets = None
            if self._raw_transports is not None:
                raw = self._raw_transports(nursery)
            else:
                places = connections_max(self._config) + ARRIVING_MAX + SESSIONS_MAX
                doorway = Doorway(
                    *(places, budgets, self._shortage, self.names, self.doorbell),
                    *(self.bulk_door, self.certificate),
                )
                websockets = doorway.websockets
                raw = [SocketTransport(nursery, self._config.websocket, doorway, ends)]
            parts = Parts(
                self._seed,
                self._namespace,
                self._config,
                raw,
                budgets,
                self._on_fault,
                self._mishaps,
            )
            parts.upgrader.carried = self.carried
            parts.host.open_protocols = self._open_protocols
            parts.swarm.is_member = self._is_member or parts.swarm.is_member
            parts.host.admission_timeout_s = DOOR_TIMEOUT_S
            Courtesies(parts.host, self.addresses).serve()
            self.paths.serve(parts.swarm, websockets)
            self.circuits.serve(parts.host, self._on_fault, self._config.relay)
            self.punches.serve(parts.host, ends.own, self._on_fault, parts.swarm.is_member)
            parts.dht.records.judge = self._record_judge
            async with (
                background_trio_service(parts.swarm),
                background_trio_service(parts.pubsub),
                background_trio_service(parts.gossip),
                background_trio_service(parts.dht),
                # Whoever is greeted is told to these services: they come first and end last.
                trio.open_nursery() as greetings,
            ):
                doorkeeper = Doorkeeper(parts, self._door, greetings)
                parts.swarm.register_notifee(doorkeeper)
                parts.swarm.on_gone = doorkeeper.gone
                self._doorkeeper = doorkeeper
                for protocol, handler in self._handlers.items():
                    parts.host.set_stream_handler(TProtocol(protocol), serving(handler))
                self._nursery, self._parts = nursery, parts
                self.doorbell.swarm = parts.swarm
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
                    self._nursery = self._parts = self._doorkeeper = self.doorbell.swarm = None

    @property
    def peer_id(self) -> PeerId:
        return PeerId(str(self._id))

    def addresses(self) -> list[Address]:
        bare = list(self._config.announce)
        if not bare and self._parts is not None:
            bare = self._parts.listening()
            if self.doorbell.outside is not None:
                bare.insert(0, self.doorbell.outside)
            if self._config.websocket and self._raw_transports is None:
                bare += [address + "/ws" for address in bare]
        return [Address(f"{address}/p2p/{self._id}") for address in bare]

    async def dial(self, address: Address) -> PeerId:
        parts = self._running()
        try:
            maddr = Multiaddr(address)
            named = [value for protocol, value in maddr.items() if protocol.name == "p2p"]
            peer_id = ID.from_base58(named[-1]) if named else None
        except (ValueError, LookupError) as error:
            raise Unavailable(f"{address!r} is no address of a peer: {error}") from None
        try:
            with trio.fail_after(DIAL_TIMEOUT_S):
                if peer_id is None:
                    peer_id = await parts.swarm.who_is_at(maddr)
                    if peer_id == self._id:
                        return self.peer_id
                await parts.swarm.dial_any([maddr], peer_id)
        except (SwarmException, trio.TooSlowError) as error:
            raise Unavailable(f"cannot reach {address}: {error or 'no answer'}") from None
        parts.swarm.peerstore.add_addrs(peer_id, [maddr], ADDRESS_TTL_S)
        return PeerId(str(peer_id))

    async def hang_up(self, peer_id: PeerId) -> None:
        if self._parts is not None:
            await self._parts.swarm.close_peer(ID.from_base58(peer_id))

    def keep_visitor(self, peer_id: PeerId, protocol: str) -> bool:
        peer = ID.from_base58(peer_id)
        if self._parts is None or not self._parts.swarm.keep(peer, protocol):
            return False
        if self._doorkeeper is not None:
            self._doorkeeper.leave_be(peer)
        return True

    def connected(self) -> list[PeerId]:
        if self._parts is None:
            return []
        return list(self._parts.swarm.connected)

    def network_of(self, peer_id: PeerId) -> str:
        return network_of(self._running().swarm.host_of(ID.from_base58(peer_id)))

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
            self._parts.host.set_stream_handler(TProtocol(protocol), serving(handler))

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

    def _running(self) -> Parts:
        if self._parts is None:
            raise Unavailable("the transport does not run")
        return self._parts


def sockets_max(config: NetworkConfig, members: int) -> int:
    """How many descriptors a transport may hold in a network of so many members, without bulk."""
    return connections_max(config, members) + ARRIVING_MAX + DIALS_MAX


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
            await _listen_once_it_resolves(swarm, Multiaddr(text))
        except ValueError as error:
            raise UserError(f"cannot listen on {text}: {error}") from None
        except OSError as error:
            raise cannot_listen(text, error) from None


def cannot_listen(text: str, error: OSError) -> UserError:
    """What is said of an address under network.listen that cannot be had, and what to do.

    A port that is taken, and an address of an interface that is down, may be had later: whoever
    supervises this node is to start it again. A right that is lacking stays so.
    """
    port = text.split("/tcp/")[-1].split("/")[0]
    told = f"cannot listen on {text}: {error.strerror or error}. {_remedy(error, port)}"
    return UserError(told, exit_code=2 if isinstance(error, PermissionError) else 1)


async def _listen_once_it_resolves(swarm: BoundedSwarm, maddr: Multiaddr) -> None:
    """A host may start before its resolver does."""
    started_s = trio.current_time()
    while True:
        try:
            await swarm.listen(maddr)
            return
        except socket.gaierror:
            if trio.current_time() - started_s > NAME_WAIT_S:
                raise
        await trio.sleep(NAME_RETRY_S)


def _remedy(error: OSError, port: str) -> str:
    if isinstance(error, socket.gaierror):
        return "Mend the name, or give an address of this host under network.listen"
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"It is of another host, or of a router: listen on 0.0.0.0:{port}, and tell others "
            "this one under network.announce"
        )
    return (
        f"If port {port} is taken, stop what holds it (`ss -ltnp 'sport = :{port}'`) or set "
        "another one under network.listen"
    )


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
