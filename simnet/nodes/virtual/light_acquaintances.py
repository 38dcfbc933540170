"""Who a light transport is connected with: dialled, let in, greeted at the door, and forgotten.

dialled | knocked --names exchanged--> connected --door--> admitted --last one ends--> forgotten
                                           \\------refused, or no answer------> hung up on
"""

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio
from libp2p.transport.exceptions import OpenConnectionError

from daa_node.errors import NodeError, Unavailable
from daa_node.seams import Address, Door, PeerId
from simnet.nodes.virtual.light_connection import PEER, Connection, Exchange, Frame
from simnet.nodes.virtual.network import Host, StreamEnd

# As the libp2p transport has them.
DOOR_TIMEOUT_S = 10.0
PARTING_S = 0.2
NAMES_TIMEOUT_S = 10.0
KNOCKS_MAX = 128  # that nobody has accepted
ADDRESS = re.compile(r"/ip4/([0-9.]+)/tcp/\d+/p2p/(\w+)")

OnFrame = Callable[[Connection, Frame, trio.Nursery], Awaitable[None]]


class _Knocks:
    """The Ear of one node: what it hears is taken by a task of that node's."""

    def __init__(self, node: int) -> None:
        self.node = node
        self._in, self.waiting = trio.open_memory_channel[StreamEnd](KNOCKS_MAX)

    def knock(self, end: StreamEnd) -> None:
        try:
            self._in.send_nowait(end)
        except (trio.WouldBlock, trio.BrokenResourceError):
            end.die()

    def forget(self) -> None:
        self._in.close()


class Acquaintances:
    """One node's connections by peer; what comes over them goes to `on_frame`."""

    def __init__(self, exchange: Exchange, node: int, host: Host, me: PeerId) -> None:
        self.door: Door | None = None
        self.nursery: trio.Nursery | None = None
        self._exchange = exchange
        self._node = node
        self._host = host
        self._me = me
        self._connections: dict[PeerId, list[Connection]] = {}
        self._admissions: dict[PeerId, trio.Event] = {}
        self._greetings: dict[PeerId, trio.CancelScope] = {}
        self._dialling: dict[PeerId, trio.Lock] = {}
        self._on_frame: OnFrame = _ignore

    async def run(self, on_frame: OnFrame, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled."""
        self._on_frame = on_frame
        knocks, network = _Knocks(self._node), self._exchange.network
        network.listen(self._host, knocks)
        try:
            async with trio.open_nursery() as self.nursery:
                task_status.started()
                async for end in knocks.waiting:
                    self.nursery.start_soon(self._accept, end)
        finally:
            network.unlisten(self._host, knocks)
            for connection in [c for held in self._connections.values() for c in held]:
                connection.close()
            self.nursery = None

    def peers(self) -> list[PeerId]:
        return list(self._connections)

    async def dial(self, address: Address) -> PeerId:
        found = ADDRESS.fullmatch(address)
        if found is None:
            raise Unavailable(f"{address!r} is no address with a peer id")
        host, peer_id = Host(found[1]), PeerId(found[2])
        if peer_id == self._me:
            raise Unavailable("that is ourselves")
        async with self._dialling.setdefault(peer_id, trio.Lock()):
            if peer_id not in self._connections:
                await self._connect(host, peer_id)
        return peer_id

    async def _connect(self, host: Host, peer_id: PeerId) -> None:
        nursery = self.running()
        try:
            end = await self._exchange.network.dial(self._node, host)
        except OpenConnectionError as error:
            raise Unavailable(f"cannot reach {host}: {error}") from None
        connection = Connection(self._exchange, end)
        if await self._names(connection) and connection.peer_id == peer_id:
            self._welcome(connection, nursery)
        else:
            connection.close()
            raise Unavailable(f"{host} does not answer as {peer_id}")

    async def _accept(self, end: StreamEnd) -> None:
        connection = Connection(self._exchange, end)
        if await self._names(connection):
            self._welcome(connection, self.running())
        else:
            connection.close()

    async def _names(self, connection: Connection) -> bool:
        """Who is there: both sides say it at once."""
        with trio.move_on_after(NAMES_TIMEOUT_S):
            try:
                await connection.say(PEER, self._me)
            except trio.BrokenResourceError:
                return False
            frame = await connection.hear()
            if frame is not None and frame[0] == PEER:
                connection.peer_id = PeerId(frame[1])
                return True
        return False

    def _welcome(self, connection: Connection, nursery: trio.Nursery) -> None:
        peer_id = connection.peer_id
        self._connections.setdefault(peer_id, []).append(connection)
        self._admissions.setdefault(peer_id, trio.Event())
        nursery.start_soon(self._serve, connection)
        if peer_id not in self._greetings:
            self._greetings[peer_id] = trio.CancelScope()
            nursery.start_soon(self._greet, peer_id, self._greetings[peer_id])

    async def _serve(self, connection: Connection) -> None:
        with connection.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_keep_alive, connection)
                while (frame := await connection.hear()) is not None:
                    await self._on_frame(connection, frame, nursery)
                nursery.cancel_scope.cancel()
        connection.close()
        held = self._connections[connection.peer_id]
        held.remove(connection)
        if not held:
            self._forget(connection.peer_id)

    def _forget(self, peer_id: PeerId) -> None:
        del self._connections[peer_id], self._admissions[peer_id]
        self._greetings.pop(peer_id).cancel()

    async def _greet(self, peer_id: PeerId, scope: trio.CancelScope) -> None:
        admitted = False
        with scope:
            try:
                with trio.fail_after(DOOR_TIMEOUT_S):
                    admitted = self.door is None or await self.door(peer_id)
            except (NodeError, trio.BrokenResourceError, trio.TooSlowError):
                admitted = False
            if admitted:
                self._admissions[peer_id].set()
                return
            await trio.sleep(PARTING_S)
            await self.hang_up(peer_id)

    async def hang_up(self, peer_id: PeerId) -> None:
        for connection in list(self._connections.get(peer_id, ())):
            connection.close()
        await trio.lowlevel.checkpoint()

    def network_of(self, peer_id: PeerId) -> str:
        """Every simulated node is at an address of its own."""
        held = self._connections.get(peer_id)
        return f"node-{held[0].far_node}" if held else ""

    def admitted(self) -> list[Connection]:
        return [
            held[-1]
            for peer_id, held in self._connections.items()
            if self._admissions[peer_id].is_set() and not held[-1].is_closed
        ]

    def is_admitted(self, connection: Connection) -> bool:
        admission = self._admissions.get(connection.peer_id)
        return admission is not None and admission.is_set() and not connection.is_closed

    def to(self, peer_id: PeerId) -> Connection:
        """The newest one with the peer. Raises Unavailable."""
        held = [c for c in self._connections.get(peer_id, ()) if not c.is_closed]
        if not held:
            raise Unavailable(f"{peer_id} is not connected")
        return held[-1]

    async def admission(self, peer_id: PeerId) -> bool:
        """Both sides are admitted at different moments: a stream may come a little early."""
        admission = self._admissions.get(peer_id)
        if admission is None:
            return False
        with trio.move_on_after(DOOR_TIMEOUT_S):
            await admission.wait()
        return admission.is_set()

    def running(self) -> trio.Nursery:
        """Raises Unavailable."""
        if self.nursery is None:
            raise Unavailable("the transport does not run")
        return self.nursery


async def _ignore(_connection: Connection, _frame: Frame, _nursery: trio.Nursery) -> None:
    """Nobody listens yet."""


async def _keep_alive(connection: Connection) -> None:
    with suppress(trio.BrokenResourceError):
        await connection.keep_alive()
    connection.close()
