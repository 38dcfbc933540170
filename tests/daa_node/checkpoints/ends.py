"""A follower that remembers which blocks end an epoch, in place of one that follows members."""

from collections.abc import Sequence

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_dag.ids import BlockId
from daa_node.checkpoints.chain import ChainStore
from tests.daa_node.checkpoints.little_chain import EPOCH_ROUNDS


class Ends:
    """Follows nothing but the ends of epochs, and records their blocks."""

    def __init__(self) -> None:
        self.blocks: list[BlockId] = []

    def matters(self, block: Block) -> bool:
        closes = isinstance(block.payload, ResultPayload | AbortPayload)
        return closes and block.height % EPOCH_ROUNDS == 0

    def recall(self, record: bytes) -> bool:
        self.blocks = [BlockId(record[at : at + 32]) for at in range(0, len(record), 32)]
        return True

    def follow(self, blocks: Sequence[Block]) -> None:
        self.blocks += [block.id for block in blocks]

    def record(self) -> bytes:
        return b"".join(self.blocks)


async def ends_of(chain: ChainStore) -> list[BlockId]:
    ends = Ends()
    await chain.turns.lead_on(ends, chain.final_tip[0].id)
    return ends.blocks
