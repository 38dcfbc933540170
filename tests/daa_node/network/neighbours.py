"""Whole network stacks over real sockets on loopback, for the tests of what stands on them."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from daa_dag.ids import ChainId
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.errors import PeerFault
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import Role
from daa_node.network.config import NetworkConfig
from daa_node.network.directory import Directory
from daa_node.network.discovery import Discovery, OwnRecord
from daa_node.network.gossip import Gossip
from daa_node.network.hello import OPEN_PROTOCOLS, Hello, OwnStanding
from daa_node.network.requests import Requests
from daa_node.network.topics import dht_namespace
from daa_node.observability.events import EventLog
from daa_node.seams import Address, PeerId
from daa_node.wire import protocols
from daa_node.wire.protocols import OURS, Versions

CHAIN = ChainId(bytes(range(32)))
KEYS = [NodeKeys.from_seed(bytes([number]) * 32) for number in range(5)]


class WallClock:
    """Reality, `skew_s` off."""

    def __init__(self, skew_s: float = 0.0) -> None:
        self._skew_ns = int(skew_s * 1e9)

    def wall_ns(self) -> int:
        return time.time_ns() + self._skew_ns

    def set_right(self) -> None:
        self._skew_ns = 0


@dataclass
class Neighbour:
    """One node's network, without a node."""

    number: int
    members: tuple[int, ...] = ()
    port: int = 0
    chain_id: ChainId = CHAIN
    clock: WallClock = field(default_factory=WallClock)
    record_keys: NodeKeys | None = None  # another's, to lie
    peers_max: int = 64
    other_keys: NodeKeys | None = None  # in place of the number's
    delta_s: float = 0.5
    bootstrap: tuple[Address, ...] = ()
    speaks: Versions = OURS
    relay: bool = False  # for others

    def __post_init__(self) -> None:
        self.keys = self.other_keys or KEYS[self.number]
        self.events = EventLog(time.time_ns)
        listen = (f"/ip4/127.0.0.1/tcp/{self.port}",)
        config = NetworkConfig(listen=listen, websocket=False, relay=self.relay)
        namespace = dht_namespace(self.chain_id)
        self.transport = Libp2pTransport(self.keys.ed25519_seed, namespace, config)
        members = {KEYS[number].node_id: KEYS[number].peer_id for number in self.members}
        self.directory = Directory(trio.current_time, members, self.events)
        own_keys = self.record_keys or self.keys
        self.own = OwnRecord(own_keys, self.transport.addresses, Role.CLOUD, (), self.clock)
        standing = OwnStanding(self.own.current_bytes, lambda: self.number, self.speaks)
        self.hello = Hello(
            self.transport,
            self.directory,
            self.clock,
            self.events,
            self.chain_id,
            standing,
            NetworkConfig.model_construct(peers_max=self.peers_max),
        )
        self.requests = Requests(self.transport, self.directory, self.events)
        self.told_height = 0  # that enough members are said to have
        self.gossip = Gossip(
            self.transport,
            self.directory,
            self.clock,
            self.chain_id,
            lambda: self.told_height,
            self.delta_s,
        )
        self.discovery = Discovery(
            self.transport,
            self.directory,
            self.gossip,
            self.own,
            self.clock,
            self.events,
            self.bootstrap,
        )
        self.transport.guard(self.hello.door, OPEN_PROTOCOLS, self.blame, self.directory.is_member)
        self.transport.set_handler(protocols.HELLO, self.hello.serve)
        self.transport.set_handler(protocols.REQUEST, self.requests.serve)
        self.transport.set_record_judge(self.discovery.judge_record)

    def blame(self, peer_id: PeerId, fault: PeerFault) -> None:
        self.directory.blame(peer_id, fault)

    @property
    def peer_id(self) -> PeerId:
        return self.transport.peer_id

    @property
    def address(self) -> Address:
        return self.transport.addresses()[0]

    def welcomed(self, other: "Neighbour") -> bool:
        standing = self.directory.standing(other.peer_id)
        return standing is not None and standing.signed is not None

    def height_of(self, other: "Neighbour") -> int:
        """As the other said last."""
        standing = self.directory.standing(other.peer_id)
        return 0 if standing is None else standing.height

    def refusals(self) -> list[tuple[str, str, str]]:
        """(by, reason, detail) of each."""
        refused = [event for event in self.events.tail() if event["name"] == "peer_refused"]
        return [(event["by"], event["reason"], event["detail"]) for event in refused]


@asynccontextmanager
async def running(neighbour: Neighbour, gossip: bool = False) -> AsyncIterator[Neighbour]:
    async with trio.open_nursery() as nursery:
        await nursery.start(neighbour.transport.run)
        if gossip:
            await nursery.start(neighbour.gossip.run)
        yield neighbour
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    with trio.fail_after(timeout_s):
        while not condition():
            await trio.sleep(0.01)


async def heard(speaker: Neighbour, height: int, by: list[Neighbour]) -> int:
    """How often it had to say so: what is said before gossip's mesh is there goes nowhere."""
    said = 0
    with trio.fail_after(60):
        while not all(each.height_of(speaker) == height for each in by):
            await speaker.gossip.announce_head(height)
            said += 1
            with trio.move_on_after(3):
                await until(lambda: all(each.height_of(speaker) == height for each in by))
    return said
