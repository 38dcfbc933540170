"""The final blocks that tell who votes when, so that a start need not look for them again."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from daa_consensus.bft.messages import Block, EmptyPayload
from daa_dag.checkpoint import ZERO_ID
from daa_dag.ids import BlockId
from daa_node.checkpoints.digests import Digests
from daa_node.errors import StorageFailed


class Turns:
    """Of one chain, up to `tip`; `joined` is None until somebody has asked."""

    def __init__(
        self,
        path_down: Callable[[BlockId], AsyncGenerator[Block, None]],
        read: Callable[[BlockId], Awaitable[Block | None]],
    ) -> None:
        self._path_down = path_down
        self._read = read
        self.matters: Callable[[Block], bool] = lambda _block: True
        self.recall(None, BlockId(ZERO_ID))

    def recall(self, joined: bytes | None, tip: BlockId) -> None:
        """As an earlier process has left it."""
        self.joined = joined  # oldest first
        self.tip = tip

    async def down_from(self, tip_id: BlockId) -> AsyncGenerator[Block, None]:
        """Those at this final block and below, newest first; to be closed. Raises StorageFailed.

        The first time the whole chain is read.
        """
        await self.look(tip_id)
        found = Digests()
        found.take(self.joined or b"")
        for place in reversed(range(len(found))):
            block = await self._read(BlockId(found[place]))
            if block is None:
                raise StorageFailed(f"blocks/{found[place].hex()} is missing")
            yield block

    async def look(self, tip_id: BlockId) -> None:
        """Take in what has become final since. Raises StorageFailed."""
        new, newest = list[BlockId](), self.tip
        async with aclosing(self._path_down(tip_id)) as path_down:
            async for block in path_down:
                if self.joined is not None and block.id == self.tip:
                    break
                # Nothing but empty blocks is ever left beside the path, above the end of an epoch.
                if newest == self.tip and not isinstance(block.payload, EmptyPayload):
                    newest = block.id
                if self.matters(block):
                    new.append(block.id)
        found = Digests()
        found.take(self.joined or b"")
        for block_id in reversed(new):
            found.add(block_id)
        self.recall(found.joined, newest)
