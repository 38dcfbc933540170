"""Pages of checkpoints as they leave us: each made once, however many ask for it, and kept a while.

Whoever is behind asks page after page, and so do others from the same places. A page that ends
below the newest final block stays what it is; one that reaches it does until the next is final.
"""

from collections import OrderedDict

import trio

from daa_dag import canonical
from daa_dag.ids import BlockId
from daa_node.checkpoints.chain import ChainStore
from daa_node.rounds.catch_up import (
    asked_blocks,
    page_after,
    page_value,
    part_below,
    part_value,
)
from daa_node.wire.limits import MIB

PAGES_BYTES_MAX = 16 * MIB  # 250 pages of four validators, ten of a hundred


class Pages:
    """The pages of one chain, encoded."""

    def __init__(self, chain: ChainStore) -> None:
        self._chain = chain
        # By the block asked about: the page, and the tip with which it is out of date.
        self._made: OrderedDict[BlockId, tuple[bytes, BlockId | None]] = OrderedDict()
        self._bytes = 0
        self._making = trio.Lock()

    async def answer(self, body: bytes) -> bytes:
        """What is asked for. Raises PeerFault and StorageFailed."""
        block_id, upper_id = asked_blocks(body)
        if upper_id is None:
            return await self.after(block_id)
        async with self._making:
            return canonical.encode(part_value(await part_below(self._chain, block_id, upper_id)))

    async def after(self, block_id: BlockId) -> bytes:
        """The wire form of what follows the block here. Raises StorageFailed."""
        async with self._making:
            tip_id = self._chain.final_tip[0].id
            encoded, of_tip = self._made.get(block_id, (b"", None))
            if not encoded or of_tip not in (None, tip_id):
                page = await page_after(self._chain, block_id)
                encoded = canonical.encode(page_value(page))
                if page is not None:
                    self._keep(block_id, encoded, tip_id, page.blocks[-1].id == tip_id)
            else:
                self._made.move_to_end(block_id)
            return encoded

    def _keep(self, block_id: BlockId, encoded: bytes, tip_id: BlockId, is_newest: bool) -> None:
        before, _ = self._made.pop(block_id, (b"", None))
        self._made[block_id] = (encoded, tip_id if is_newest else None)
        self._bytes += len(encoded) - len(before)
        while self._bytes > PAGES_BYTES_MAX:
            _, (oldest, _) = self._made.popitem(last=False)
            self._bytes -= len(oldest)
