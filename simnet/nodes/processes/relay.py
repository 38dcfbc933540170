"""The internet without privileges, in a process of its own: a relay on loopback for each direction.

Node i reaches node j through a port that only i knows, so the relay knows whose link a connection
uses. `simnet.world.links.Link` says when bytes of a stream arrive: latency, jitter and rate as
elsewhere, but a lost packet becomes what TCP makes of it, a delay of a round trip, and nothing is
ever lost. A closed or holding link passes nothing until it opens, as a cut cable does to TCP. What
is not modelled: the round trip of connecting itself.
"""

import resource
from functools import partial
from time import monotonic_ns

import trio

from simnet.nodes.processes import kernel
from simnet.nodes.processes.lines import Line
from simnet.world.determinism import Streams
from simnet.world.link_conditions import Ends, LinkState, LinkStates
from simnet.world.links import MILLION, NS, Link, LinkModel

LOOPBACK = "127.0.0.1"
SEGMENT_BYTES = 1448  # what TCP puts into a packet of 1500
READ_BYTES = 8 * SEGMENT_BYTES
PIECES_MAX = (4 << 20) // READ_BYTES  # under way one way: 300 ms at 100 Mbit/s; more waits in TCP
BACKLOG = 64


class Way:
    """One direction of a pair: its link, and whether anything passes."""

    def __init__(self, streams: Streams, ends: Ends) -> None:
        self._link = Link(LinkModel(), streams.random(f"link {ends[0]} {ends[1]}"))
        self._passes = trio.Event()

    def set(self, state: LinkState) -> None:
        self._link.model = state.model
        # a stream over a link that loses everything would be repeated for ever
        if state.is_open and not state.holds and state.model.loss_ppm < MILLION:
            self._passes.set()
        elif self._passes.is_set():
            self._passes = trio.Event()

    async def carry(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        """All bytes of one connection in this direction, then its end."""
        pieces, due = trio.open_memory_channel[tuple[int, bytes]](PIECES_MAX)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deliver, due, sink)
            async with pieces:
                while True:
                    await self._passes.wait()
                    piece = await source.receive_some(READ_BYTES)
                    if not piece:
                        return
                    await pieces.send((self._arrival_ns(len(piece)), piece))

    async def _deliver(
        self, due: trio.MemoryReceiveChannel[tuple[int, bytes]], sink: trio.SocketStream
    ) -> None:
        async for at_ns, piece in due:
            await trio.sleep(max(0, at_ns - monotonic_ns()) / NS)
            await self._passes.wait()
            await sink.send_all(piece)
        await sink.send_eof()

    def _arrival_ns(self, size_bytes: int) -> int:
        """When the last of so many bytes is there."""
        now_ns = at_ns = monotonic_ns()
        for sent in range(0, size_bytes, SEGMENT_BYTES):
            at_ns = self._link.stream_arrival_ns(now_ns, min(SEGMENT_BYTES, size_bytes - sent))
        return at_ns


class Relay:
    """A door for each pair of nodes."""

    def __init__(self, line: Line, count: int, streams: Streams) -> None:
        self._line = line
        nodes = range(count)
        pairs = [(one, other) for one in nodes for other in nodes if one != other]
        self._ways = {ends: Way(streams, ends) for ends in pairs}
        self._ports: list[int] = []  # where daemons listen
        self._connections = self._relayed = 0

    async def run(self) -> None:
        """Raises EOFError when the tool has ended."""
        doors, listeners = {}, []
        for ends in self._ways:
            (listener,) = await trio.open_tcp_listeners(0, host=LOOPBACK, backlog=BACKLOG)
            doors[ends] = listener.socket.getsockname()[1]
            listeners.append((ends, listener))
        self._line.send(doors)
        self._ports, _ = self._line.receive()
        self._line.send(None)
        async with trio.open_nursery() as nursery:
            for ends, listener in listeners:
                nursery.start_soon(trio.serve_listeners, partial(self._relay, ends), [listener])
            while True:
                await trio.lowlevel.wait_readable(self._line.fileno())
                self._set(self._line.receive()[0])
                counts = {"connections": self._connections, "relayed": self._relayed}
                self._line.send(counts)

    def _set(self, states: LinkStates) -> None:
        for ends, state in states.items():
            self._ways[ends].set(state)

    async def _relay(self, ends: Ends, caller: trio.SocketStream) -> None:
        self._connections += 1
        try:
            async with await trio.open_tcp_stream(LOOPBACK, self._ports[ends[1]]) as called:
                self._relayed += 1
                async with caller, trio.open_nursery() as nursery:
                    nursery.start_soon(self._ways[ends].carry, caller, called)
                    nursery.start_soon(self._ways[ends[1], ends[0]].carry, called, caller)
        except* (OSError, trio.BrokenResourceError):
            pass  # one of them has broken it off, so the other one's is closed
        finally:
            self._connections -= 1


def serve(count: int, seed: int, line: Line) -> None:
    """The whole life of a relay; where daemons listen comes with the tool's first message."""
    kernel.be_punctual(kernel.CARRIER_PRIORITY)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # three sockets a pair of nodes
    trio.run(Relay(line, count, Streams(seed).below("switch")).run)
