"""What waits to be stepped: messages and answers as they arrive, our own statements before them."""

from collections import deque
from math import inf

import trio

from daa_consensus.bft.events import Event, Tick
from daa_dag.ids import NodeId

INBOX_EVENTS_MAX = 256  # about two views of a hundred members; then messages wait in the sockets

Delivery = tuple[NodeId | None, Event]  # who brought it; None: ourselves


class Inbox:
    """One task takes events out, any task puts them in."""

    def __init__(self) -> None:
        self._first: deque[Event] = deque()
        self._arrived: deque[Delivery] = deque()
        self._more = trio.lowlevel.ParkingLot()
        self._alarm = trio.CancelScope()  # rings at its deadline
        self._deadline_s = inf  # of who waits for an event
        self._is_late = False
        self._room = trio.lowlevel.ParkingLot()

    async def deliver(self, sender: NodeId | None, *events: Event) -> None:
        """What a member brought, or a task of ours found out; waits while the inbox is full."""
        if self._room or len(self._arrived) >= INBOX_EVENTS_MAX:
            await self._room.park()  # in the order of arrival: nobody overtakes who waits
        self._arrived.extend((sender, event) for event in events)
        if self._more:
            self._more.unpark_all()
        self._let_in()

    async def answer(self, event: Event) -> None:
        """What a task of ours found out; waits while the inbox is full."""
        await self.deliver(None, event)

    def step_with(self, event: Event) -> None:
        """Our own statement, or what is known at once: comes out before anything else."""
        self._first.append(event)
        if self._more:
            self._more.unpark_all()

    async def next(self, deadline_ns: int | None) -> Delivery:
        """The next event; a Tick once the deadline has passed."""
        await trio.lowlevel.checkpoint_if_cancelled()  # who ends takes no step more
        if not self._first and not self._arrived:
            self._deadline_s = inf if deadline_ns is None else deadline_ns / 1e9
            if self._deadline_s < self._alarm.deadline:
                self._alarm.deadline = self._deadline_s
            self._is_late = False
            while not (self._is_late or self._first or self._arrived):
                await self._more.park()
        if self._first:
            return None, self._first.popleft()
        if self._arrived:
            taken = self._arrived.popleft()
            self._let_in()
            return taken
        return None, Tick()

    async def run(self) -> None:
        """Wake who waits at its deadline, until cancelled.

        Deadlines move with most events, mostly away: an alarm that rings too early is cheaper than
        one that is set for each event.
        """
        while True:
            with trio.CancelScope(deadline=self._deadline_s) as self._alarm:
                await trio.sleep_forever()
            if trio.current_time() >= self._deadline_s:
                self._deadline_s, self._is_late = inf, True
                self._more.unpark_all()

    def _let_in(self) -> None:
        """The next who waits, if there is room: it brings several events for one that was taken."""
        if self._room and len(self._arrived) < INBOX_EVENTS_MAX:
            self._room.unpark()
