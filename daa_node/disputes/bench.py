"""Turns at the worker for what is not our own training: at the start of it, one after another.

Whoever wants a turn waits for our next training, which begins as much later; no round waits for it,
since everybody stops training at the plan's time as ever.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import trio

from daa_node.errors import Unavailable

Found = TypeVar("Found")


@dataclass(eq=False, slots=True)
class _Turn:
    begun: trio.Event = field(default_factory=trio.Event)
    over: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class Bench:
    """Whoever asks for turns bounds how many it waits for."""

    def __init__(self) -> None:
        self._waiting: deque[_Turn] = deque()

    async def do(self, work: Callable[[], Awaitable[Found]]) -> Found:
        """What comes of the work, in its turn. Raises Unavailable if that ended before."""
        turn = _Turn()
        self._waiting.append(turn)
        try:
            await turn.begun.wait()
            with turn.scope:
                return await work()
            raise Unavailable("it takes longer than a round of ours leaves for it")
        finally:
            turn.over.set()
            if turn in self._waiting:
                self._waiting.remove(turn)

    async def work_off(self, seconds: float) -> None:
        """Give turns until that time is up, or nobody waits; none where a check took all of it."""
        if seconds <= 0:
            return
        with trio.move_on_after(seconds):
            while self._waiting:
                turn = self._waiting.popleft()
                turn.begun.set()
                try:
                    await turn.over.wait()
                finally:
                    turn.scope.cancel()
