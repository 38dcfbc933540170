"""The bytes between nodes: reliable ordered streams over simulated links, and what cuts them.

One stream behaves as TCP does to a program: a write waits while a window of bytes is on its way or
unread, bytes arrive in order after the link's time, a loss costs a round trip. Links are shared by
all streams of a pair, access links by all streams of a node.

    open --write--> on its way --link's time--> readable
      |  a route out of order: other streams overtake it, each in its own order
      |  a partition: what is written waits; after UNACKNOWLEDGED_S_MAX the writer's end breaks
      |  a killed node: its ends vanish, and the others learn of it when the link tells them
      +--close--> the other end reads to the end, then b""
"""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NewType, Protocol

import trio
from libp2p.abc import IListener, IRawConnection, ITransport
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.transport.exceptions import OpenConnectionError
from multiaddr import Multiaddr

from simnet.nodes.virtual.scheduling import at, now_ns
from simnet.world.determinism import Streams, Trace
from simnet.world.fault_marks import HELD_UP
from simnet.world.links import NS, Link, LinkModel

Host = NewType("Host", str)  # an IPv4 address in text
Route = tuple[int, int]  # (sender, receiver)
Handler = Callable[[ReadWriteCloser], Awaitable[None]]

PORT = 4001
OVERTAKEN_S_MAX = 0.5  # of a stream on a route that is out of order: a delta or two
WINDOW_BYTES = 1 << 20  # on the way or unread; Linux grows to a few MiB
UNACKNOWLEDGED_S_MAX = 30  # TCP_USER_TIMEOUT of our own sockets
DIAL_S_MAX = 10.0  # what our own sockets wait for
BACKLOG = 128  # connections that nobody has accepted
# What arrives within a tick arrives at its end: a hundred nodes are woken together, not one after
# another by a clock that is asked in between.
TICK_NS = 100_000
NOISE = b"\x07/noise\n"  # the last that is said before everything is sealed, by itself
HEADER_BYTES = 52  # IP and TCP, once a write: what small messages really cost a link


class Ear(Protocol):
    """What hears of a connection to a node's host."""

    node: int

    def knock(self, end: "StreamEnd") -> None: ...

    def forget(self) -> None:
        """Its node is no more."""


def host_of(node: int, body: int = 0) -> Host:
    """Where `node` is; `body` tells the machines apart that a liar has at one place."""
    return Host(f"{10 + body}.{node >> 16}.{node >> 8 & 255}.{node & 255}")


class Ways:
    """The links of a run, made when they are first used; access links come before and behind."""

    def __init__(
        self,
        link_model: Callable[[int, int], LinkModel],
        access: Callable[[int], tuple[LinkModel | None, LinkModel | None]],
        streams: Streams,
    ) -> None:
        """`access`: a node's own uplink and downlink, where it has narrow ones."""
        self._link_model = link_model
        self._access = access
        self.streams = streams.below("links")
        self._links: dict[Route, Link] = {}
        self._ways: dict[Route, tuple[Link, ...]] = {}
        self._access_links: dict[tuple[int, str], Link] = {}

    def link(self, route: Route) -> Link:
        """The link itself; faults change its `model`."""
        if route not in self._links:
            chance = self.streams.random(f"{route[0]} to {route[1]}")
            self._links[route] = Link(self._link_model(*route), chance)
        return self._links[route]

    def _way(self, route: Route) -> tuple[Link, ...]:
        up, down = self._access(route[0])[0], self._access(route[1])[1]
        links = [self._access_link(route[0], "up", up), self.link(route)]
        links.append(self._access_link(route[1], "down", down))
        way = self._ways[route] = tuple(link for link in links if link is not None)
        return way

    def _access_link(self, node: int, direction: str, model: LinkModel | None) -> Link | None:
        if model is None:
            return None
        name = (node, direction)
        if name not in self._access_links:
            chance = self.streams.random(f"access {node} {direction}")
            self._access_links[name] = Link(model, chance)
        return self._access_links[name]

    def arrival_ns(self, route: Route, size_bytes: int) -> int:
        """When bytes that are written now are readable at the other end, in whole ticks."""
        at_ns = now_ns()
        for link in self._ways.get(route) or self._way(route):
            at_ns = link.stream_arrival_ns(at_ns, size_bytes)
        return -(-at_ns // TICK_NS) * TICK_NS


class Network:
    """All streams of a run."""

    def __init__(self, ways: Ways, trace: Trace) -> None:
        self.ways = ways
        self.trace = trace
        self._listeners: dict[Host, Ear] = {}
        self._blocked: defaultdict[Route, int] = defaultdict(int)
        self._stalled: dict[Route, list[Callable[[], object]]] = {}  # what carries it then
        self._freed = trio.Event()
        self._ends: dict[int, dict[StreamEnd, None]] = {}  # of each node, oldest first
        self.overtaking: dict[Route, list[float]] = {}  # percents of what streams carry
        self._chance = ways.streams.random("overtaking")
        self._latest_ns: dict[Route, int] = {}  # the latest arrival of what has been sent
        self.on_change: Callable[[], None] = _nothing  # who reaches whom is another matter
        self.befallen: Counter[str] = Counter()
        self.bytes_sent: Counter[Route] = Counter()
        self.unread_bytes_max = 0

    # Faults

    def block(self, route: Route) -> None:
        self._blocked[route] += 1
        self.on_change()

    def unblock(self, route: Route) -> None:
        """What has waited is sent now."""
        self._blocked[route] -= 1
        if self._blocked[route]:
            return
        for carry in self._stalled.pop(route, []):
            carry()
        self._freed.set()
        self._freed = trio.Event()
        self.on_change()

    def is_blocked(self, route: Route) -> bool:
        return self._blocked[route] > 0

    async def until_free(self, route: Route) -> None:
        while self._blocked[route]:
            await self._freed.wait()

    def cut(self, node: int) -> None:
        """The node is gone: nothing more leaves it, and its peers are told."""
        for end in list(self._ends.get(node, {})):
            end.die()
        for listener in list(self._listeners.values()):
            if listener.node == node:
                listener.forget()

    # Streams

    async def dial(self, node: int, host: Host) -> "StreamEnd":
        """Three packets of a handshake. Raises OpenConnectionError."""
        with trio.move_on_after(DIAL_S_MAX):
            return await self._connect(node, host)
        raise OpenConnectionError(f"{host}: no answer within {DIAL_S_MAX:.0f} s")

    async def _connect(self, node: int, host: Host) -> "StreamEnd":
        listener = self._listeners.get(host)
        target = _node_at(host) if listener is None else listener.node
        for route in ((node, target), (target, node)):
            await self.until_free(route)
            await trio.sleep((self.ways.arrival_ns(route, HEADER_BYTES) - now_ns()) / NS)
        listener = self._listeners.get(host)
        if listener is None:
            raise OpenConnectionError(f"nobody listens on {host}")
        here, there = self.pair(node, target)
        listener.knock(there)
        return here

    def pair(self, node: int, peer: int) -> tuple["StreamEnd", "StreamEnd"]:
        """Both ends of a new stream, that of `node` first."""
        here, there = StreamEnd(self, node, peer), StreamEnd(self, peer, node)
        here.peer_end, there.peer_end = there, here
        return here, there

    def enter(self, end: "StreamEnd") -> None:
        self._ends.setdefault(end.node, {})[end] = None

    def leave(self, end: "StreamEnd") -> None:
        self._ends.get(end.node, {}).pop(end, None)

    def listen(self, host: Host, listener: Ear) -> None:
        assert host not in self._listeners, host
        self._listeners[host] = listener

    def unlisten(self, host: Host, listener: Ear) -> None:
        if self._listeners.get(host) is listener:
            del self._listeners[host]

    def send(self, end: "StreamEnd", payload: bytes, on_arrival: Callable[[], None]) -> None:
        """Take what `end` has written to the other end's node."""
        route, size_bytes = end.route, len(payload) + HEADER_BYTES
        told = payload if end.in_the_clear else len(payload).to_bytes(4)
        self.trace.frame(now_ns(), *route, told)
        if payload == NOISE:
            end.in_the_clear = False
        self.bytes_sent[route] += size_bytes
        stalled = self._carry(end, size_bytes, on_arrival)
        if stalled is not None:
            at(now_ns() + UNACKNOWLEDGED_S_MAX * NS, partial(self._give_up, end, stalled))

    def _give_up(self, end: "StreamEnd", stalled: Callable[[], object]) -> None:
        """What the end has written may still wait for its route."""
        if stalled in self._stalled.get(end.route, ()):
            end.break_off()
            end.on_timeout()

    def tell(self, end: "StreamEnd", on_arrival: Callable[[], None]) -> None:
        """Something without bytes, behind everything that `end` has written."""
        self._carry(end, HEADER_BYTES, on_arrival)

    def _carry(
        self, end: "StreamEnd", size_bytes: int, on_arrival: Callable[[], None]
    ) -> Callable[[], object] | None:
        """Or what carries it once the route is free."""
        route = end.route
        if self._blocked[route]:
            stalled = partial(self._carry, end, size_bytes, on_arrival)
            self._stalled.setdefault(route, []).append(stalled)
            self.befallen[HELD_UP] += 1
            return stalled
        at_ns = self.ways.arrival_ns(route, size_bytes)
        at(at_ns if not self.overtaking else self._put_off(end, at_ns), on_arrival)
        return None

    def _put_off(self, end: "StreamEnd", at_ns: int) -> int:
        """When it arrives if the route is out of order: behind its own stream, not the others."""
        route = end.route
        if any(self._chance.random() * 100 < p for p in self.overtaking.get(route, ())):
            late_ns = int(self._chance.random() * OVERTAKEN_S_MAX * NS)
            at_ns += late_ns // TICK_NS * TICK_NS
        end.newest_arrival_ns = at_ns = max(at_ns, end.newest_arrival_ns)
        self.befallen["stream overtaken by another"] += at_ns < self._latest_ns.get(route, 0)
        self._latest_ns[route] = max(at_ns, self._latest_ns.get(route, 0))
        return at_ns


def _node_at(host: Host) -> int:
    parts = [int(part) for part in host.split(".")]
    return parts[1] << 16 | parts[2] << 8 | parts[3]


def _nothing(_frame: object = None) -> None:
    """Whom it does not concern."""


class StreamEnd(ReadWriteCloser):
    """One end of a stream, at `node`."""

    def __init__(self, network: Network, node: int, peer: int) -> None:
        self._network = network
        self.node = node
        self.peer = peer
        self.route = (node, peer)
        self.in_the_clear = True  # what is written
        self.newest_arrival_ns = 0  # of what this end has written, where routes lose their order
        self.on_timeout: Callable[[], None] = _nothing  # called when our kernel gives it up
        self.on_break: Callable[[], None] = _nothing  # called whatever breaks it
        self.on_frame: Callable[[Any], None] = _nothing  # called with what was posted to it
        self.peer_end = self  # until it is paired
        self._unread = b""
        self._under_way = 0  # bytes that we wrote and the other program has not read
        self._ended = False  # nothing more will come
        self._broken = False
        self._closed = False  # by us
        self._waiting: list[trio.lowlevel.Task] = []  # for a change, of this end's program
        network.enter(self)

    async def read(self, n: int | None = None) -> bytes:
        while not self._unread:
            if self._broken or self._closed:
                raise ConnectionClosedError("connection reset", transport="simulated")
            if self._ended:
                return b""
            await self._change()
        if n is None:
            n = len(self._unread)
        taken, self._unread = self._unread[:n], self._unread[n:]
        self.peer_end.on_read(len(taken))
        return taken

    async def write(self, data: bytes) -> None:
        while self._under_way >= WINDOW_BYTES and not (self._broken or self._closed):
            await self._change()
        if self._broken or self._closed:
            raise ConnectionClosedError("connection reset", transport="simulated")
        self._under_way += len(data)
        payload = bytes(data)
        self._network.send(self, payload, partial(self.peer_end.on_payload, payload))

    def post(self, payload: bytes, frame: Any) -> None:
        """Write it past all windows: `on_frame` of the other end is called with `frame`."""
        if not (self._broken or self._closed):
            self._network.send(self, payload, partial(self.peer_end.on_post, frame))

    async def close(self) -> None:
        self.end()
        await trio.lowlevel.checkpoint()

    def end(self) -> None:
        """Nothing more comes behind what was written."""
        if not self._closed and not self._broken:
            self._closed = True
            self._network.leave(self)
            self._network.tell(self, self.peer_end.on_end)
            self._wake()

    def get_remote_address(self) -> tuple[str, int] | None:
        return host_of(self.peer), PORT

    def break_off(self) -> None:
        """Our own kernel gives the connection up."""
        self._network.leave(self)
        self._broken = True
        self._wake()
        self.on_break()

    def die(self) -> None:
        """Our process is no more: nothing is said any more, but our kernel resets the stream."""
        if not self._broken and not self._closed:
            self.break_off()
            self._network.tell(self, self.peer_end.break_off)

    def on_post(self, frame: Any) -> None:
        if not (self._broken or self._closed):
            self.on_frame(frame)

    def on_payload(self, payload: bytes) -> None:
        if self._closed:  # nobody will read it, and its writer would wait for ever
            self._network.tell(self, self.peer_end.break_off)
        if self._broken or self._closed:
            return
        self._unread += payload
        if len(self._unread) > self._network.unread_bytes_max:
            self._network.unread_bytes_max = len(self._unread)
        self._wake()

    def on_end(self) -> None:
        self._ended = True
        self._wake()

    def on_read(self, size: int) -> None:
        before = self._under_way
        self._under_way -= size
        if before >= WINDOW_BYTES > self._under_way:
            self._wake()

    async def _change(self) -> None:
        """As a ParkingLot does, which keeps books that nobody asks for."""
        task = trio.lowlevel.current_task()
        self._waiting.append(task)

        def give_up(_: object) -> trio.lowlevel.Abort:
            self._waiting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)

    def _wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for task in waiting:
                trio.lowlevel.reschedule(task)


class Listener(IListener):
    """Accepts for one node; `background_nursery` is set by the swarm before `listen`."""

    background_nursery: trio.Nursery

    def __init__(self, network: Network, node: int, handler: Handler) -> None:
        self._network = network
        self.node = node
        self._handler = handler
        self._host = Host("")
        self._addresses: tuple[Multiaddr, ...] = ()
        self._scope = trio.CancelScope()
        self._knocks, self._waiting = trio.open_memory_channel[StreamEnd](BACKLOG)

    async def listen(self, maddr: Multiaddr) -> None:
        self._host = Host(maddr.value_for_protocol("ip4"))
        self._addresses = (maddr,)
        self._network.listen(self._host, self)
        self.background_nursery.start_soon(self._serve)

    def get_addrs(self) -> tuple[Multiaddr, ...]:
        return self._addresses

    async def close(self) -> None:
        self.forget()
        self._scope.cancel()
        await trio.lowlevel.checkpoint()

    def forget(self) -> None:
        self._network.unlisten(self._host, self)

    def knock(self, end: StreamEnd) -> None:
        try:
            self._knocks.send_nowait(end)
        except trio.WouldBlock:
            end.die()  # the backlog is full

    async def _serve(self) -> None:
        """Handlers start here, so that they are this node's and not the dialler's."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                async for end in self._waiting:
                    nursery.start_soon(self._handler, end)


class SimulatedTransport(ITransport):
    """What a node dials and listens with."""

    def __init__(self, network: Network, node: int) -> None:
        self._network = network
        self._node = node

    async def dial(self, maddr: Multiaddr) -> IRawConnection:
        """Raises OpenConnectionError."""
        host = Host(maddr.value_for_protocol("ip4"))
        return RawConnection(await self._network.dial(self._node, host), True)

    def create_listener(self, handler_function: Handler) -> Listener:
        return Listener(self._network, self._node, handler_function)

    def can_dial(self, maddr: Multiaddr) -> bool:
        return any(protocol.name == "ip4" for protocol in maddr.protocols())

    def can_listen(self, maddr: Multiaddr) -> bool:
        return self.can_dial(maddr)

    def protocols(self) -> list[str]:
        return ["tcp"]
