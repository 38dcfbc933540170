"""Makes tasks of what this daemon has, hands them out, and computes itself what must be.

    somebody is ready --a task that is open, or a new one--> given, at a pace for all together
    volunteers differ, or nobody else is there --> computed here, cheap and dear apart (looks)

Of kinds that cost us little one task in KNOWN_EVERY is one whose answer we have, computed just
before: whoever has seen one has seen it once, and can tell nobody else. Of the others the desk has
us look at some that volunteers agree about, when it is too late for them to know.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import trio

from daa_node.errors import NodeError
from daa_node.gateway.looks import Looks
from daa_node.gateway.piece import IN_BITS, Piece
from daa_node.gateway.task_desk import Effect, Seat, Task, TaskDesk
from daa_node.network.pace import Pace, SharedPace
from daa_node.seams import Entropy, Offload
from daa_node.wire.limits import MIB
from daa_node.wire.volunteer_messages import TASK_ID_BYTES, Result, TaskKind

GIVEN_PER_S, GIVEN_BURST = 20.0, 40.0  # tasks to all volunteers: 2 ms of the loop each
SENT_PER_S, SENT_BURST = 4.0 * MIB, 32.0 * MIB  # bytes of them: an eighth of a core at most
# What we compute ourselves: shares of a core, and tasks of each sort that wait. A dear one may take
# minutes; those of cheap kinds, which take milliseconds, do not wait for it.
CHEAP_SHARE, DEAR_SHARE = 0.01, 0.02
LOOKS_MAX = 32
KNOWN_EVERY = 5
IDLE_S = 2.0  # where there is nothing to give

Apply = Callable[[Iterable[Effect]], None]


class Source(Protocol):
    """Where pieces of one kind come from."""

    @property
    def kind(self) -> TaskKind: ...

    @property
    def has_some(self) -> bool:
        """Whether there is, or may soon be, a piece."""

    async def make(self, draw: Callable[[str], int]) -> Piece | None:
        """A piece of what this daemon has, by lot; None if there is none now.

        Raises NodeError where the disk or the chain does not bring it.
        """


class TaskGiver:
    """`run` must be running; `send` takes a frame to a seat."""

    def __init__(
        self,
        desk: TaskDesk,
        sources: Iterable[Source],
        offload: Offload,
        entropy: Entropy,
        send: Callable[[Seat, bytes], None],
    ) -> None:
        self._desk = desk
        self._sources = tuple(sources)
        self._offload = offload
        self._entropy = entropy
        self._send = send
        self._cheap = Looks(LOOKS_MAX, CHEAP_SHARE)
        self._dear = Looks(LOOKS_MAX, DEAR_SHARE)
        self._changed = trio.Event()
        self.given = 0  # tasks, ever, to each volunteer one

    @property
    def computed(self) -> int:
        """Tasks, ever, by ourselves."""
        return self._cheap.computed + self._dear.computed

    def wanted(self) -> list[str]:
        """Kinds of which there is, or may soon be, something to do."""
        return sorted({str(source.kind) for source in self._sources if source.has_some})

    def wake(self) -> None:
        """Somebody is ready who was not, or something is there to be done."""
        self._changed.set()
        self._changed = trio.Event()

    async def run(self, apply: Apply) -> None:
        """Until cancelled. What the desk makes of it goes to `apply`."""

        def tell(task: Task, truth: Result) -> None:
            apply(self._desk.looked(task, truth))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give)
            for looks in (self._cheap, self._dear):
                nursery.start_soon(looks.run, self._offload, tell)

    def look(self, task: Task, is_disputed: bool) -> bool:
        """Compute it ourselves, when its turn comes; False if too many wait already."""
        looks = self._cheap if task.piece.kind in IN_BITS else self._dear
        return looks.add(task, is_disputed)

    async def _give(self) -> None:
        pace, sent = Pace(GIVEN_PER_S, GIVEN_BURST), SharedPace(SENT_PER_S, SENT_BURST)
        while True:
            changed = self._changed
            given = self._desk.give(trio.current_time())
            if given is None and not await self._open_one():
                with trio.move_on_after(IDLE_S):
                    await changed.wait()
            if given is not None:
                task, seat = given
                self.given += 1
                self._send(seat, task.frame)
                await sent.take(len(task.frame))
                await pace.take()

    async def _open_one(self) -> bool:
        """Put one more piece on the desk, of a kind that somebody wants; False if there is none."""
        lacking = self._desk.lacking()
        able = [source for source in self._sources if source.kind in lacking and source.has_some]
        while able:
            source = able.pop(self._desk.draw("kind") % len(able))
            try:
                piece, answer = await self._made(source)
            except NodeError:
                continue  # what the disk does not bring others see and tell, who need it more
            if piece is not None:
                task_id = self._entropy.bytes(TASK_ID_BYTES)
                self._desk.open(task_id, piece, answer, trio.current_time())
                return True
        return False

    async def _made(self, source: Source) -> tuple[Piece | None, Result | None]:
        """A piece, and its result if that is known. Raises NodeError."""
        is_known = self._desk.draw("known") % KNOWN_EVERY == 0
        piece = await source.make(self._desk.draw)
        if piece is None or not is_known or piece.kind not in IN_BITS:
            return piece, None
        return piece, await self._offload.run(piece.truth)
