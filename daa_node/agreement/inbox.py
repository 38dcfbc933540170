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
        self._post, self._arrived = trio.open_memory_channel[Delivery](INBOX_EVENTS_MAX)
        self._first: deque[Event] = deque()
        self._waiting: trio.CancelScope | None = None

    async def deliver(self, sender: NodeId, event: Event) -> None:
        """What a member brought; waits while the inbox is full."""
        await self._post.send((sender, event))

    async def answer(self, event: Event) -> None:
        """What a task of ours found out; waits while the inbox is full."""
        await self._post.send((None, event))

    def step_with(self, event: Event) -> None:
        """Our own word, or what is known at once: comes out before anything else."""
        self._first.append(event)
        if self._waiting is not None:
            self._waiting.cancel()  # what the wait had in hand is not lost, and a Tick is harmless

    async def next(self, deadline_ns: int | None) -> Delivery:
        """The next event; a Tick once the deadline has passed."""
        if self._first:
            return None, self._first.popleft()
        deadline_s = float("inf") if deadline_ns is None else deadline_ns / 1e9
        with trio.move_on_at(deadline_s) as self._waiting:
            return await self._arrived.receive()
        return None, Tick()
