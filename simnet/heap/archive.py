"""The published chain of one simulated node: final blocks on its disk, and what finalizes them.

Checkpoints are written in groups, all of it or nothing, so a power cut takes none of it away.
"""

from collections.abc import AsyncIterator, Iterable

from daa_consensus.bft.messages import Block
from daa_consensus.votes import Certificate
from daa_dag.ids import BlockId, Digest, tagged_digest


class Archive:
    """Final blocks, oldest first. `trailing` lie above them and only carry an epoch's proof."""

    def __init__(self, genesis: Block) -> None:
        self.chain = [genesis]
        self.trailing: tuple[Block, ...] = ()
        self.proof: Certificate | None = None  # finalizes the newest, trailing ones included

    @property
    def tip(self) -> Block:
        """The newest block, trailing ones included."""
        return (self.chain[-1], *self.trailing)[-1]

    def publish(
        self, blocks: Iterable[Block], trailing: tuple[Block, ...], proof: Certificate
    ) -> None:
        self.chain += blocks
        self.trailing = trailing
        self.proof = proof

    async def block(self, block_id: BlockId) -> Block | None:
        path = (*self.chain, *self.trailing)
        return next((block for block in reversed(path) if block.id == block_id), None)

    async def path_down(self) -> AsyncIterator[Block]:
        """Everything, newest first."""
        for block in (*reversed(self.trailing), *reversed(self.chain)):
            yield block

    def root(self, length: int) -> Digest:
        """What a node has agreed to whose first `length` blocks are these."""
        return Digest(tagged_digest("simnet-root", [block.id for block in self.chain[:length]]))
