"""Whose request is answered next, where each peer has one flow of our link over all its sessions.

A request that waits for its turn is told so every few seconds: what is before it may take long on a
slow link, and the peer must not take a busy node for a dead one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

import trio

from daa_dag.ids import NodeId
from daa_node.errors import Unavailable
from daa_node.prompt_lock import PromptLock
from daa_node.seams import FrameStream
from daa_node.wire.blob_messages import IN_TURN

IN_TURN_EVERY_S = 5.0  # four of them before a peer gives us up


class AnsweringTurns:
    """Of one server."""

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[NodeId, PromptLock] = WeakValueDictionary()

    def of(self, node_id: NodeId) -> PromptLock:
        """The peer's: whoever serves a session of it holds on to this."""
        return self._turns.setdefault(node_id, PromptLock())


@asynccontextmanager
async def in_turn(stream: FrameStream, turn: PromptLock) -> AsyncIterator[None]:
    """Ours, for one answer; until it comes the peer hears that it will."""
    if turn.is_free:
        async with turn:
            yield
        return
    is_ours = False

    async def acquire() -> None:
        nonlocal is_ours
        await turn.acquire()
        is_ours = True

    try:
        await patiently(stream, acquire)
        yield
    finally:
        if is_ours:  # also where we were cut off behind a last word that the peer does not take
            turn.release()


async def patiently(stream: FrameStream, wait: Callable[[], Awaitable[None]]) -> None:
    """Until `wait`, which raises nothing, is over; meanwhile the peer hears that it goes on."""
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_say_so, stream, over)
        await wait()
        over.set()  # a word that is on its way leaves first: half a frame would end the session


async def _say_so(stream: FrameStream, over: trio.Event) -> None:
    with suppress(Unavailable):  # it is gone: the answer finds that out
        while True:
            with trio.move_on_after(IN_TURN_EVERY_S):
                await over.wait()
                return
            await stream.send_frame(IN_TURN)
