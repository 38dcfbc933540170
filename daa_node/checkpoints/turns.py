"""Who votes when, as final blocks tell it, so that a start need not look at them again.

The chain knows nothing of members. Somebody who follows them lends a follower that is led on as far
as the chain on the disk goes, no further, and its record is kept with the summary.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol

from daa_consensus.bft.messages import Block, EmptyPayload
from daa_dag.checkpoint import ZERO_ID
from daa_dag.ids import BlockId
from daa_node.checkpoints.summary import Membership


class Follower(Protocol):
    """Of members, from block to block."""

    def matters(self, block: Block) -> bool:
        """Whether who is a member may follow from it."""

    def recall(self, record: bytes) -> bool:
        """Come to what an earlier one has recorded; False if it cannot read that."""

    def follow(self, blocks: Sequence[Block]) -> object:
        """Take in final blocks that matter, oldest first."""

    def record(self) -> bytes:
        """All that it has come to, for a later process."""


class Turns:
    """Of one chain; `membership` is None until somebody has asked."""

    def __init__(self, path_down: Callable[[BlockId], AsyncGenerator[Block, None]]) -> None:
        self._path_down = path_down
        self._follower: Follower | None = None
        self.membership: Membership | None = None

    def recall(self, membership: Membership | None) -> None:
        """As an earlier process has left it."""
        self._follower, self.membership = None, membership

    async def lead_on(self, follower: Follower, tip_id: BlockId) -> None:
        """Let it follow what is above `membership`, up to this final block. Raises StorageFailed.

        Without one the whole chain is read. It is led on from now on, with each `look`.
        """
        if self.membership is not None and not follower.recall(self.membership.record):
            self.membership = None
        await self._take(follower, tip_id)
        self._follower = follower

    async def look(self, tip_id: BlockId) -> None:
        """Take in what has become final since. Raises StorageFailed."""
        if self._follower is not None:
            await self._take(self._follower, tip_id)

    async def _take(self, follower: Follower, tip_id: BlockId) -> None:
        known = BlockId(ZERO_ID) if self.membership is None else self.membership.tip
        new, newest = list[Block](), known
        async with aclosing(self._path_down(tip_id)) as path_down:
            async for block in path_down:
                if block.id == known:
                    break
                # Nothing but empty blocks is ever left beside the path, above the end of an epoch.
                if newest == known and not isinstance(block.payload, EmptyPayload):
                    newest = block.id
                if follower.matters(block):
                    new.append(block)
        follower.follow(new[::-1])
        self.membership = Membership(newest, follower.record())
