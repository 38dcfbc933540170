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
  * what a peer's frames cost us is counted and paid for (see budgets), by who is no member out of
    one budget with all others who are none; between two payments everybody else has a turn.
"""

from collections.abc import Awaitable, Callable
from secrets import randbits

import trio
from libp2p.abc import IMuxedConn, ISecureConn
from libp2p.connection_types import ConnectionType
from libp2p.peer.id import ID
from multiaddr import Multiaddr

from daa_node.adapters.budgets import Bill, Budget
from daa_node.adapters.libp2p_frames import (
    ACK,
    DATA,
    FIN,
    GO_AWAY,
    HEADER,
    HEADER_BYTES,
    PING,
    RST,
    SYN,
    WINDOW_UPDATE,
    FrameWriter,
)
from daa_node.adapters.yamux_streams import (
    ANSWERED_UNITS,
    LINGER_S,
    WINDOW_BYTES,
    Streams,
    Violation,
    YamuxStream,
)
from daa_node.network.carried import Carried
from daa_node.wire.limits import KIB

READ_UNITS = 3  # a noise message, opened
BYTES_A_UNIT = 4 * KIB  # of what it held
FRAME_UNITS = 1
FLUSH_S = 0.2  # a last word on its way when we close
KEEPALIVE_S = 15.0
PING_BITS = 31  # of a number that others send back: nobody takes it for a negative one
_SWEEP_S = 5.0


class YamuxSession(IMuxedConn):
    """All streams of one connection. `start` runs until the connection ends; it raises nothing."""

    def __init__(
        self,
        conn: ISecureConn,
        peer_id: ID,
        strangers: Budget | None = None,
        carried: Carried | None = None,
    ) -> None:
        """`strangers` is what all who are not admitted may spend together."""
        self.secured_conn = conn
        self.peer_id = peer_id
        self.event_started = trio.Event()
        self.event_closed = trio.Event()
        self.bill = Bill(strangers)
        self._admitted = False
        self.rtt_s: float | None = None
        self.on_round_trip: Callable[[float], None] | None = None
        self.on_close: Callable[[], Awaitable[None]] | None = None
        self._scope: trio.CancelScope | None = None
        self._writer = FrameWriter(conn, self._end)
        self.streams = Streams(self, conn, self._writer, self.bill, carried or Carried())
        self._heard_at_s = 0.0
        self._ping_at_s = 0.0
        self._ping_number, self._is_ping_out = 0, False

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
        return await self.streams.open()

    async def accept_stream(self) -> YamuxStream:
        return await self.streams.accept()

    def admit(self, is_member: Callable[[], bool], guests: Budget | None) -> None:
        """The peer is a stranger no longer; see Bill."""
        if not self._admitted:
            self._admitted = True
            self.bill.admit(is_member, guests)

    def keep(self, visitors: Budget) -> None:
        """The peer stays as a visitor; see Bill."""
        self.bill.keep(visitors)

    def _end(self) -> None:
        """Stop reading and writing; `start` does the rest."""
        if self._scope is not None:
            self._scope.cancel()

    async def _shut(self) -> None:
        if self._writer.closed:
            await self.event_closed.wait()
            return
        self._writer.close()
        self.streams.end()
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
                raise Violation("silent")
            if self._writer.is_stalled(now_s):
                raise Violation("takes nothing")
            if now_s - pinged_at_s >= KEEPALIVE_S:
                pinged_at_s = self._ping_at_s = now_s
                # drawn: who could guess it would answer before it has come, and look near
                self._ping_number, self._is_ping_out = randbits(PING_BITS), True
                self._writer.owe(PING, SYN, 0, self._ping_number)
            for stream in self.streams.all():
                if stream.closed and now_s - stream.closed_at_s > LINGER_S:
                    await stream.reset()
            await trio.sleep(_SWEEP_S)

    def _answered(self, number: int) -> None:
        """Our newest ping; who answers an older one, or twice, tells nothing of the way."""
        if self._ping_number == number and self._is_ping_out:
            self._is_ping_out, self.rtt_s = False, trio.current_time() - self._ping_at_s
            if self.on_round_trip is not None:
                self.on_round_trip(self.rtt_s)

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
                    raise Violation("not a frame")
                if len(pending) - start - HEADER_BYTES < size:
                    break
                start += HEADER_BYTES
                self._on_frame(kind, flags, stream_id, length, pending[start : start + size])
                start += size
                await self.bill.settle()
            del pending[:start]
            await self.bill.settle()
            await self.streams.unread.wait_for_room()

    def _on_frame(
        self, kind: int, flags: int, stream_id: int, length: int, payload: bytearray
    ) -> None:
        self.bill.units += FRAME_UNITS
        if kind == GO_AWAY:
            raise Violation("peer goes away")
        if kind == PING:
            if flags & SYN:
                self.bill.units += ANSWERED_UNITS
                self._writer.owe(PING, ACK, 0, length)
            elif flags & ACK:
                self._answered(length)
            return
        if flags & SYN:
            self.streams.on_opened(stream_id, flags)
        stream = self.streams.get(stream_id)
        if stream is None:
            return  # of a stream that we have reset: it was under way
        if kind == WINDOW_UPDATE and length:
            stream.on_window(length)
        elif payload:
            stream.on_data(payload)
        if flags & RST:
            self.streams.forget(stream)
        elif flags & FIN:
            stream.on_end()
