"""The published chain of one simulated node: final blocks on its disk, and what finalizes them.

Checkpoints are written in groups, all of it or nothing, so a power cut takes none of it away. To
whoever asks for pages it looks like the daemon's (daa_node/checkpoints/chain.py); it has no
vertices.
"""

from collections.abc import AsyncIterator, Iterable, Set

from daa_consensus.bft.messages import AbortPayload, Block, GenesisPayload, ResultPayload
from daa_consensus.votes import Certificate
from daa_dag.ids import BlockId, Digest, VertexId, tagged_digest
from daa_node.checkpoints.chain import FinalPath

_CLOSINGS = (ResultPayload, AbortPayload)


class Archive:
    """Final blocks, oldest first. `trailing` lie above them and only carry an epoch's proof."""

    def __init__(self, genesis: Block, epoch_rounds: int) -> None:
        self._epoch_rounds = epoch_rounds
        self.chain = [genesis]
        self.trailing: list[Block] = []
        self.proof: Certificate | None = None  # finalizes the newest, trailing ones included
        self.furthest: dict[int, Certificate] = {}  # of each epoch; of one that is over, its end
        self._blocks = {genesis.id: genesis}
        self._places = {genesis.id: 0}  # of blocks that are chain
        self._certificates: dict[BlockId, Certificate] = {}
        self.path = FinalPath()
        self.path.lead_on(genesis.parent_id, [genesis.id])

    @property
    def tip(self) -> Block:
        """The newest block, trailing ones included."""
        return (self.chain[-1], *self.trailing)[-1]

    def publish(self, blocks: Iterable[Block], certificate: Certificate) -> None:
        """Add what is not there yet. `certificate` finalizes the last of the blocks."""
        before = self.tip
        for block in blocks:
            if block.id not in self._blocks:
                self._add(block)
        if self.tip is before:
            return  # others' pages had brought it
        value = certificate.statement.value
        assert value == self.tip.id, "a checkpoint ends with what is certified"
        self._certificates[self.tip.id] = certificate
        self.furthest[certificate.statement.domain.epoch] = self.proof = certificate

    def _add(self, block: Block) -> None:
        newest = self.chain[-1]
        ended = isinstance(newest.payload, _CLOSINGS) and newest.height % self._epoch_rounds == 0
        if ended and block.epoch == newest.epoch:
            assert block.parent_id == self.tip.id, "an epoch's proof stands on its last block"
            self.trailing.append(block)
        else:
            assert block.parent_id == newest.id, "checkpoints follow each other"
            self.trailing.clear()
            self._places[block.id] = len(self.chain)
            self.chain.append(block)
        self._blocks[block.id] = block
        self.path.lead_on(block.parent_id, [block.id])

    @property
    def resume_point(self) -> Block:
        """Where to follow others from: the newest block that closes a round, or genesis."""
        closing = (*_CLOSINGS, GenesisPayload)
        return next(block for block in reversed(self.chain) if isinstance(block.payload, closing))

    async def block(self, block_id: BlockId) -> Block | None:
        return self._blocks.get(block_id)

    async def path_down(self, block_id: BlockId) -> AsyncIterator[Block]:
        """The block and its ancestors down to the genesis block, newest first."""
        block = self._blocks[block_id]
        yield block
        while block.view > 0:
            block = self._blocks[block.parent_id]
            yield block

    async def path_up(self, block_id: BlockId, count_max: int) -> list[Block] | None:
        """At most so many final blocks right above this one; None if it is not final here."""
        place = self._places.get(block_id)
        if place is None:
            return None
        return [*self.chain[place + 1 :], *self.trailing][:count_max]

    @property
    def certified(self) -> Set[BlockId]:
        """Blocks whose own certificate is here."""
        return self._certificates.keys()

    async def final_certificate(self, block_id: BlockId) -> Certificate | None:
        return self._certificates.get(block_id)

    async def vertex(self, _vertex_id: VertexId) -> None:
        """Rounds train nothing here."""

    async def exec_certificate(self, _vertex_id: VertexId) -> None:
        """Goes with a vertex."""

    def root(self, length: int) -> Digest:
        """What a node has agreed to whose first `length` blocks are these."""
        return Digest(tagged_digest("simnet-root", [block.id for block in self.chain[:length]]))
