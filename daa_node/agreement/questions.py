"""Questions of the machine that take time: choose a set, judge a block, hold a set's data.

Each runs as a task of its own and is answered with an event. A question about a view ends when the
machine leaves that view, and one about a round when a later one opens.
"""

from collections.abc import Awaitable, Callable

import trio

from daa_consensus.bft.effects import AskPayload
from daa_consensus.bft.events import DataHeld, Event, Judged, PayloadChosen
from daa_consensus.bft.messages import Block, SetPayload
from daa_dag.ids import BlockId
from daa_node.agreement.carried import loaded, why_unproven
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.parts import OpenRound


class Questions:
    """Answers what the open round, or the facts, know; `post` takes the answers."""

    def __init__(
        self, facts: Facts, inbound: Inbound, post: Callable[[Event], Awaitable[None]]
    ) -> None:
        self._facts = facts
        self._inbound = inbound
        self._post = post
        self.tasks: trio.Nursery | None = None
        self._round = 0
        self._listener: OpenRound | None = None
        self._opened = trio.lowlevel.ParkingLot()
        self._choosing = trio.CancelScope()
        self._judging: list[trio.CancelScope] = []  # of the view that the machine is in
        self._holding: list[tuple[int, trio.CancelScope]] = []  # with the round of each
        self.unjudged: dict[BlockId, Block] = {}  # of the view that the machine is in

    def listen(self, round_number: int, listener: OpenRound) -> None:
        """The round that questions are about from now on."""
        self._round, self._listener = round_number, listener
        for _, scope in (held for held in self._holding if held[0] < round_number):
            scope.cancel()
        self._holding = [held for held in self._holding if held[0] >= round_number]
        self._opened.unpark_all()

    def choose(self, ask: AskPayload) -> None:
        """Find the set to propose; an older question of this kind is void."""
        self._choosing.cancel()
        self._choosing = trio.CancelScope()
        self._nursery().start_soon(self._choose, ask, self._choosing)

    def judge(self, block: Block) -> None:
        self.unjudged[block.id] = block
        scope = trio.CancelScope()
        self._judging.append(scope)
        self._nursery().start_soon(self._judge, block, scope)

    def hold(self, block: Block) -> None:
        scope = trio.CancelScope()
        self._holding.append((block.height, scope))
        self._nursery().start_soon(self._hold, block, scope)

    def leave_view(self) -> None:
        """The machine enters another view: a judgement of the last one is of no use."""
        for scope in self._judging:
            scope.cancel()
        self._judging.clear()
        self.unjudged.clear()

    async def _choose(self, ask: AskPayload, scope: trio.CancelScope) -> None:
        with scope:
            chosen = await (await self._listener_of(ask.round)).proposal()
            payload = loaded(chosen, self._facts, self._inbound)
            await self._post(PayloadChosen(ask.view, payload))

    async def _judge(self, block: Block, scope: trio.CancelScope) -> None:
        assert isinstance(block.payload, SetPayload), "the machine judges all else itself"
        with scope:
            reason = why_unproven(block.payload, self._inbound)
            if reason is None:
                listener = await self._listener_of(block.payload.round)
                reason = await listener.judge(block.payload)
            self.unjudged.pop(block.id, None)
            await self._post(Judged(block.id, reason is None, reason or ""))

    async def _hold(self, block: Block, scope: trio.CancelScope) -> None:
        assert isinstance(block.payload, SetPayload)
        with scope:
            listener = await self._listener_of(block.payload.round)
            await listener.hold_all(block.payload.offers)
            await self._post(DataHeld(block.id))

    async def _listener_of(self, round_number: int) -> OpenRound:
        """The round's listener, once it is open here. Waits for a round that is over, too."""
        while self._listener is None or self._round != round_number:
            await self._opened.park()
        return self._listener

    def _nursery(self) -> trio.Nursery:
        assert self.tasks is not None, "questions come while the agreement runs"
        return self.tasks
