"""A fetch that is over commits its blob, and lets those that spread it hear so, for a moment."""

from typing import Any

import pytest
import trio
import trio.testing

from daa_node.network.farewell import FAREWELL_S, commit_and_tell
from tests.daa_node.network.bulk_stage import MemoryWriter

SYNC_S = 5.0


class Syncing(MemoryWriter):
    """Nothing is missing; it takes its time."""

    def __init__(self, sync_s: float = 0.0) -> None:
        super().__init__(count=0)
        self._sync_s = sync_s
        self.durable: bool | None = None

    async def commit(self, durable: bool = True) -> None:
        await trio.sleep(self._sync_s)
        self.durable = durable


class Holder:
    """Spreads the blob, and once it is told that we have all, has two more things to say."""

    def __init__(self, hears_after_s: float, post: trio.MemorySendChannel[Any]) -> None:
        self._hears_after_s = hears_after_s
        self._post = post
        self.finished = trio.Event()
        self.said = trio.Event()

    def finish(self) -> None:
        self.finished.set()

    async def run(self) -> None:
        await self.finished.wait()
        await trio.sleep(self._hears_after_s)
        for _ in range(2):
            await self._post.send(None)
        self.said.set()


async def ended(
    writer: Syncing, *hears_after_s: float, durable: bool = True
) -> tuple[float, list[bool]]:
    """How long it takes, and who has been told by then."""
    post, inbox = trio.open_memory_channel[Any](0)
    holders: list[Any] = [Holder(after_s, post) for after_s in hears_after_s]
    began_s = trio.current_time()
    with trio.fail_after(10 * SYNC_S):
        async with trio.open_nursery() as nursery:
            for holder in holders:
                nursery.start_soon(holder.run)
            try:
                await commit_and_tell(writer, durable, holders, inbox)
            finally:
                took_s = trio.current_time() - began_s
                nursery.cancel_scope.cancel()
    return took_s, [holder.said.is_set() for holder in holders]


@pytest.mark.parametrize("durable", [True, False])
async def test_all_hear_of_it_and_it_is_committed_as_it_was_asked(
    autojump_clock: trio.testing.MockClock, durable: bool
) -> None:
    writer = Syncing()
    took_s, told = await ended(writer, 0.0, 0.9 * FAREWELL_S, 0.5 * FAREWELL_S, durable=durable)
    assert told == [True, True, True]
    assert took_s == pytest.approx(0.9 * FAREWELL_S)
    assert writer.durable is durable


async def test_who_does_not_hear_is_waited_for_no_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    took_s, told = await ended(Syncing(), 2 * SYNC_S)
    assert told == [False]
    assert took_s == pytest.approx(FAREWELL_S)


async def test_they_hear_while_it_is_synced(autojump_clock: trio.testing.MockClock) -> None:
    took_s, told = await ended(Syncing(sync_s=SYNC_S), 0.5 * FAREWELL_S)
    assert told == [True]
    assert took_s == pytest.approx(SYNC_S)
