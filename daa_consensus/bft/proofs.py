"""What makes the newest final block final, and what ended the epochs before: for who is behind.

Who missed the end of an epoch cannot judge anything of a later committee's (see knowledge), so that
each epoch's own proof is remembered for a while.
"""

from typing import TypeAlias

from daa_consensus.bft.messages import Block
from daa_consensus.votes import Certificate
from daa_dag.ids import BlockId

CLOSINGS_KEPT = 4  # epochs; who is further behind gets pages of checkpoints from our host

Proof: TypeAlias = tuple[Certificate, tuple[Block, ...]]  # Finalized's certificate and trailing


class Proofs:
    """`newest` finalizes the tip, and is None for a genesis."""

    def __init__(self, newest: Proof | None) -> None:
        self.newest = newest
        self.closings: dict[int, tuple[Certificate, Block]] = {}  # by the epoch that it ended

    def closed(self, epoch: int, certificate: Certificate, certified: Block) -> None:
        """The certificate, of `epoch` or of its committee later, made the epoch's end final."""
        self.closings[epoch] = (certificate, certified)
        while len(self.closings) > CLOSINGS_KEPT:
            del self.closings[min(self.closings)]

    def trailing_block(self, block_id: BlockId) -> Block | None:
        """A block that is no part of the chain, and carries the newest proof."""
        trailing = self.newest[1] if self.newest is not None else ()
        return next((block for block in trailing if block.id == block_id), None)

    def beyond(
        self, epoch: int, finalized_view: int, tip: Block
    ) -> list[tuple[Certificate, Block | None]]:
        """What a peer in `epoch` lacks, oldest first; `tip` is our newest final block."""
        found: list[tuple[Certificate, Block | None]] = [
            self.closings[ended] for ended in sorted(self.closings) if ended >= epoch
        ]
        if finalized_view < tip.view and self.newest is not None:
            certificate, trailing = self.newest
            newest = (certificate, trailing[-1] if trailing else tip)
            found += [newest] if newest not in found else []
        return found
