"""One connection between two light transports: control frames, and the streams opened beside them.

A connection is one simulated stream that carries frames, and one more for each stream opened on it;
all of them end together. A frame is a length and a msgpack list: a word, then what it needs.
"""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgpack
import trio
from libp2p.io.exceptions import ConnectionClosedError

from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import PeerId
from daa_node.wire.framing import MessageReader, write_message
from daa_node.wire.limits import MIB
from simnet.nodes.virtual.network import Network, StreamEnd

OPEN_TIMEOUT_S = 10.0  # as the libp2p transport has it
KEEPALIVE_S = 15.0  # as our yamux has it
SILENT_S_MAX = 35.0  # two keepalives and a little: then the peer is gone
FRAME_BYTES_MAX = MIB
ACCEPTED, REFUSED = b"\x01", b"\x00"  # the first byte of a stream, from whom it was opened to
PEER, OPEN, ALIVE = "peer", "open", "alive"

Frame = list[Any]


@dataclass(slots=True)
class Exchange:
    """What all light transports of a run share: ends of streams that were not taken up yet."""

    network: Network
    _ends: dict[int, StreamEnd] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=count)

    def put(self, end: StreamEnd) -> int:
        number = next(self._numbers)
        self._ends[number] = end
        return number

    def take(self, number: int) -> StreamEnd | None:
        """None if whoever opened it has given up."""
        return self._ends.pop(number, None)


class LightStream:
    """A ByteStream over one simulated stream."""

    def __init__(self, end: StreamEnd, connection: "Connection") -> None:
        self._end = end
        self._connection = connection
        end.on_timeout = connection.close
        connection.ends[end] = None

    @property
    def peer_id(self) -> PeerId:
        return self._connection.peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        try:
            await self._end.write(bytes(payload))
        except ConnectionClosedError:
            raise trio.BrokenResourceError(f"stream to {self.peer_id} was cut") from None

    async def receive_some(self, size_bytes_max: int) -> bytes:
        try:
            return await self._end.read(size_bytes_max)
        except ConnectionClosedError:
            raise trio.BrokenResourceError(f"stream of {self.peer_id} was cut") from None

    async def aclose(self) -> None:
        self._connection.ends.pop(self._end, None)
        self._end.end()

    async def abort(self) -> None:
        """Reset it: who reads it learns that this was not the end."""
        self._connection.ends.pop(self._end, None)
        self._end.die()


class Connection:
    """Our side of it; `ends` are those of its streams, the frames' own among them."""

    def __init__(self, exchange: Exchange, control: StreamEnd) -> None:
        self.peer_id = PeerId("")  # until it has said it
        self.ends: dict[StreamEnd, None] = {}
        self.scope = trio.CancelScope()  # of everything that serves it
        self.is_closed = False
        self._exchange = exchange
        self.far_node = control.peer
        self._route = control.node, control.peer
        self._control = LightStream(control, self)
        self._frames = MessageReader(self._control, FRAME_BYTES_MAX)
        self._heard_s = trio.current_time()

    def close(self) -> None:
        """Reset all of it, behind what was written already."""
        self.is_closed = True
        for end in list(self.ends):
            end.die()
        self.scope.cancel()

    async def say(self, *frame: Any) -> None:
        """Raises trio.BrokenResourceError."""
        await write_message(self._control, msgpack.packb(frame, use_bin_type=True))

    async def hear(self) -> Frame | None:
        """The next frame; None when the connection has ended."""
        try:
            payload = await self._frames.next()
        except (PeerFault, trio.BrokenResourceError):  # it broke in the middle of a frame
            return None
        self._heard_s = trio.current_time()
        return None if payload is None else msgpack.unpackb(payload, raw=False)

    async def keep_alive(self) -> None:
        """Until nothing was heard for too long."""
        while trio.current_time() - self._heard_s <= SILENT_S_MAX:
            await self.say(ALIVE)
            await trio.sleep(KEEPALIVE_S)

    async def open(self, protocol: str) -> LightStream:
        """Raises Unavailable."""
        here, there = self._exchange.network.pair(*self._route)
        stream = LightStream(here, self)
        number = self._exchange.put(there)
        try:
            with trio.fail_after(OPEN_TIMEOUT_S):
                await self.say(OPEN, number, protocol)
                answer = await stream.receive_some(1)
        except (trio.BrokenResourceError, trio.TooSlowError) as error:
            raise Unavailable(f"{self.peer_id} does not open {protocol}: {error}") from None
        finally:
            if self._exchange.take(number) is not None:  # nobody has taken it up
                await stream.abort()
        if answer != ACCEPTED:
            await stream.abort()
            raise Unavailable(f"{self.peer_id} does not speak {protocol}")
        return stream

    def opened(self, number: int) -> LightStream | None:
        """The stream that the peer opens; None if it has given up meanwhile."""
        end = self._exchange.take(number)
        return None if end is None else LightStream(end, self)
