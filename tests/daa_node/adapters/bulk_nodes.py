"""Two nodes with bulk channels on real sockets; a socket pair in place of libp2p's stream."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import trio
import trio.testing
from libp2p.io.abc import ReadWriteCloser
from multiaddr import Multiaddr

from daa_dag.ids import ChainId, NodeId
from daa_node.adapters.budgets import Budgets
from daa_node.adapters.bulk_channel import BulkChannel
from daa_node.adapters.bulk_door import BulkDoor
from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.doorbell import SocketDoorbell
from daa_node.adapters.host_names import HostNames
from daa_node.adapters.libp2p_sockets import Doorway, SocketListener
from daa_node.adapters.waiting_room import Familiar
from daa_node.errors import Unavailable
from daa_node.identity.keys import NodeKeys
from daa_node.identity.session import Initiator, Local, Remote, SessionKeys
from daa_node.seams import (
    Address,
    ByteStream,
    Door,
    FrameHandler,
    FrameStream,
    GossipFilter,
    GossipJudge,
    IsMember,
    OnFault,
    PeerId,
    RecordJudge,
    StreamHandler,
)
from daa_node.wire.framing import read_message, write_message
from daa_node.wire.protocols import BULK

CHAIN = ChainId(b"c" * 32)
LISTENING = Multiaddr("/ip4/127.0.0.1/tcp/0")
PLACES = 512


class Entropy:
    def bytes(self, size_bytes: int) -> bytes:
        return os.urandom(size_bytes)


class PairStream:
    """One end of a socket pair, as the ByteStream that libp2p would give."""

    def __init__(self, stream: trio.SocketStream, peer_id: PeerId) -> None:
        self.stream = stream
        self._peer_id = peer_id

    @property
    def peer_id(self) -> PeerId:
        return self._peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        await self.stream.send_all(payload)

    async def receive_some(self, size_bytes_max: int) -> bytes:
        return bytes(await self.stream.receive_some(size_bytes_max))

    async def aclose(self) -> None:
        await self.stream.aclose()


class World:
    """The transports of a few nodes, joined by socket pairs."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.transports: dict[PeerId, PairTransport] = {}
        self.opened: list[PairStream] = []  # as in life, what nobody closes stays open


class PairTransport:
    def __init__(self, world: World, peer_id: PeerId) -> None:
        self._world = world
        self._peer_id = peer_id
        self.handlers: dict[str, StreamHandler] = {}
        self.given_addresses: list[Address] = []
        world.transports[peer_id] = self

    @property
    def peer_id(self) -> PeerId:
        return self._peer_id

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        there = self._world.transports.get(peer_id)
        if there is None or protocol not in there.handlers:
            raise Unavailable("not connected")
        near, far = trio.socket.socketpair()
        theirs = PairStream(trio.SocketStream(far), self._peer_id)
        self._world.nursery.start_soon(there.handlers[protocol], theirs)
        ours = PairStream(trio.SocketStream(near), peer_id)
        self._world.opened.append(ours)
        return ours

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        self.handlers[protocol] = handler

    def addresses(self) -> list[Address]:
        return self.given_addresses

    async def dial(self, address: Address) -> PeerId:
        raise Unavailable("not in this world")

    async def hang_up(self, peer_id: PeerId) -> None: ...

    def keep_visitor(self, peer_id: PeerId, protocol: str) -> bool:
        return False

    def connected(self) -> list[PeerId]:
        return list(self._world.transports)

    def network_of(self, peer_id: PeerId) -> str:
        return "127.0.0.1"

    def guard(
        self,
        door: Door,
        open_protocols: frozenset[str],
        on_fault: OnFault,
        is_member: IsMember,
    ) -> None: ...

    def set_record_judge(self, judge: RecordJudge) -> None: ...

    def join_topic(self, topic: str, may_be_news: GossipFilter, judge: GossipJudge) -> None:
        raise AssertionError("these tests gossip nothing")

    async def publish(self, topic: str, payload: bytes) -> None: ...

    async def put_record(self, key: str, payload: bytes) -> None: ...

    async def get_record(self, key: str) -> bytes | None:
        return None

    async def provide(self, key: str) -> None: ...

    async def find_providers(self, key: str, count_max: int) -> list[PeerId]:
        return []


class Node:
    """A bulk channel with all that it is given, and the faults it reported."""

    def __init__(self, world: World, name: bytes, listens: bool = True) -> None:
        self.keys = NodeKeys.from_seed(name)
        self.peer_id = self.keys.peer_id
        self.known: dict[PeerId, NodeId] = {}
        self.faults: list[tuple[PeerId, str]] = []
        self.local = Local(CHAIN, self.keys)
        self.transport = PairTransport(world, self.peer_id)
        self.seen_at = "127.0.0.1"  # all others
        self.bulk = BulkChannel(
            self.local,
            self.transport,
            Entropy(),
            self.known.get,
            lambda peer_id, fault: self.faults.append((peer_id, fault.reason)),
            lambda _peer_id: self.seen_at,
            BulkDoor() if listens else None,
        )
        budgets = Budgets(Familiar(), Random(1))
        outside = HostNames(), SocketDoorbell(), self.bulk._door or BulkDoor()
        self.doorway = Doorway(PLACES, budgets, Shortage(), *outside)
        self.members: set[PeerId] = set()
        self.bulk.set_handler(echo, self.members.__contains__)

    @property
    def port(self) -> int:
        """That which it names to others."""
        return int(self.transport.given_addresses[0].split("/")[4])

    @port.setter
    def port(self, port: int) -> None:
        self.transport.given_addresses = [Address(f"/ip4/127.0.0.1/tcp/{port}/p2p/{self.peer_id}")]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Its channel, and the listener that it shares with libp2p."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.bulk.run)
            if self.bulk._door is not None:
                listener = SocketListener(_hang_up, False, self.doorway)
                listener.background_nursery = nursery
                await listener.listen(LISTENING)
                self.port = int(str(listener.get_addrs()[0]).split("/")[4])
            task_status.started()


async def _hang_up(stream: ReadWriteCloser) -> None:
    """No libp2p is here."""
    await stream.close()


async def echo(stream: FrameStream) -> None:
    while (frame := await stream.receive_frame()) is not None:
        await stream.send_frame(frame)


@asynccontextmanager
async def nodes(
    bob_listens: bool = True, handler: FrameHandler = echo
) -> AsyncIterator[tuple[Node, Node]]:
    """Alice, who cannot be dialled, and Bob; they know each other."""
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        alice, bob = Node(world, b"alice", False), Node(world, b"bob", bob_listens)
        alice.known[bob.peer_id] = bob.keys.node_id
        bob.known[alice.peer_id] = alice.keys.node_id
        bob.bulk.set_handler(handler, bob.members.__contains__)
        await nursery.start(alice.run)
        await nursery.start(bob.run)
        yield alice, bob
        nursery.cancel_scope.cancel()


async def handshake(alice: Node, bob: Node) -> tuple[ByteStream, SessionKeys]:
    """Shake hands by hand, so that a test can misbehave afterwards."""
    control = await alice.transport.open_stream(bob.peer_id, BULK)
    machine = Initiator(alice.local, Remote(bob.keys.node_id, bob.peer_id), os.urandom(32))
    await write_message(control, machine.opening())
    await write_message(control, machine.on_answer(await read_message(control, 8192)))
    return control, machine.on_ready(await read_message(control, 8192))


async def until(true: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not true():
            await trio.sleep(0.005)
