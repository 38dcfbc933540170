"""The library's objects of one running transport, and who greets the peers that come."""

import trio
from libp2p.abc import INetConn, INetStream, INetwork, INotifee, ITransport
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE_ID
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX_ID
from libp2p.stream_muxer.yamux.yamux import Yamux
from multiaddr import Multiaddr

from daa_consensus.committee import VALIDATORS_MAX
from daa_node.adapters.budgets import Budgets
from daa_node.adapters.libp2p_dht import BoundedDht
from daa_node.adapters.libp2p_host import GatedHost
from daa_node.adapters.libp2p_pubsub import BoundedGossip, BoundedPubsub
from daa_node.adapters.libp2p_swarm import CONNECTIONS_PER_PEER, WAITING_MAX, BoundedSwarm
from daa_node.adapters.libp2p_upgrade import PaidNoise, Upgrader
from daa_node.adapters.mishaps import Mishaps
from daa_node.adapters.own_addresses import hosts_for
from daa_node.errors import NodeError
from daa_node.network.config import NetworkConfig
from daa_node.seams import Door, OnFault, PeerId

DOOR_TIMEOUT_S = 10.0  # a hello is two messages of 7 kB and two signatures
PARTING_S = 0.2  # closing at once would throw away the reason that was just sent
# Of one committee and the next, of which less than a third is other: they always find a place.
MEMBERS_MAX = VALIDATORS_MAX + VALIDATORS_MAX // 3


class Parts:
    """The library's objects of one running transport."""

    def __init__(
        self,
        ed25519_seed: bytes,
        namespace: str,
        config: NetworkConfig,
        raw_transports: list[ITransport],
        budgets: Budgets,
        on_fault: OnFault,
        mishaps: Mishaps,
    ) -> None:
        key_pair = create_new_key_pair(ed25519_seed)
        noise = PaidNoise(key_pair)
        self.upgrader = Upgrader({TProtocol(NOISE_ID): noise}, {TProtocol(YAMUX_ID): Yamux})
        self.swarm = BoundedSwarm(
            ID.from_pubkey(key_pair.public_key),
            self.upgrader,
            connections_max(config),
            config.deny,
            budgets,
        )
        self.swarm.peerstore.add_key_pair(self.swarm.self_id, key_pair)
        self.swarm.transport_manager.add_transports(raw_transports)
        self.host = GatedHost(self.swarm)
        self.gossip = BoundedGossip(mishaps)
        self.pubsub = BoundedPubsub(self.host, self.gossip, on_fault, mishaps)
        self.dht = BoundedDht(self.host, namespace, mishaps)

    def listening(self) -> list[str]:
        """Where others can dial us, as far as our sockets tell."""
        bound = [
            str(address)
            for listener in self.swarm.listeners.values()
            for address in listener.get_addrs()
        ]
        return [told for address in bound for told in _without_wildcard(address)]


class Doorkeeper(INotifee):
    """Greets every new peer once; the rest of the library's interface is not for us."""

    def __init__(self, parts: Parts, door: Door | None, nursery: trio.Nursery) -> None:
        self._parts = parts
        self._door = door
        self._nursery = nursery
        self._greetings: dict[ID, trio.CancelScope] = {}

    async def connected(self, network: INetwork, conn: INetConn) -> None:
        peer_id = conn.muxed_conn.peer_id
        if peer_id not in self._greetings:
            self._greetings[peer_id] = trio.CancelScope()
            self._nursery.start_soon(self._greet, peer_id, self._greetings[peer_id])

    def leave_be(self, peer_id: ID) -> None:
        """It is a visitor: no greeting of it comes to anything."""
        if peer_id in self._greetings:
            self._greetings[peer_id].cancel()

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


def connections_max(config: NetworkConfig, members: int = MEMBERS_MAX) -> int:
    return CONNECTIONS_PER_PEER * (config.peers_max + members) + WAITING_MAX


def _without_wildcard(address: str) -> list[str]:
    """What others can dial: nobody can dial a wildcard."""
    _, kind, host, rest = address.split("/", 3)
    return [f"/{kind}/{own}/{rest}" for own in hosts_for(kind, host)]
