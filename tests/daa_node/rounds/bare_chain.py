"""A chain as pages are made of it: final blocks and what finalizes them, in memory."""

from collections.abc import AsyncIterator, Iterable, Set

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_consensus.votes import Certificate
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, BlockId, ValidatorSetRoot, VertexId
from daa_node.checkpoints.final_path import Descent, EpochEnds, FinalPath
from daa_node.checkpoints.loose_proofs import LooseProofs
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.seams import StateRef
from tests.daa_node.agreement.memory_disk import work_store

NOTHING = genesis_vertex(
    StateRef(BlobRoot(bytes(32)), BlobRoot(bytes(32))), ValidatorSetRoot(bytes(32))
)


class BareChain:
    """As much of a ChainStore as a page server asks; `trailing` only carry an epoch's proof."""

    def __init__(self, genesis: Block, epoch_rounds: int) -> None:
        self._epoch_rounds = epoch_rounds
        self._chain = [genesis]
        self._trailing: list[Block] = []
        self._blocks = {genesis.id: genesis}
        self._certificates: dict[BlockId, Certificate] = {}
        work = work_store()
        self.furthest = EpochEnds(work)
        self.path = FinalPath(work)
        self.path.lead_on(None, Descent([genesis], ()))
        self.loose = LooseProofs()  # it has no files

    def publish(self, blocks: Iterable[Block], certificate: Certificate) -> None:
        """Blocks on top; `certificate` finalizes the last of them."""
        for block in blocks:
            self._add(block)
        tip = (self._chain[-1], *self._trailing)[-1]
        assert certificate.statement.value == tip.id
        self._certificates[tip.id] = certificate
        self.path.certify(tip)
        said = certificate.statement
        self.furthest.note(said.domain.epoch, said.view, tip.id)

    def _add(self, block: Block) -> None:
        newest = self._chain[-1]
        is_closing = isinstance(newest.payload, ResultPayload | AbortPayload)
        ended = is_closing and newest.height % self._epoch_rounds == 0
        if ended and block.epoch == newest.epoch:
            self._trailing.append(block)
        else:
            assert block.parent_id == newest.id
            self._trailing.clear()
            self._chain.append(block)
        self._blocks[block.id] = block
        self.path.lead_on(self._blocks[block.parent_id], Descent([block], ()))

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
        block = self._blocks.get(block_id)
        above = None if block is None else await self.path.above(block, count_max)
        return None if above is None else [self._blocks[each] for each in above]

    @property
    def certified(self) -> Set[BlockId]:
        """Blocks whose own certificate is here."""
        return self._certificates.keys()

    async def final_certificate(self, block_id: BlockId) -> Certificate | None:
        return self._certificates.get(block_id)

    async def vertex(self, _vertex_id: VertexId) -> Vertex:
        """Rounds train nothing here: each result is said to have come to the same."""
        return NOTHING

    async def exec_certificate(self, _vertex_id: VertexId) -> None:
        """Goes with a vertex."""
