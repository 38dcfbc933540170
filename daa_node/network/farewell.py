"""The end of a fetch: the blob is committed, and whoever spreads it hears that we have all."""

from collections.abc import Sequence

import trio

from daa_node.errors import StorageFailed, Unavailable
from daa_node.network.blob_source import BlobSource, News
from daa_node.network.relay_source import RelaySource
from daa_node.seams import BlobWriter

FAREWELL_S = 0.1  # to tell holders that we have all, while it is being synced


async def commit_and_tell(
    writer: BlobWriter,
    durable: bool,
    sources: Sequence[BlobSource | RelaySource],
    inbox: trio.MemoryReceiveChannel[News],
) -> None:
    """Raises as the writer's commit does.

    Out of the nurseries nothing may come by itself: they would raise it in a group.
    """
    failure: StorageFailed | Unavailable | None = None
    for source in sources:
        source.finish()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_drain, inbox)
        async with trio.open_nursery() as both:
            both.start_soon(_wait_for, sources)
            try:
                await writer.commit(durable)
            except (StorageFailed, Unavailable) as fault:
                failure = fault
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _drain(inbox: trio.MemoryReceiveChannel[News]) -> None:
    async for _ in inbox:
        pass


async def _wait_for(sources: Sequence[BlobSource | RelaySource]) -> None:
    with trio.move_on_after(FAREWELL_S):
        for source in sources:
            await source.said.wait()
