"""What was made for guests and has not been taken by them yet: all of it fits one room.

    made --room?--> on its way, piece by piece --taken--> gone
                        \\--> given up: its guest is slowest, and others wait for room

Guests, who are peers and no members, may ask and never read. So an answer enters the room before
its bytes are there, and waits outside while that is full. Meanwhile whoever would take longest for
its own, at the pace that it has kept, is given up, if that is longer than TAKES_S_MAX. So who reads
nothing leaves soon after JUDGED_AFTER_S, and who takes an answer within TAKES_S_MAX, a mebibyte of
a blob at 0.6 Mbit/s, is never given up, whatever others do.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import trio

from daa_node.errors import PeerFault
from daa_node.wire.blob_messages import PIECE_BYTES
from daa_node.wire.limits import MIB

# Thirty-one answers over bulk sessions, or six pages of a hundred validators.
ROOM_BYTES = 32 * MIB
JUDGED_AFTER_S = 2.0  # four pieces of who is as slow as that
TAKES_S_MAX = 16.0
LOOK_AGAIN_S = 0.25

Piece = bytes | memoryview


class Answer:
    """One on its way, and how much of it has been taken."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.scope = trio.CancelScope()
        self._began_s: float | None = None
        self._taken_bytes = 0

    async def send(self, send: Callable[[Piece], Awaitable[None]], pieces: Iterator[Piece]) -> None:
        """From now on its guest is judged by how fast it reads."""
        if self._began_s is None:
            self._began_s = trio.current_time()
        for piece in pieces:
            await send(piece)
            self._taken_bytes += len(piece)

    def would_take_s(self) -> float:
        """Of the whole answer at the pace so far; 0 while it is too early to tell."""
        if self._began_s is None:
            return 0.0
        age_s = trio.current_time() - self._began_s
        if age_s < JUDGED_AFTER_S:
            return 0.0
        # the piece under way may be all but taken
        return age_s * self.size_bytes / (self._taken_bytes + PIECE_BYTES)


class Untaken:
    """All guests' answers of one node, whatever carries them."""

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        self._room_bytes = room_bytes
        self._answers: set[Answer] = set()
        self._turn = trio.Lock()  # of who waits for room longest
        self._left = trio.Event()  # set when one leaves

    @property
    def held_bytes(self) -> int:
        return sum(answer.size_bytes for answer in self._answers)

    @asynccontextmanager
    async def room(self, size_bytes: int) -> AsyncIterator[Answer]:
        """For an answer, until it is taken. Raises PeerFault "unread" when it is given up."""
        answer = Answer(size_bytes)
        async with self._turn:
            await self._make_room(size_bytes)
            self._answers.add(answer)
        try:
            with answer.scope:
                yield answer
        finally:
            self._leave(answer)
        if answer.scope.cancelled_caught:
            raise PeerFault("unread", f"took too little of {size_bytes} bytes, and others wait")

    async def _make_room(self, size_bytes: int) -> None:
        while self._answers and self.held_bytes + size_bytes > self._room_bytes:
            slowest = max(self._answers, key=Answer.would_take_s)
            if slowest.would_take_s() > TAKES_S_MAX:
                self._leave(slowest)
                slowest.scope.cancel()
                continue
            self._left = trio.Event()
            with trio.move_on_after(LOOK_AGAIN_S):
                await self._left.wait()

    def _leave(self, answer: Answer) -> None:
        self._answers.discard(answer)
        self._left.set()


def in_pieces(payload: Piece) -> Iterator[Piece]:
    """At least one, the last of which may be shorter."""
    view = memoryview(payload)
    for at in range(0, max(len(view), 1), PIECE_BYTES):
        yield view[at : at + PIECE_BYTES]
