"""One connection between two light transports: frames, and the streams opened beside them.

A connection is one simulated stream that carries frames, and one more for each stream opened on it;
all of them end together. A frame is a word and what it needs. It costs the link what its words
weigh; a thing that goes with it is the other side's when it arrives.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgpack
import trio
from libp2p.io.exceptions import ConnectionClosedError

from daa_node.seams import PeerId
from simnet.nodes.virtual.network import StreamEnd


class Word(StrEnum):
    """What a frame says."""

    PEER = "peer"  # who we are
    OPEN = "open"  # a protocol; the thing is the other end of the stream
    ALIVE = "alive"
    TELL = "tell"  # an announcement: topic, source, sequence, payload
    ASK = "ask"  # a question to the DHT; the thing is where the answer is waited for
    ANSWER = "answer"  # the thing is the question's


class LightStream:
    """A ByteStream over one simulated stream."""

    def __init__(
        self,
        end: StreamEnd,
        connection: "Connection",
        carried: Callable[[int], None] | None = None,
    ) -> None:
        """`carried` hears of all bytes, both ways."""
        self._carried = carried or (lambda _size: None)
        self._end = end
        self._connection = connection
        self._unread = 0  # reads that are under way, or were given up
        end.on_timeout = connection.close
        connection.ends[end] = None

    @property
    def peer_id(self) -> PeerId:
        return self._connection.peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        try:
            await self._end.write(bytes(payload))
            self._carried(len(payload))
        except ConnectionClosedError:
            raise trio.BrokenResourceError(f"stream to {self.peer_id} was cut") from None

    async def receive_some(self, size_bytes_max: int) -> bytes:
        self._unread += 1
        try:
            received = await self._end.read(size_bytes_max)
            self._unread -= 1
            self._carried(len(received))
            return received
        except ConnectionClosedError:
            raise trio.BrokenResourceError(f"stream of {self.peer_id} was cut") from None

    async def aclose(self) -> None:
        if self._unread:
            await self.abort()
            return
        self._connection.ends.pop(self._end, None)
        self._end.end()

    async def abort(self) -> None:
        """Reset it: who reads it learns that this was not the end."""
        self._connection.ends.pop(self._end, None)
        self._end.die()


OnFrame = Callable[["Connection", Word, tuple[Any, ...], Any], None]


class Connection:
    """Our side of it; `ends` are those of its streams, the frames' own among them.

    `on_frame` and `on_close` are called as the network has it, whether the node runs or is stopped.
    """

    def __init__(
        self, control: StreamEnd, on_frame: OnFrame, on_close: Callable[["Connection"], None]
    ) -> None:
        self.peer_id = PeerId("")  # until the other side has said it
        self.named = trio.Event()  # it has, or the connection has ended
        self.ends: dict[StreamEnd, None] = {control: None}
        self.is_closed = False
        self.route = control.node, control.peer
        self.heard_s = trio.current_time()
        self._control = control
        self._on_frame = on_frame
        self._on_close = on_close
        control.on_frame = self._hear
        control.on_timeout = control.on_break = self.close

    def close(self) -> None:
        """Reset all of it, behind what was written already."""
        if not self.is_closed:
            self.is_closed = True
            self.named.set()
            for end in list(self.ends):
                end.die()
            self._on_close(self)

    def say(self, word: Word, *words: Any, thing: Any = None) -> None:
        """Nothing comes of it on a connection that has ended."""
        payload: bytes = msgpack.packb([word, *words], use_bin_type=True)
        self._control.post(payload, (word, words, thing))

    def _hear(self, frame: tuple[Word, tuple[Any, ...], Any]) -> None:
        self.heard_s = trio.current_time()
        self._on_frame(self, *frame)
