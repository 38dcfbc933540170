"""Turns at the worker for what is not our own training: at the start of it, one after another.

Whoever wants a turn waits for our next training, which begins as much later; no round waits for it,
since everybody stops training at the plan's time as ever.

Nor does training wait for good, whatever others ask us for: rounds that turns take most of do not
follow on each other, and what no round has time for takes ever fewer of them.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

import trio

from daa_node.errors import Unavailable

MOST = 0.5  # of a round's training
REST_ROUNDS_MAX = 8  # whatever was cut off is tried a few times while its dispute may last

Found = TypeVar("Found")


@dataclass(eq=False, slots=True)
class _Turn:
    least_s: float
    begun: trio.Event = field(default_factory=trio.Event)
    over: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class Bench:
    """Whoever asks for turns bounds how many it waits for."""

    def __init__(self) -> None:
        self._waiting: deque[_Turn] = deque()
        self._rests_left = 1  # rounds without turns; how long one is, the first has yet to tell
        self._rest = 0  # how many there were to be the last time

    async def do(self, work: Callable[[], Awaitable[Found]], least_s: float = 0.0) -> Found:
        """What comes of the work, in its turn. Raises Unavailable if that ended before.

        Work that takes `least_s` or more waits for the next round where less is left of this one.
        """
        turn = _Turn(least_s)
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
        """Give turns until that time is up, or nobody waits; none where a check took all of it.

        Or where the rounds before went to turns: once a round.
        """
        if seconds <= 0:
            return
        if self._rests_left > 0:
            self._rests_left -= 1
            return
        began_s = trio.current_time()
        left_s = inf  # so that the first is begun, however long the last one like it has taken
        is_cut = True
        try:
            with trio.move_on_after(seconds) as limit:
                while self._waiting and self._waiting[0].least_s <= left_s:
                    turn = self._waiting.popleft()
                    turn.begun.set()
                    try:
                        await turn.over.wait()
                    finally:
                        turn.scope.cancel()
                    left_s = limit.deadline - trio.current_time()
            is_cut = limit.cancelled_caught
        finally:  # or others have ended the round: a turn had all that we had of it
            self._note_round(seconds, trio.current_time() - began_s, is_cut)

    def _note_round(self, seconds: float, spent_s: float, is_cut: bool) -> None:
        has_most = is_cut or spent_s > MOST * seconds
        if is_cut:
            self._rest = min(max(1, 2 * self._rest), REST_ROUNDS_MAX)
        elif spent_s > 0:
            self._rest = max(self._rest // 2, int(has_most))
        self._rests_left = self._rest if has_most else 0
