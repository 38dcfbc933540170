"""What waits to be stepped: letters and answers in order of arrival, our own words before them."""

from collections import deque

import trio

from daa_consensus.bft.events import Event, Tick
from daa_dag.ids import NodeId

INBOX_EVENTS_MAX = 256  # about two views of a hundred members; then letters wait in the sockets

Delivery = tuple[NodeId | None, Event]  # who brought it; None: ourselves


class Inbox:
    """One task takes events out, any task puts them in."""

    def __init__(self) -> None:
        self._first: deque[Event] = deque()
        self._arrived: deque[Delivery] = deque()
        self._more = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    async def deliver(self, sender: NodeId | None, *events: Event) -> None:
        """What a member brought, or a task of ours found out; waits while the inbox is full."""
        if self._room or len(self._arrived) >= INBOX_EVENTS_MAX:
            await self._room.park()  # in the order of arrival: nobody overtakes who waits
        self._arrived.extend((sender, event) for event in events)
        self._more.unpark_all()
        self._let_in()

    async def answer(self, event: Event) -> None:
        """What a task of ours found out; waits while the inbox is full."""
        await self.deliver(None, event)

    def step_with(self, event: Event) -> None:
        """Our own word, or what is known at once: comes out before anything else."""
        self._first.append(event)
        self._more.unpark_all()

    async def next(self, deadline_ns: int | None) -> Delivery:
        """The next event; a Tick once the deadline has passed."""
        await trio.lowlevel.checkpoint_if_cancelled()  # who ends takes no step more
        if not self._first and not self._arrived:
            deadline_s = float("inf") if deadline_ns is None else deadline_ns / 1e9
            with trio.move_on_at(deadline_s):
                await self._more.park()
        if self._first:
            return None, self._first.popleft()
        if self._arrived:
            taken = self._arrived.popleft()
            self._let_in()
            return taken
        return None, Tick()

    def _let_in(self) -> None:
        """The next who waits, if there is room: it brings several events for one that was taken."""
        if len(self._arrived) < INBOX_EVENTS_MAX:
            self._room.unpark()
