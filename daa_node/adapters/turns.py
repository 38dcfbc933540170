"""A budget of strangers: whoever is served next is drawn by lot.

In a queue that is longer than anybody can wait, whoever comes first is served too late, and so is
everybody. Drawn by lot, whoever comes again has a chance that is its part of those who come, and
nobody can tell when to come. The lot falls on a network first, then on the newest who comes from
there, who has most of its time left.
"""

from collections.abc import Callable
from random import Random

import trio

from daa_node.network.pace import Pace


class DrawnPace:
    """A Pace of many networks; who is cancelled before its turn has spent nothing."""

    def __init__(self, per_s: float, burst: float, lots: Random) -> None:
        self._pace = Pace(per_s, burst)
        self._lots = lots
        self._is_taken = False
        self._waiting: dict[str, list[trio.Event]] = {}

    async def take(self, network: str, amount: float, on_turn: Callable[[], None]) -> None:
        """Waits for a turn, says so, waits until nothing is owed, and spends."""
        await self._turn(network)
        try:
            on_turn()
            await trio.sleep(self._pace.debt_s)
            self._pace.spend(amount)
        finally:
            self._pass_on()

    def give_back(self, amount: float) -> None:
        """What was paid ahead and not needed."""
        self._pace.spend(-amount)

    async def _turn(self, network: str) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        drawn, came = trio.Event(), False
        self._waiting.setdefault(network, []).append(drawn)
        try:
            await drawn.wait()
            came = True
        finally:
            if not came:
                self._give_up(network, drawn)

    def _give_up(self, network: str, drawn: trio.Event) -> None:
        if drawn.is_set():
            self._pass_on()
            return
        self._waiting[network].remove(drawn)
        if not self._waiting[network]:
            del self._waiting[network]

    def _pass_on(self) -> None:
        self._is_taken = bool(self._waiting)
        if self._is_taken:
            network = self._lots.choice(list(self._waiting))
            newest = self._waiting[network].pop()
            if not self._waiting[network]:
                del self._waiting[network]
            newest.set()
