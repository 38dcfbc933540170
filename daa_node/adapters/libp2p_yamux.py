"""Yamux streams over one secured connection, with every window and every queue enforced.

The library's own multiplexer never checks the window that it granted, resets a stream whose reader
pauses for five seconds, and queues whatever a peer sends. This one takes its place on the same
wire format (hashicorp/yamux spec.md, version 0):

  * a peer that sends beyond its window, or breaks the format, loses its connection;
  * what lies unread over all streams is at most `unread_bytes_max`: then the socket is not read;
  * control frames that the peer does not take off us are at most CONTROL_BYTES_MAX;
  * a peer has at most STREAMS_PER_PEER_MAX streams, and who is no member OTHERS_STREAMS_MAX, that
    are open or that we still serve; one that it leaves half closed is reset after LINGER_S, and one
    that it resets before we got to it is served to nobody; a writer waits for its window as long as
    its caller allows;
  * what a peer's frames cost us is counted and paid for (see purses), by who is no member out of
    one purse with all others who are none; between two payments everybody else has a turn.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType

import trio
from libp2p.abc import IMuxedConn, IMuxedStream, ISecureConn
from libp2p.connection_types import ConnectionType
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import (
    MuxedConnUnavailable,
    MuxedStreamEOF,
    MuxedStreamError,
    MuxedStreamReset,
)
from multiaddr import Multiaddr

from daa_node.adapters.libp2p_frames import (
    ACK,
    DATA,
    FIN,
    FRAME_BYTES_MAX,
    GO_AWAY,
    HEADER,
    HEADER_BYTES,
    PING,
    RST,
    SYN,
    WINDOW_UPDATE,
    FrameWriter,
)
from daa_node.adapters.prompt_lock import PromptLock
from daa_node.adapters.purses import Bill, Purse
from daa_node.wire.limits import KIB, MIB, STREAMS_PER_PEER_MAX

WINDOW_BYTES = 256 * KIB  # the specification's first window; we never grant more
UNREAD_BYTES_MAX = MIB  # of a member, over all its streams
UNREAD_BYTES_MAX_OTHERS = 256 * KIB  # of anybody else: sixty-four guests have two connections each
# Of who is no member: 2 requests, 8 bulk sessions, gossip, 4 of the DHT, as many again that close.
OTHERS_STREAMS_MAX = 32
READ_UNITS = 3  # a noise message, opened
BYTES_A_UNIT = 4 * KIB  # of what it held
FRAME_UNITS = 1
ANSWERED_UNITS = 4  # a frame that makes us write one
WOKEN_UNITS = 3  # whoever reads the stream has a turn
OPENED_UNITS = 60  # a stream: a task, a negotiation, and the end of both
UNREAD_STALL_S = 10.0  # while nobody takes what is there, the end of a connection is not seen
FLUSH_S = 0.2  # a last word on its way when we close
LINGER_S = 10.0  # a closed stream waits this long for the peer's end
KEEPALIVE_S = 15.0
_SWEEP_S = 5.0


class _Violation(Exception):
    """The peer broke the format or its window; ends the connection, and is raised nowhere else."""


class _Unread:
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

    def __init__(self, stream_id: int, session: "YamuxSession") -> None:
        self.stream_id = stream_id
        self.muxed_conn = session
        self.session = session
        self.inbox = bytearray()
        self.granted = WINDOW_BYTES  # what the peer may still send
        self.taken = 0  # read since the last grant
        self.allowance = WINDOW_BYTES  # what we may still send
        self.ended = False  # the peer sent FIN
        self.closed = False  # we sent FIN
        self.dead = False  # reset by either side, or the connection is gone
        self.served = False  # `accept_stream` gave it away, and `release` has not come
        self.closed_at_s = 0.0
        self.changed = trio.Event()
        self._writing = PromptLock()

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
        self.session.unread.take(size)
        self.taken += size
        # half a window at a time: fewer frames, and the peer never runs dry on a fast link
        if self.taken >= WINDOW_BYTES // 2 and not (self.ended or self.dead):
            self.granted += self.taken
            self.session.owe(WINDOW_UPDATE, 0, self.stream_id, self.taken)
            self.taken = 0

    def drop_inbox(self) -> None:
        self.session.unread.take(len(self.inbox))
        self.inbox.clear()

    async def write(self, data: bytes) -> None:
        """All of it, and nobody else's bytes between: gossip writes from several tasks."""
        async with self._writing:
            view = memoryview(data)
            while view:
                while not self.allowance and not self.dead:
                    await self.changed.wait()
                await self.session.wait_for_room()
                if self.dead or self.closed:
                    raise MuxedStreamReset("stream was reset" if self.dead else "stream is closed")
                size = min(len(view), self.allowance, FRAME_BYTES_MAX)
                self.allowance -= size
                header = HEADER.pack(0, DATA, 0, self.stream_id, size)
                self.session.give(header + view[:size])
                view = view[size:]

    async def close(self) -> None:
        """Send FIN; what the peer still sends is dropped, and after LINGER_S it is cut off."""
        if self.closed or self.dead:
            return
        self.closed = True
        self.closed_at_s = trio.current_time()
        self.session.owe(WINDOW_UPDATE, FIN, self.stream_id, 0)
        self.drop_inbox()
        if self.ended:
            self.session.forget(self)
        await trio.lowlevel.checkpoint()

    async def reset(self) -> None:
        if not self.dead:
            self.session.owe(WINDOW_UPDATE, RST, self.stream_id, 0)
            self.session.forget(self)
        await trio.lowlevel.checkpoint()

    def release(self) -> None:
        """Whoever took it from `accept_stream` is done with it."""
        self.served = False
        self.session.recount(self)

    def set_deadline(self, ttl: int) -> None:
        """The interface asks for it; deadlines are trio's."""
        raise ValueError("deadlines are cancel scopes")

    def get_remote_address(self) -> tuple[str, int] | None:
        return self.session.secured_conn.get_remote_address()

    async def __aenter__(self) -> "YamuxStream":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.close()


class YamuxSession(IMuxedConn):
    """All streams of one connection. `start` runs until the connection ends; it raises nothing."""

    def __init__(self, conn: ISecureConn, peer_id: ID, strangers: Purse | None = None) -> None:
        """`strangers` is what all who are not admitted may spend together."""
        self.secured_conn = conn
        self.peer_id = peer_id
        self.event_started = trio.Event()
        self.event_closed = trio.Event()
        self.bill = Bill(strangers)
        self.unread = _Unread(self.bill)
        self._admitted = False
        self.rtt_s: float | None = None
        self.on_close: Callable[[], Awaitable[None]] | None = None
        self._streams: dict[int, YamuxStream] = {}
        self._next_id = 1 if conn.is_initiator else 2
        self._their_parity = 0 if conn.is_initiator else 1
        self._last_theirs = 0
        self._theirs_open = 0
        self._arrivals: dict[int, YamuxStream] = {}  # oldest first
        self._arrived = trio.Event()
        self._scope: trio.CancelScope | None = None
        self._writer = FrameWriter(conn, self._end)
        self.wait_for_room, self.give = self._writer.wait_for_room, self._writer.give
        self.owe = self._writer.owe
        self._heard_at_s = 0.0
        self._ping_at_s = 0.0

    @property
    def is_initiator(self) -> bool:
        return self.secured_conn.is_initiator

    @property
    def is_established(self) -> bool:
        return self.event_started.is_set() and not self._writer.closed

    @property
    def is_closed(self) -> bool:
        return self.event_closed.is_set()

    def get_transport_addresses(self) -> list[Multiaddr]:
        return self.secured_conn.get_transport_addresses()

    def get_connection_type(self) -> ConnectionType:
        return self.secured_conn.get_connection_type()

    async def start(self) -> None:
        self._heard_at_s = trio.current_time()
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                nursery.start_soon(self._writer.run)
                nursery.start_soon(self._keep_alive)
                self.event_started.set()
                await self._read_frames()
                nursery.cancel_scope.cancel()
        except* Exception:
            # whatever a peer's bytes provoke in the cipher or the socket ends this connection only
            pass
        finally:
            with trio.CancelScope(shield=True):
                await self._shut()

    async def close(self) -> None:
        """What was written before is sent, if the peer takes it at once."""
        try:
            if self._scope is not None:
                with trio.move_on_after(FLUSH_S):
                    await self._writer.flush()
        finally:
            self._end()  # also when whoever closes has no time to wait
        if self._scope is None:
            await self._shut()
        else:
            await self.event_closed.wait()

    async def open_stream(self) -> YamuxStream:
        if self._writer.closed:
            raise MuxedStreamError("connection is closed")
        stream = YamuxStream(self._next_id, self)
        self._next_id += 2
        self._streams[stream.stream_id] = stream
        self.owe(WINDOW_UPDATE, SYN, stream.stream_id, 0)
        await trio.lowlevel.checkpoint()
        return stream

    async def accept_stream(self) -> YamuxStream:
        while not self._arrivals:
            if self._writer.closed:
                raise MuxedConnUnavailable("connection is closed")
            await self._arrived.wait()
        stream = self._arrivals.pop(next(iter(self._arrivals)))
        stream.served = True
        return stream

    def admit(self, is_member: Callable[[], bool], guests: Purse | None) -> None:
        """The peer is a stranger no longer; see Bill."""
        if not self._admitted:
            self._admitted = True
            self.bill.admit(is_member, guests)

    def forget(self, stream: YamuxStream) -> None:
        """The stream is over for both sides; its id is never used again."""
        if self._streams.pop(stream.stream_id, None) is None:
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

    def _end(self) -> None:
        """Stop reading and writing; `start` does the rest."""
        if self._scope is not None:
            self._scope.cancel()

    async def _shut(self) -> None:
        if self._writer.closed:
            await self.event_closed.wait()
            return
        self._writer.close()
        for stream in list(self._streams.values()):
            self.forget(stream)
        self._arrivals.clear()
        self._arrived.set()
        with trio.move_on_after(1.0):
            await self.secured_conn.close()
        self.event_closed.set()
        self.event_started.set()  # whoever waits for the start learns of the end
        if self.on_close is not None:
            await self.on_close()

    async def _keep_alive(self) -> None:
        pinged_at_s = -KEEPALIVE_S
        while True:
            now_s = trio.current_time()
            if now_s - self._heard_at_s > 2 * KEEPALIVE_S + _SWEEP_S:
                raise _Violation("silent")
            if self._writer.is_stalled(now_s):
                raise _Violation("takes nothing")
            if now_s - pinged_at_s >= KEEPALIVE_S:
                pinged_at_s = self._ping_at_s = now_s
                self.owe(PING, SYN, 0, 0)
            for stream in list(self._streams.values()):
                if stream.closed and now_s - stream.closed_at_s > LINGER_S:
                    await stream.reset()
            await trio.sleep(_SWEEP_S)

    async def _read_frames(self) -> None:
        pending = bytearray()
        while payload := await self.secured_conn.read():
            self._heard_at_s = trio.current_time()
            self.bill.units += READ_UNITS + len(payload) // BYTES_A_UNIT
            pending += payload
            start = 0
            while len(pending) - start >= HEADER_BYTES:
                version, kind, flags, stream_id, length = HEADER.unpack_from(pending, start)
                size = length if kind == DATA else 0
                if version != 0 or kind > GO_AWAY or size > WINDOW_BYTES:
                    raise _Violation("not a frame")
                if len(pending) - start - HEADER_BYTES < size:
                    break
                start += HEADER_BYTES
                self._on_frame(kind, flags, stream_id, length, pending[start : start + size])
                start += size
                await self.bill.settle()
            del pending[:start]
            await self.bill.settle()
            await self.unread.wait_for_room()

    def _on_frame(
        self, kind: int, flags: int, stream_id: int, length: int, payload: bytearray
    ) -> None:
        self.bill.units += FRAME_UNITS
        if kind == GO_AWAY:
            raise _Violation("peer goes away")
        if kind == PING:
            if flags & SYN:
                self.bill.units += ANSWERED_UNITS
                self.owe(PING, ACK, 0, length)
            elif flags & ACK:
                self.rtt_s = trio.current_time() - self._ping_at_s
            return
        if flags & SYN:
            self._on_opened(stream_id, flags)
        stream = self._streams.get(stream_id)
        if stream is None:
            return  # of a stream that we have reset: it was under way
        if kind == WINDOW_UPDATE and length:
            waited_for = stream.allowance == 0
            stream.allowance += length
            if stream.allowance > 2**32:
                raise _Violation("window without end")
            if waited_for:
                stream.wake()
        elif payload:
            self._on_data(stream, payload)
            stream.wake()
        if flags & RST:
            self.forget(stream)
        elif flags & FIN:
            stream.ended = True
            if stream.closed:
                self.forget(stream)
            stream.wake()

    def _on_data(self, stream: YamuxStream, payload: bytearray) -> None:
        stream.granted -= len(payload)
        if stream.granted < 0 or stream.ended:
            raise _Violation("more than its window")
        if not stream.closed:
            self.bill.units += WOKEN_UNITS
            stream.inbox += payload
            self.unread.add(len(payload))

    def _on_opened(self, stream_id: int, flags: int) -> None:
        if stream_id % 2 != self._their_parity or stream_id <= self._last_theirs:
            raise _Violation("stream id is not theirs to use")
        self._last_theirs = stream_id
        if flags & RST:
            return  # dead before it lived
        streams_max = STREAMS_PER_PEER_MAX if self.bill.is_member() else OTHERS_STREAMS_MAX
        if self._theirs_open >= streams_max:
            self.bill.units += ANSWERED_UNITS
            self.owe(WINDOW_UPDATE, RST, stream_id, 0)
            return
        self.bill.units += OPENED_UNITS
        stream = YamuxStream(stream_id, self)
        self._streams[stream_id] = stream
        self._theirs_open += 1
        self.owe(WINDOW_UPDATE, ACK, stream_id, 0)
        self._arrivals[stream_id] = stream
        self._arrived.set()
        self._arrived = trio.Event()
