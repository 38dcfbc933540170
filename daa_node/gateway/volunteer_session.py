"""One volunteer's stream from its welcome to its end: what it says, and what it is sent.

reads --message--> the desk            writes <--frame-- outbox, or a beat when nothing was said
   \\-- too fast, silent, idle, malformed: ended, with the reason as the last frame, after what
       waits in the outbox: the word that a result was wrong comes before the end for it
"""

from collections.abc import Callable

import trio

from daa_node.errors import PeerFault
from daa_node.gateway.task_desk import SLOWEST_BYTES_PER_S, Seat
from daa_node.network.pace import Pace
from daa_node.seams import ByteStream
from daa_node.wire.framing import MessageReader, message_in_pieces
from daa_node.wire.limits import KIB, VOLUNTEER_FRAME_BYTES_MAX
from daa_node.wire.volunteer_messages import (
    Message,
    Ready,
    decode_message,
    encode_beat,
    encode_no,
)

FRAMES_PER_S, FRAMES_BURST = 4.0, 32.0
BYTES_PER_S, BYTES_BURST = 64.0 * KIB, 512.0 * KIB
SILENT_S = 30.0
BEAT_S = 10.0
IDLE_S = 600.0
OUTBOX_MAX = 32  # two tasks, and what was said of many before
PIECE_BYTES = 64 * KIB
PIECE_S = PIECE_BYTES / SLOWEST_BYTES_PER_S + SILENT_S
PARTING_S = 2.0


class VolunteerSession:
    """`run` until it ends; `send` and `end` may be called meanwhile, and after."""

    def __init__(
        self, stream: ByteStream, seat: Seat, on_message: Callable[[Message], None]
    ) -> None:
        """`on_message` raises PeerFault for what the volunteer may not say."""
        self.seat = seat
        self._stream = stream
        self._on_message = on_message
        self._outbox, self._frames = trio.open_memory_channel[bytes](OUTBOX_MAX)
        self._scope = trio.CancelScope()
        self._why: PeerFault | None = None
        self._paused_s: float | None = trio.current_time()  # since when it wants nothing

    async def run(self) -> None:
        """Raises PeerFault for what has ended it; returns when the volunteer has left."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    try:
                        await self._read()
                    except PeerFault as fault:
                        self._end(fault)
                    if self._why is None:
                        nursery.cancel_scope.cancel()
        except* trio.BrokenResourceError:
            pass  # it has left without a word, as it may
        if self._why is not None:
            raise self._why

    def send(self, frame: bytes) -> None:
        """Have it sent, after what waits already; once it was ended, nothing more is."""
        if self._why is not None:
            return
        try:
            self._outbox.send_nowait(frame)
        except trio.WouldBlock:
            self.end("silent", "you take nothing of what you are sent")

    def end(self, reason: str, words: str) -> None:
        """Hear no more of it, and end as soon as what waits is sent, in PARTING_S at most."""
        self._end(PeerFault(reason, words))

    def _end(self, why: PeerFault) -> None:
        if self._why is None:
            self._why = why
            self._outbox.close()
            self._scope.deadline = trio.current_time() + PARTING_S

    async def _read(self) -> None:
        reader = MessageReader(self._stream, VOLUNTEER_FRAME_BYTES_MAX)
        frames, payload_bytes = Pace(FRAMES_PER_S, FRAMES_BURST), Pace(BYTES_PER_S, BYTES_BURST)
        while True:
            with trio.move_on_after(SILENT_S) as patience:
                frame = await reader.next()
            if patience.cancelled_caught:
                raise PeerFault("silent", f"nothing was heard of you for {SILENT_S:.0f} s")
            if frame is None or self._why is not None:
                return
            if not frames.take_at_once() or not payload_bytes.take_at_once(len(frame)):
                raise PeerFault("too-fast", f"{FRAMES_PER_S:.0f} frames a second are too many")
            message = decode_message(frame)
            self._note_pause(message)
            self._on_message(message)

    def _note_pause(self, message: Message) -> None:
        now_s = trio.current_time()
        if isinstance(message, Ready):
            if message.count and message.kinds:
                self._paused_s = None
            elif self._paused_s is None:
                self._paused_s = now_s
        if self._paused_s is not None and now_s - self._paused_s > IDLE_S:
            raise PeerFault("idle", "others may want the place: come back when you go on")

    async def _write(self) -> None:
        beats = 0
        while True:
            frame = None
            with trio.move_on_after(BEAT_S):
                try:
                    frame = await self._frames.receive()
                except trio.EndOfChannel:
                    self._scope.cancel()
                    return
            if frame is None:
                frame = encode_beat(beats)
                beats += 1
            is_taken = False
            with trio.move_on_after(SILENT_S + len(frame) / SLOWEST_BYTES_PER_S):
                is_taken = await self._send_in_time(frame)
            if not is_taken:
                self.end("silent", "you take too little of what you are sent")
                self._scope.cancel()  # of a frame that is cut short nothing can follow
                return

    async def _send_in_time(self, frame: bytes) -> bool:
        """Whether each part of it was taken within its time: who takes a little is still there."""
        for piece in message_in_pieces(frame, PIECE_BYTES):
            with trio.move_on_after(PIECE_S) as patience:
                await self._stream.send_all(piece)
            if patience.cancelled_caught:
                return False
        return True


async def part(stream: ByteStream, why: PeerFault) -> None:
    """Say why as the last frame, if it is taken at once."""
    with trio.move_on_after(PARTING_S):
        for piece in message_in_pieces(encode_no(why.reason, why.detail), PIECE_BYTES):
            await stream.send_all(piece)
