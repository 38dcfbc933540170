"""Yamux streams over one secured connection, with every window and every queue enforced.

The library's own multiplexer never checks the window that it granted, resets a stream whose reader
pauses for five seconds, and queues whatever a peer sends. This one takes its place on the same
wire format (hashicorp/yamux spec.md, version 0):

  * a peer that sends beyond its window, or breaks the format, loses its connection;
  * what lies unread over all streams is at most `unread_bytes_max`: then the socket is not read;
  * control frames that the peer does not take off us are at most CONTROL_BYTES_MAX;
  * a peer has at most STREAMS_PER_PEER_MAX open streams; a stream that it leaves half closed is
    reset after LINGER_S; a writer waits for its window as long as its caller allows.
"""

import struct
from collections import deque
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

from daa_node.adapters.prompt_lock import PromptLock
from daa_node.wire.limits import KIB, MIB, STREAMS_PER_PEER_MAX

_HEADER = struct.Struct("!BBHII")  # version, kind, flags, stream id, length
HEADER_BYTES = 12
DATA, WINDOW_UPDATE, PING, GO_AWAY = range(4)
SYN, ACK, FIN, RST = 1, 2, 4, 8

WINDOW_BYTES = 256 * KIB  # the specification's first window; we never grant more
# A whole frame fits one noise message of 65535 bytes less its tag: a quarter of the CPU time.
NOISE_BYTES_MAX = 65519
FRAME_BYTES_MAX = NOISE_BYTES_MAX - HEADER_BYTES
PENDING_BYTES_MAX = 64 * KIB  # given and not yet written; then whoever writes waits
CONTROL_BYTES_MAX = 64 * KIB  # 5,000 frames of 12 bytes that a peer made us owe it
UNREAD_BYTES_MAX = MIB  # of an admitted peer, over all its streams
UNREAD_BYTES_MAX_STRANGER = 256 * KIB  # before it has said who it is
# Full frames at this rate would be a gigabyte a second; only tiny ones ever reach it.
FRAMES_PER_S_MAX = 20_000
WRITE_STALL_S = 30.0  # a frame of 64 KiB at 2 kB/s
UNREAD_STALL_S = 10.0  # while nobody takes what is there, the end of a connection is not seen
FLUSH_S = 0.2  # a last word on its way when we close
LINGER_S = 10.0  # a closed stream waits this long for the peer's end
KEEPALIVE_S = 15.0
_SWEEP_S = 5.0


class _Violation(Exception):
    """The peer broke the format or its window; ends the connection, and is raised nowhere else."""


class _Unread:
    """Bytes that lie in streams' inboxes, and who waits for them to be read."""

    def __init__(self) -> None:
        self.bytes_max = UNREAD_BYTES_MAX_STRANGER
        self._bytes = 0
        self._room = trio.Event()

    def add(self, size: int) -> None:
        self._bytes += size

    def take(self, size: int) -> None:
        self._bytes -= size
        self._room.set()

    async def wait_for_room(self) -> None:
        """Raises TooSlowError when nobody reads what is there."""
        if self._bytes <= self.bytes_max:
            return
        with trio.fail_after(UNREAD_STALL_S):
            while self._bytes > self.bytes_max:
                self._room = trio.Event()
                await self._room.wait()


class _FrameWriter:
    """Whole frames to one connection, in the order in which they were given.

    One task writes. What is given while it waits for its turn, or for the socket, leaves together:
    one noise message and one packet.
    """

    def __init__(self, conn: ISecureConn, end: Callable[[], None]) -> None:
        self._conn = conn
        self._end = end
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._owed_bytes = 0  # of control frames among them
        self._given = trio.Event()
        self._room = trio.Event()
        self._since_s: float | None = None  # a write is under way
        self.closed = False

    async def wait_for_room(self) -> None:
        """Return at once unless the peer takes nothing off the connection."""
        while self._bytes >= PENDING_BYTES_MAX and not self.closed:
            await self._room.wait()

    def give(self, frame: bytes) -> None:
        """After `wait_for_room`, with nothing awaited in between."""
        self._frames.append(frame)
        self._bytes += len(frame)
        self._given.set()

    def owe(self, kind: int, flags: int, stream_id: int, length: int) -> None:
        """Queue a control frame; never waits, so that reading never waits for writing."""
        if self.closed:
            return
        self._frames.append(_HEADER.pack(0, kind, flags, stream_id, length))
        self._bytes += HEADER_BYTES
        self._owed_bytes += HEADER_BYTES
        # A stream's beginning leaves with its first bytes: whoever opens one speaks, and whoever is
        # spoken to answers.
        if kind != WINDOW_UPDATE or flags not in (SYN, ACK):
            self._given.set()
        if self._owed_bytes > CONTROL_BYTES_MAX:
            self._end()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._given.wait()
            while self._frames:
                await self._write()
            self._given = trio.Event()

    async def _write(self) -> None:
        payload, self._since_s = self._take(), trio.current_time()
        await self._conn.write(payload)
        self._since_s = None
        self._room.set()
        self._room = trio.Event()

    def _take(self) -> bytes:
        """As many frames as fit one noise message."""
        size, count = 0, 0
        for frame in self._frames:
            if count and size + len(frame) > NOISE_BYTES_MAX:
                break
            size += len(frame)
            count += 1
        taken = [self._frames.popleft() for _ in range(count)]
        self._bytes -= size
        # no frame of data is as small as a header
        self._owed_bytes -= HEADER_BYTES * sum(len(frame) == HEADER_BYTES for frame in taken)
        return b"".join(taken)

    async def flush(self) -> None:
        """Return when all is written, or the connection is closed."""
        while (self._frames or self._since_s is not None) and not self.closed:
            self._given.set()
            await self._room.wait()

    def is_stalled(self, now_s: float) -> bool:
        """Whether the peer takes nothing; asked now and then, since a deadline a write is dear."""
        return self._since_s is not None and now_s - self._since_s > WRITE_STALL_S

    def close(self) -> None:
        self.closed = True
        self._frames.clear()
        self._room.set()


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
        self.session.on_taken(self, size)
        return piece

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
                header = _HEADER.pack(0, DATA, 0, self.stream_id, size)
                self.session.give(header + view[:size])
                view = view[size:]

    async def close(self) -> None:
        """Send FIN; what the peer still sends is dropped, and after LINGER_S it is cut off."""
        if self.closed or self.dead:
            return
        self.closed = True
        self.closed_at_s = trio.current_time()
        self.session.owe(WINDOW_UPDATE, FIN, self.stream_id, 0)
        self.session.drop_inbox(self)
        if self.ended:
            self.session.forget(self)
        await trio.lowlevel.checkpoint()

    async def reset(self) -> None:
        if not self.dead:
            self.session.owe(WINDOW_UPDATE, RST, self.stream_id, 0)
            self.session.forget(self)
        await trio.lowlevel.checkpoint()

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

    def __init__(self, conn: ISecureConn, peer_id: ID) -> None:
        self.secured_conn = conn
        self.peer_id = peer_id
        self.event_started = trio.Event()
        self.event_closed = trio.Event()
        self.unread = _Unread()
        self.rtt_s: float | None = None
        self.on_close: Callable[[], Awaitable[None]] | None = None
        self._streams: dict[int, YamuxStream] = {}
        self._next_id = 1 if conn.is_initiator else 2
        self._their_parity = 0 if conn.is_initiator else 1
        self._last_theirs = 0
        self._theirs_open = 0
        self._arrivals: deque[YamuxStream] = deque()
        self._arrived = trio.Event()
        self._scope: trio.CancelScope | None = None
        self._writer = _FrameWriter(conn, self._end)
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
        return self._arrivals.popleft()

    def on_taken(self, stream: YamuxStream, size: int) -> None:
        self.unread.take(size)
        stream.taken += size
        # half a window at a time: fewer frames, and the peer never runs dry on a fast link
        if stream.taken >= WINDOW_BYTES // 2 and not (stream.ended or stream.dead):
            stream.granted += stream.taken
            self.owe(WINDOW_UPDATE, 0, stream.stream_id, stream.taken)
            stream.taken = 0

    def drop_inbox(self, stream: YamuxStream) -> None:
        self.unread.take(len(stream.inbox))
        stream.inbox.clear()

    def forget(self, stream: YamuxStream) -> None:
        """The stream is over for both sides; its id is never used again."""
        if self._streams.pop(stream.stream_id, None) is None:
            return
        if stream.stream_id % 2 == self._their_parity:
            self._theirs_open -= 1
        stream.dead = True
        self.drop_inbox(stream)
        stream.wake()

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
        budget, refilled_at_s = float(FRAMES_PER_S_MAX), trio.current_time()
        while True:
            payload = await self.secured_conn.read()
            if not payload:
                return
            now_s = self._heard_at_s = trio.current_time()
            budget = min(FRAMES_PER_S_MAX, budget + (now_s - refilled_at_s) * FRAMES_PER_S_MAX)
            refilled_at_s = now_s
            pending += payload
            start = 0
            while len(pending) - start >= HEADER_BYTES:
                version, kind, flags, stream_id, length = _HEADER.unpack_from(pending, start)
                size = length if kind == DATA else 0
                if version != 0 or kind > GO_AWAY or size > WINDOW_BYTES:
                    raise _Violation("not a frame")
                if len(pending) - start - HEADER_BYTES < size:
                    break
                start += HEADER_BYTES
                self._on_frame(kind, flags, stream_id, length, pending[start : start + size])
                start += size
                budget -= 1
            del pending[:start]
            if budget < 0:
                await trio.sleep(-budget / FRAMES_PER_S_MAX)
            await self.unread.wait_for_room()

    def _on_frame(
        self, kind: int, flags: int, stream_id: int, length: int, payload: bytearray
    ) -> None:
        if kind == GO_AWAY:
            raise _Violation("peer goes away")
        if kind == PING:
            if flags & SYN:
                self.owe(PING, ACK, 0, length)
            elif flags & ACK:
                self.rtt_s = trio.current_time() - self._ping_at_s
            return
        if flags & SYN:
            self._on_opened(stream_id)
        stream = self._streams.get(stream_id)
        if stream is None:
            return  # of a stream that we have reset: it was under way
        if kind == WINDOW_UPDATE:
            stream.allowance += length
            if stream.allowance > 2**32:
                raise _Violation("window without end")
        elif payload:
            self._on_data(stream, payload)
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
            stream.inbox += payload
            self.unread.add(len(payload))

    def _on_opened(self, stream_id: int) -> None:
        if stream_id % 2 != self._their_parity or stream_id <= self._last_theirs:
            raise _Violation("stream id is not theirs to use")
        self._last_theirs = stream_id
        if self._theirs_open >= STREAMS_PER_PEER_MAX:
            self.owe(WINDOW_UPDATE, RST, stream_id, 0)
            return
        stream = YamuxStream(stream_id, self)
        self._streams[stream_id] = stream
        self._theirs_open += 1
        self.owe(WINDOW_UPDATE, ACK, stream_id, 0)
        self._arrivals.append(stream)
        self._arrived.set()
        self._arrived = trio.Event()
