"""Tasks that this daemon computes itself, one after the other, within a share of a core.

    asked for --is there room?--> waits --computed--> told        no room: nobody was right or wrong

What volunteers differ about comes before what they agree about, since somebody lied: half of the
room is for the latter. Of what they differ about no address has more than half, so that no liar
hides all others. Large tasks take more room.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import trio

from daa_node.gateway.task_desk import Task
from daa_node.network.pace import Pace
from daa_node.seams import Offload
from daa_node.wire.limits import MIB
from daa_node.wire.volunteer_messages import Result

BURST_S = 10.0  # of computing, before the share counts
BYTES_MAX = 64 * MIB  # that wait


@dataclass(frozen=True, slots=True)
class _Waiting:
    task: Task
    is_disputed: bool
    addresses: frozenset[str]  # of who said something about it
    room: int


class Looks:
    """`run` must be running."""

    def __init__(self, waiting_max: int, share: float) -> None:
        self._waiting_max = waiting_max
        self._share = share  # of a core
        self._waiting: list[_Waiting] = []  # what is under way included
        self._changed = trio.Event()
        self.computed = 0

    def add(self, task: Task, is_disputed: bool) -> bool:
        """Have it computed when its turn comes; False if there is no room."""
        addresses = frozenset(seat.address for seat, _ in task.verdicts.values())
        most, half = self._waiting_max, self._waiting_max // 2
        room = max(1, -(-task.piece.size_bytes * most // BYTES_MAX))
        agreed, held = 0, Counter[str]()
        for one in self._waiting:
            if one.is_disputed:
                held.update(dict.fromkeys(one.addresses, one.room))
            else:
                agreed += one.room
        if sum(one.room for one in self._waiting) + room > most:
            return False
        if is_disputed and any(held[address] + room > half for address in addresses):
            return False
        if not is_disputed and agreed + room > half:
            return False
        self._waiting.append(_Waiting(task, is_disputed, addresses, room))
        self._changed.set()
        return True

    async def run(self, offload: Offload, tell: Callable[[Task, Result], None]) -> None:
        """Until cancelled."""
        own = Pace(self._share, BURST_S)
        while True:
            while not self._waiting:
                self._changed = trio.Event()
                await self._changed.wait()
            waiting = self._waiting
            chosen = next((one for one in waiting if one.is_disputed), waiting[0])
            began_s = trio.current_time()
            truth = await offload.run(chosen.task.piece.truth)
            waiting.remove(chosen)
            self.computed += 1
            tell(chosen.task, truth)
            await own.take(trio.current_time() - began_s)
