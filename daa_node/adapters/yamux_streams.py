"""The streams of one yamux session: windows, what lies unread, and how many a peer may have.

open (ours), or opened (theirs, and waiting to be accepted) --FIN of both, or RST--> forgotten
"""

from types import TracebackType

import trio
from libp2p.abc import IMuxedConn, IMuxedStream, ISecureConn
from libp2p.stream_muxer.exceptions import (
    MuxedConnUnavailable,
    MuxedStreamEOF,
    MuxedStreamError,
    MuxedStreamReset,
)

from daa_node.adapters.budgets import Bill
from daa_node.adapters.libp2p_frames import (
    ACK,
    DATA,
    FIN,
    FRAME_BYTES_MAX,
    HEADER,
    RST,
    SYN,
    WINDOW_UPDATE,
    FrameWriter,
)
from daa_node.network.carried import Carried
from daa_node.prompt_lock import PromptLock
from daa_node.wire.limits import KIB, MIB, STREAMS_PER_PEER_MAX

WINDOW_BYTES = 256 * KIB  # the specification's first window; we never grant more
UNREAD_BYTES_MAX = MIB  # of a member, over all its streams
UNREAD_BYTES_MAX_OTHERS = 256 * KIB  # of anybody else: sixty-four guests have two connections each
# Of who is no member: 2 requests, 8 bulk sessions, gossip, 4 of the DHT, as many again that close.
OTHERS_STREAMS_MAX = 32
ANSWERED_UNITS = 4  # a frame that makes us write one
WOKEN_UNITS = 3  # whoever reads the stream has a turn
OPENED_UNITS = 60  # a stream: a task, a negotiation, and the end of both
UNREAD_STALL_S = 10.0  # while nobody takes what is there, the end of a connection is not seen
LINGER_S = 10.0  # a closed stream waits this long for the peer's end


class Violation(Exception):
    """The peer broke the format or its window; ends the connection, and is raised nowhere else."""


class Unread:
    """Bytes that lie in streams' inboxes, and who waits for them to be read."""

    def __init__(self, bill: Bill) -> None:
        self._bill = bill
        self._bytes = 0
        self._room = trio.Event()

    def add(self, size: int) -> None:
        self._bytes += size

    def take(self, size: int) -> None:
        self._bytes -= size
        self._room.set()

    async def wait_for_room(self) -> None:
        """Raises TooSlowError when nobody reads what is there."""
        bytes_max = UNREAD_BYTES_MAX if self._bill.is_member() else UNREAD_BYTES_MAX_OTHERS
        if self._bytes <= bytes_max:
            return
        with trio.fail_after(UNREAD_STALL_S):
            while self._bytes > bytes_max:
                self._room = trio.Event()
                await self._room.wait()


class YamuxStream(IMuxedStream):
    """One stream. `read` gives what is there; `write` waits for the peer's window."""

    def __init__(self, stream_id: int, streams: "Streams") -> None:
        self.stream_id = stream_id
        self.muxed_conn = streams.session
        self._streams = streams
        self.inbox = bytearray()
        self.granted = WINDOW_BYTES  # what the peer may still send
        self.taken = 0  # read since the last grant
        self.allowance = WINDOW_BYTES  # what we may still send
        self.ended = False  # the peer sent FIN
        self.closed = False  # we sent FIN
        self.dead = False  # reset by either side, or the connection is gone
        self.served = False  # `accept` gave it away, and `release` has not come
        self._unread = streams.unread
        self.closed_at_s = 0.0
        self.is_counted = True  # its bytes, among what the transport carries
        self.is_of_strangers = False  # they are, whoever the peer is
        self.changed = trio.Event()
        self._writing = PromptLock()

    def set_apart(self) -> None:
        """Its window alone bounds what lies unread here: it holds up no other stream."""
        apart = Unread(self._streams.bill)
        apart.add(len(self.inbox))
        self._unread.take(len(self.inbox))
        self._unread = apart

    def wake(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def read(self, n: int | None = None) -> bytes:
        """At least one byte, at most `n`. Raises MuxedStreamEOF or MuxedStreamReset."""
        if n == 0:
            return b""
        while not self.inbox:
            if self.dead:
                raise MuxedStreamReset("stream was reset")
            if self.ended:
                raise MuxedStreamEOF("peer closed the stream")
            await self.changed.wait()
        size = len(self.inbox) if n is None or n < 0 else min(n, len(self.inbox))
        piece = bytes(self.inbox[:size])
        del self.inbox[:size]
        self._on_taken(size)
        return piece

    def _on_taken(self, size: int) -> None:
        self._unread.take(size)
        self.taken += size
        # half a window at a time: fewer frames, and the peer never runs dry on a fast link
        if self.taken >= WINDOW_BYTES // 2 and not (self.ended or self.dead):
            self.granted += self.taken
            self._streams.writer.owe(WINDOW_UPDATE, 0, self.stream_id, self.taken)
            self.taken = 0

    def drop_inbox(self) -> None:
        self._unread.take(len(self.inbox))
        self.inbox.clear()

    def on_window(self, size: int) -> None:
        """The peer grants us so many bytes more."""
        waited_for = self.allowance == 0
        self.allowance += size
        if self.allowance > 2**32:
            raise Violation("window without end")
        if waited_for:
            self.wake()

    def on_data(self, payload: bytearray) -> None:
        self.granted -= len(payload)
        if self.granted < 0 or self.ended:
            raise Violation("more than its window")
        self._note_carried(len(payload))
        if not self.closed:
            self._streams.bill.units += WOKEN_UNITS
            self.inbox += payload
            self._unread.add(len(payload))
        self.wake()

    def on_end(self) -> None:
        """The peer will send no more."""
        self.ended = True
        if self.closed:
            self._streams.forget(self)
        self.wake()

    async def write(self, data: bytes) -> None:
        """All of it, and nobody else's bytes between: gossip writes from several tasks."""
        async with self._writing:
            view = memoryview(data)
            while view:
                while not self.allowance and not self.dead:
                    await self.changed.wait()
                await self._streams.writer.wait_for_room()
                if self.dead or self.closed:
                    raise MuxedStreamReset("stream was reset" if self.dead else "stream is closed")
                size = min(len(view), self.allowance, FRAME_BYTES_MAX)
                self.allowance -= size
                header = HEADER.pack(0, DATA, 0, self.stream_id, size)
                self._streams.writer.give(header + view[:size])
                self._note_carried(size)
                view = view[size:]

    def _note_carried(self, size: int) -> None:
        if self.is_counted:
            is_member = self._streams.bill.is_member() and not self.is_of_strangers
            self._streams.carried.note(size, is_member)

    async def close(self) -> None:
        """Send FIN; what the peer still sends is dropped, and after LINGER_S it is cut off."""
        if self.closed or self.dead:
            return
        self.closed = True
        self.closed_at_s = trio.current_time()
        self._streams.writer.owe(WINDOW_UPDATE, FIN, self.stream_id, 0)
        self.drop_inbox()
        if self.ended:
            self._streams.forget(self)
        await trio.lowlevel.checkpoint()

    async def reset(self) -> None:
        if not self.dead:
            self._streams.writer.owe(WINDOW_UPDATE, RST, self.stream_id, 0)
            self._streams.forget(self)
        await trio.lowlevel.checkpoint()

    def release(self) -> None:
        """Whoever took it from `accept` is done with it."""
        self.served = False
        self._streams.recount(self)

    def set_deadline(self, ttl: int) -> None:
        """The interface asks for it; deadlines are trio's."""
        raise ValueError("deadlines are cancel scopes")

    def get_remote_address(self) -> tuple[str, int] | None:
        return self._streams.conn.get_remote_address()

    async def __aenter__(self) -> "YamuxStream":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.close()


class Streams:
    """The streams of one session: ours, theirs, and what lies unread in all of them."""

    def __init__(
        self,
        session: IMuxedConn,
        conn: ISecureConn,
        writer: FrameWriter,
        bill: Bill,
        carried: Carried,
    ) -> None:
        self.session = session
        self.conn = conn
        self.writer = writer
        self.bill = bill
        self.carried = carried
        self.unread = Unread(bill)
        self._open: dict[int, YamuxStream] = {}
        self._next_id = 1 if conn.is_initiator else 2
        self._their_parity = 0 if conn.is_initiator else 1
        self._last_theirs = 0
        self._theirs_open = 0
        self._arrivals: dict[int, YamuxStream] = {}  # oldest first
        self._arrived = trio.Event()

    def get(self, stream_id: int) -> YamuxStream | None:
        """None if it is over for both."""
        return self._open.get(stream_id)

    def all(self) -> list[YamuxStream]:
        return list(self._open.values())

    async def open(self) -> YamuxStream:
        """One of ours. Raises MuxedStreamError once the connection is closed."""
        if self.writer.closed:
            raise MuxedStreamError("connection is closed")
        stream = YamuxStream(self._next_id, self)
        self._next_id += 2
        self._open[stream.stream_id] = stream
        self.writer.owe(WINDOW_UPDATE, SYN, stream.stream_id, 0)
        await trio.lowlevel.checkpoint()
        return stream

    async def accept(self) -> YamuxStream:
        """The oldest of theirs that nobody serves yet, once there is one."""
        while not self._arrivals:
            if self.writer.closed:
                raise MuxedConnUnavailable("connection is closed")
            await self._arrived.wait()
        stream = self._arrivals.pop(next(iter(self._arrivals)))
        stream.served = True
        return stream

    def on_opened(self, stream_id: int, flags: int) -> None:
        """The peer opens one; if it has too many, it is reset."""
        if stream_id % 2 != self._their_parity or stream_id <= self._last_theirs:
            raise Violation("stream id is not theirs to use")
        self._last_theirs = stream_id
        if flags & RST:
            return  # dead before it lived
        streams_max = STREAMS_PER_PEER_MAX if self.bill.is_member() else OTHERS_STREAMS_MAX
        if self._theirs_open >= streams_max:
            self.bill.units += ANSWERED_UNITS
            self.writer.owe(WINDOW_UPDATE, RST, stream_id, 0)
            return
        self.bill.units += OPENED_UNITS
        stream = YamuxStream(stream_id, self)
        self._open[stream_id] = stream
        self._theirs_open += 1
        self.writer.owe(WINDOW_UPDATE, ACK, stream_id, 0)
        self._arrivals[stream_id] = stream
        self._arrived.set()
        self._arrived = trio.Event()

    def forget(self, stream: YamuxStream) -> None:
        """The stream is over for both sides; its id is never used again."""
        if self._open.pop(stream.stream_id, None) is None:
            return
        stream.dead = True
        self._arrivals.pop(stream.stream_id, None)
        self.recount(stream)
        stream.drop_inbox()
        stream.wake()

    def recount(self, stream: YamuxStream) -> None:
        """Of theirs, when it has died or nobody serves it any more: only both end it."""
        if stream.dead and not stream.served and stream.stream_id % 2 == self._their_parity:
            self._theirs_open -= 1

    def end(self) -> None:
        """The connection is gone, and with it every stream."""
        for stream in self.all():
            self.forget(stream)
        self._arrivals.clear()
        self._arrived.set()
