"""A wire in memory: streams between members that can be cut, slowed, and robbed of messages."""

from collections import deque
from collections.abc import Callable

import trio

from daa_consensus.bft.limits import Limits
from daa_dag.ids import NodeId
from daa_node.agreement.messages import Message, decode_message
from daa_node.errors import NodeError, PeerFault, Unavailable
from daa_node.identity.keys import NodeKeys
from daa_node.seams import ByteStream, PeerId, StreamHandler


class Wire:
    """Who hears whom. Everything is by node; a message is lost by what `lose` says of it."""

    def __init__(self) -> None:
        self.down: set[NodeId] = set()
        self.full: set[NodeId] = set()  # they take nothing more: who writes to them waits
        self.delay_s: dict[NodeId, float] = {}  # of all that the node sends
        self.lose: Callable[[NodeId, NodeId, Message], bool] = lambda *_: False
        self.transports: dict[PeerId, MemoryTransport] = {}
        self.node_of: dict[PeerId, NodeId] = {}
        self.limits = Limits(0, 0)

    def reaches(self, sender: NodeId, receiver: NodeId) -> bool:
        return not {sender, receiver} & self.down


class MemoryStream:
    """One way, in order; what `Wire.lose` takes away is never seen."""

    def __init__(self, wire: Wire, sender: NodeId, receiver: NodeId, peer_id: PeerId) -> None:
        self._wire, self._sender, self._receiver = wire, sender, receiver
        self.peer_id = peer_id  # of the other end, as whoever holds the stream sees it
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._more = trio.lowlevel.ParkingLot()
        self.closed = False

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self.closed or not self._wire.reaches(self._sender, self._receiver):
            raise trio.BrokenResourceError
        while self._receiver in self._wire.full:
            await trio.sleep(0.1)
        try:
            message = decode_message(bytes(payload[4:]), self._wire.limits)
        except PeerFault:
            message = None
        if message is not None and self._wire.lose(self._sender, self._receiver, message):
            return
        due_s = trio.current_time() + self._wire.delay_s.get(self._sender, 0.0)
        self._under_way.append((due_s, bytes(payload)))
        self._more.unpark_all()

    async def receive_some(self, size_bytes_max: int) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._under_way:
            if self.closed:
                return b""
            await self._more.park()
        await trio.sleep_until(self._under_way[0][0])
        due_s, payload = self._under_way.popleft()
        if len(payload) > size_bytes_max:
            self._under_way.appendleft((due_s, payload[size_bytes_max:]))
        return payload[:size_bytes_max]

    async def aclose(self) -> None:
        self.cut()

    def cut(self) -> None:
        self.closed = True
        self._more.unpark_all()


class MemoryTransport:
    """As much of a Transport as a mailbox uses; handlers' mistakes end their stream, as in life."""

    def __init__(self, wire: Wire, keys: NodeKeys, nursery: trio.Nursery) -> None:
        self._wire, self._keys, self._nursery = wire, keys, nursery
        self.peer_id = keys.peer_id
        self.handlers: dict[str, StreamHandler] = {}
        self._streams: list[MemoryStream] = []
        self._serving: set[trio.CancelScope] = set()
        wire.transports[keys.peer_id] = self
        wire.node_of[keys.peer_id] = keys.node_id

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        self.handlers[protocol] = handler

    def connected(self) -> list[PeerId]:
        wire, me = self._wire, self._keys.node_id
        return [p for p, n in wire.node_of.items() if p != self.peer_id and wire.reaches(me, n)]

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        await trio.lowlevel.checkpoint()
        them, receiver = self._wire.transports[peer_id], self._wire.node_of[peer_id]
        me = self._keys.node_id
        if not self._wire.reaches(me, receiver) or protocol not in them.handlers:
            raise Unavailable("not connected")
        stream = MemoryStream(self._wire, me, receiver, self.peer_id)
        for end in (self, them):
            end._streams = [s for s in end._streams if not s.closed] + [stream]
        them._nursery.start_soon(them._serve, stream, them.handlers[protocol])
        return stream

    def end(self) -> None:
        """As when the process dies: every stream breaks."""
        self.handlers.clear()
        self.cut()

    def cut(self) -> None:
        """Every stream breaks."""
        for scope in self._serving:
            scope.cancel()
        for stream in self._streams:
            stream.cut()

    async def _serve(self, stream: MemoryStream, handler: StreamHandler) -> None:
        scope = trio.CancelScope()
        self._serving.add(scope)
        try:
            with scope:
                await handler(stream)
        except (NodeError, trio.BrokenResourceError, trio.TooSlowError):
            pass
        finally:
            self._serving.discard(scope)
            stream.cut()
