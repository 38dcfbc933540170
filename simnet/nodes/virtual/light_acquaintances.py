"""Who a light transport is connected with: dialled, let in, greeted at the door, and forgotten.

dialled | knocked --names exchanged--> connected --door--> admitted --last one ends--> forgotten
                                           \\------refused, or no answer------> hung up on
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio
from libp2p.transport.exceptions import OpenConnectionError

from daa_node.errors import NodeError, Unavailable
from daa_node.prompt_lock import PromptLock
from daa_node.seams import Address, Door, PeerId
from simnet.nodes.virtual.light_connection import Connection, OnFrame, Word
from simnet.nodes.virtual.network import Host, Network, StreamEnd

# As the libp2p transport has them.
DOOR_TIMEOUT_S = NAMES_TIMEOUT_S = 10.0
PARTING_S = 0.2
KEEPALIVE_S = 15.0  # as our yamux has it
SILENT_S_MAX = 35.0  # two keepalives and a little: then the peer is gone
UNTAKEN_MAX = 4096  # frames for a stopped node: its peers give it up before
ADDRESS = re.compile(r"/ip4/([0-9.]+)/tcp/\d+(?:/p2p/(\w+))?")


@dataclass(slots=True, eq=False)
class Peer:
    """Somebody whom we are connected with."""

    connections: list[Connection] = field(default_factory=list)  # the newest is the last
    admission: trio.Event = field(default_factory=trio.Event)
    greeting: trio.CancelScope = field(default_factory=trio.CancelScope)
    visits: str | None = None  # the one protocol of a visitor


class Acquaintances:
    """One node's peers by name; what they say goes to `on_frame`, in a task of the node's own."""

    def __init__(
        self, network: Network, node: int, host: Host, me: PeerId, on_frame: OnFrame
    ) -> None:
        self.node = node
        self.door: Door | None = None
        self.nursery: trio.Nursery | None = None
        self.peers: dict[PeerId, Peer] = {}
        self._network = network
        self._host = host
        self._me = me
        self._on_frame = on_frame
        # What others' frames ask for; a node that is stopped does nothing of it.
        self._asked, self._acts = trio.open_memory_channel[Callable[[], None]](UNTAKEN_MAX)
        self._connections: dict[Connection, None] = {}  # whoever is at the other end
        self._dialling: dict[PeerId, PromptLock] = {}

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled."""
        self._network.listen(self._host, self)
        try:
            async with trio.open_nursery() as self.nursery:
                self.nursery.start_soon(self._keep_alive)
                task_status.started()
                async for act in self._acts:
                    act()
        finally:
            self.forget()
            for connection in list(self._connections):
                connection.close()
            self.nursery = None

    def running(self) -> trio.Nursery:
        """Raises Unavailable."""
        if self.nursery is None:
            raise Unavailable("the transport does not run")
        return self.nursery

    async def dial(self, address: Address) -> PeerId:
        found = ADDRESS.fullmatch(address)
        if found is None:
            raise Unavailable(f"{address!r} is no address of a peer")
        host = Host(found[1])
        if found[2] is None:
            return self._me if host == self._host else await self._connect(host, None)
        peer_id = PeerId(found[2])
        if peer_id == self._me:
            raise Unavailable("that is ourselves")
        async with self._dialling.setdefault(peer_id, PromptLock()):
            if peer_id not in self.peers:
                await self._connect(host, peer_id)
        return peer_id

    async def _connect(self, host: Host, peer_id: PeerId | None) -> PeerId:
        """None: whoever is there."""
        self.running()
        try:
            end = await self._network.dial(self.node, host)
        except OpenConnectionError as error:
            raise Unavailable(f"cannot reach {host}: {error}") from None
        connection = self._begin(end)
        connection.say(Word.PEER, self._me)
        try:
            with trio.move_on_after(NAMES_TIMEOUT_S):
                await connection.named.wait()
        finally:
            if not connection.named.is_set() or peer_id not in (None, connection.peer_id):
                connection.close()
        if connection.is_closed:
            raise Unavailable(f"{host} does not answer as {peer_id or 'anybody'}")
        return connection.peer_id

    def knock(self, end: StreamEnd) -> None:
        """Somebody dials us."""
        connection = self._begin(end)
        self._ask(connection, partial(connection.say, Word.PEER, self._me))

    def forget(self) -> None:
        """Nobody can dial us any more."""
        self._network.unlisten(self._host, self)

    def _begin(self, end: StreamEnd) -> Connection:
        connection = Connection(end, self._hear, self._on_close)
        self._connections[connection] = None
        return connection

    def _hear(self, connection: Connection, word: Word, words: tuple[Any, ...], thing: Any) -> None:
        if word is Word.PEER:
            self._ask(connection, partial(self._welcome, connection, *words))
        elif word is not Word.ALIVE:
            self._ask(connection, partial(self._on_frame, connection, word, words, thing))

    def _ask(self, connection: Connection, act: Callable[[], None]) -> None:
        """Have the node's own task do it."""

        def unless_closed() -> None:
            if not connection.is_closed:
                act()

        try:
            self._asked.send_nowait(unless_closed)
        except trio.WouldBlock:
            connection.close()

    def _welcome(self, connection: Connection, peer_id: PeerId) -> None:
        peer = self.peers.get(peer_id)
        if peer is None:
            peer = self.peers[peer_id] = Peer()
            self.running().start_soon(self._greet, peer_id, peer)
        peer.connections.append(connection)
        connection.peer_id = peer_id
        connection.named.set()

    def _on_close(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        peer = self.peers.get(connection.peer_id)
        if peer is not None:
            peer.connections.remove(connection)
            if not peer.connections:
                del self.peers[connection.peer_id]
                peer.greeting.cancel()

    async def _keep_alive(self) -> None:
        while True:
            await trio.sleep(KEEPALIVE_S)
            for connection in list(self._connections):
                if trio.current_time() - connection.heard_s > SILENT_S_MAX:
                    connection.close()
                else:
                    connection.say(Word.ALIVE)

    async def _greet(self, peer_id: PeerId, peer: Peer) -> None:
        admitted = False
        with peer.greeting:
            try:
                with trio.fail_after(DOOR_TIMEOUT_S):
                    admitted = self.door is None or await self.door(peer_id)
            except (NodeError, trio.BrokenResourceError, trio.TooSlowError):
                admitted = False
            if admitted:
                peer.admission.set()
                return
            await trio.sleep(PARTING_S)
            await self.hang_up(peer_id)

    def keep(self, peer_id: PeerId, protocol: str) -> bool:
        """As a visitor, for this protocol alone; see Transport."""
        peer = self.peers.get(peer_id)
        if peer is None or peer.visits is not None or peer.admission.is_set():
            return False
        peer.visits = protocol
        peer.greeting.cancel()
        return True

    async def hang_up(self, peer_id: PeerId) -> None:
        if peer_id in self.peers:
            for connection in list(self.peers[peer_id].connections):
                connection.close()
        await trio.lowlevel.checkpoint()

    def network_of(self, peer_id: PeerId) -> str:
        """Every simulated node is at an address of its own."""
        peer = self.peers.get(peer_id)
        return "" if peer is None else f"node-{peer.connections[0].route[1]}"

    def admitted(self) -> list[Connection]:
        return [p.connections[-1] for p in self.peers.values() if p.admission.is_set()]

    async def admission(self, peer_id: PeerId) -> bool:
        """Both sides are admitted at different moments: a stream may come a little early."""
        peer = self.peers.get(peer_id)
        if peer is None:
            return False
        if not peer.admission.is_set() and peer.visits is None:
            with trio.move_on_after(DOOR_TIMEOUT_S):
                await peer.admission.wait()
        return peer.admission.is_set()
