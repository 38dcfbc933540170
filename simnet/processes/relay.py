"""The internet without privileges, in a process of its own: a relay on loopback for each direction.

Node i reaches node j through a port that only i knows, so the relay knows whose link a connection
uses. `simnet.links.Link` says when bytes of a stream arrive: latency, jitter and rate as elsewhere,
but a lost packet becomes what TCP makes of it, a delay of a round trip, and nothing is ever lost.
A closed or holding link passes nothing until it opens, as a cut cable does to TCP. What is not
modelled: the round trip of connecting itself.
"""

import resource
import select
import socket
from collections import deque
from contextlib import suppress
from time import monotonic_ns

from simnet.determinism import Streams
from simnet.links import MILLION, MS, Link, LinkModel
from simnet.processes import kernel
from simnet.processes.switch import LinkState

LOOPBACK = "127.0.0.1"
SEGMENT_BYTES = 1448  # what TCP puts into a packet of 1500
READ_BYTES = 8 * SEGMENT_BYTES
PIPE_BYTES_MAX = 4 << 20  # under way one way: 300 ms at 100 Mbit/s; more waits in the sender
IDLE_MS = 1000
BACKLOG = 64

Ends = tuple[int, int]


class Way:
    """One direction of a pair: its link, and whether anything passes."""

    def __init__(self, streams: Streams, ends: Ends) -> None:
        self.link = Link(LinkModel(), streams.random(f"link {ends[0]} {ends[1]}"))
        self.passes = False

    def arrival_ns(self, now_ns: int, size_bytes: int) -> int:
        """When the last of so many bytes is there."""
        at_ns = now_ns
        for sent in range(0, size_bytes, SEGMENT_BYTES):
            at_ns = self.link.stream_arrival_ns(now_ns, min(SEGMENT_BYTES, size_bytes - sent))
        return at_ns


class Pipe:
    """Bytes of one connection in one direction; an empty piece is the end of the stream."""

    def __init__(self, way: Way, source: socket.socket, sink: socket.socket) -> None:
        self.way = way
        self.source = source
        self.sink = sink
        self.ended = False
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._size_bytes = 0

    @property
    def takes(self) -> bool:
        return self.way.passes and not self.ended and self._size_bytes < PIPE_BYTES_MAX

    def due_ns(self) -> int | None:
        """When it next has something to deliver, if its way lets it."""
        return self._pieces[0][0] if self._pieces and self.way.passes else None

    @property
    def is_over(self) -> bool:
        return self.ended and not self._pieces

    def take(self, now_ns: int) -> None:
        """Read from the source. Raises OSError when the connection broke."""
        piece = self.source.recv(READ_BYTES)
        self.ended = not piece
        self._size_bytes += len(piece)
        self._pieces.append((self.way.arrival_ns(now_ns, max(1, len(piece))), piece))

    def give(self, now_ns: int) -> None:
        """Write what is due. Raises OSError when the connection broke."""
        while self._pieces and self._pieces[0][0] <= now_ns:
            at_ns, piece = self._pieces.popleft()
            if not piece:
                self.sink.shutdown(socket.SHUT_WR)
                continue
            try:
                sent = self.sink.send(piece)
            except BlockingIOError:
                sent = 0
            self._size_bytes -= sent
            if sent < len(piece):
                self._pieces.appendleft((at_ns, piece[sent:]))
                return


class Relay:
    """Listens for each pair, and relays until the tool closes the line."""

    def __init__(self, line: socket.socket, count: int, streams: Streams) -> None:
        self._line = line
        self._ports: list[int] = []  # where daemons listen, once we are told
        nodes = range(count)
        pairs = [(one, other) for one in nodes for other in nodes if one != other]
        self.ways = {ends: Way(streams, ends) for ends in pairs}
        self.doors = {ends: socket.create_server((LOOPBACK, 0), backlog=BACKLOG) for ends in pairs}
        self._of_door = {door.fileno(): ends for ends, door in self.doors.items()}
        self._connections: list[tuple[Pipe, Pipe]] = []
        self._relayed = 0

    def run(self) -> None:
        while True:
            now_ns = monotonic_ns()
            poll, next_ns = select.poll(), None
            poll.register(self._line, select.POLLIN)
            for door in self.doors.values():
                poll.register(door, select.POLLIN)
            wanted: dict[int, int] = {}
            for pipe in self._pipes():
                due_ns = pipe.due_ns()
                if pipe.takes:
                    wanted[pipe.source.fileno()] = (
                        wanted.get(pipe.source.fileno(), 0) | select.POLLIN
                    )
                if due_ns is not None and due_ns <= now_ns:
                    wanted[pipe.sink.fileno()] = wanted.get(pipe.sink.fileno(), 0) | select.POLLOUT
                elif due_ns is not None:
                    next_ns = due_ns if next_ns is None else min(next_ns, due_ns)
            for descriptor, events in wanted.items():
                poll.register(descriptor, events)
            wait_ms = IDLE_MS if next_ns is None else max(0, (next_ns - now_ns) / MS)
            ready = dict(poll.poll(wait_ms))
            if self._line.fileno() in ready:
                message, _ = kernel.receive(self._line)
                if message is None:
                    return
                self._obey(message)
            for descriptor in ready.keys() & self._of_door.keys():
                self._accept(self._of_door[descriptor])
            self._move(ready)

    def _pipes(self) -> list[Pipe]:
        return [pipe for pipes in self._connections for pipe in pipes]

    def _obey(self, message: kernel.Message) -> None:
        self._ports = message.get("ports", self._ports)
        for sender, receiver, fields in message.get("links", []):
            state, way = LinkState.from_message(fields), self.ways[sender, receiver]
            way.link.model = state.model
            # a stream over a link that loses everything would be repeated for ever
            lossy = state.model.loss_ppm >= MILLION
            way.passes = state.is_open and not state.holds and not lossy
        kernel.send(self._line, {"connections": len(self._connections), "relayed": self._relayed})

    def _accept(self, ends: Ends) -> None:
        caller, _ = self.doors[ends].accept()
        called = socket.socket()
        try:
            called.connect((LOOPBACK, self._ports[ends[1]]))  # on this host: at once, or refused
        except OSError:
            caller.close()
            called.close()
            return
        for end in (caller, called):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        there, back = self.ways[ends], self.ways[ends[1], ends[0]]
        self._connections.append((Pipe(there, caller, called), Pipe(back, called, caller)))
        self._relayed += 1

    def _move(self, ready: dict[int, int]) -> None:
        now_ns = monotonic_ns()
        broken = []
        for pipes in self._connections:
            try:
                for pipe in pipes:
                    if pipe.takes and ready.get(pipe.source.fileno(), 0):
                        with suppress(BlockingIOError):
                            pipe.take(now_ns)
                    if pipe.way.passes:
                        pipe.give(now_ns)
            except OSError:
                broken.append(pipes)
                continue
            if all(pipe.is_over for pipe in pipes):
                broken.append(pipes)
        for pipes in broken:
            self._connections.remove(pipes)
            for pipe in pipes:
                pipe.source.close()


def main() -> None:
    """Started by the tool alone; how many daemons there will be comes with its first message."""
    line, seed = kernel.line_to_tool("simnet.processes.relay")
    message, _ = kernel.receive(line)
    if message is None:
        return
    kernel.be_punctual(kernel.CARRIER_PRIORITY)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # three sockets a pair of nodes
    relay = Relay(line, message["nodes"], Streams(seed).below("switch"))
    doors = [[*ends, door.getsockname()[1]] for ends, door in relay.doors.items()]
    kernel.send(line, {"doors": doors})
    relay.run()


if __name__ == "__main__":
    main()
