"""Which blocks windows go through: the final path, from the newest finalization down.

Where a block cannot be read, the path has a gap, and goes on with the newest block below that is
final by itself. Nobody follows who votes over a gap (see contents), so what lies above it is judged
by whom that is known of.
"""

from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    ResultPayload,
    decode_block,
)
from daa_consensus.errors import ConsensusError
from daa_dag.errors import DagError
from daa_dag.ids import BlockId
from daa_node.checkpoints.chain_index import Headers
from daa_node.checkpoints.contents import ChainFacts
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.layout import BLOCKS
from daa_node.checkpoints.long_listing import LongListing
from daa_node.checkpoints.plain_files import Gone, Unreadable

Slot = tuple[int, int]  # epoch and view


class NotPlain(Exception):
    """This is for somebody else to name, who holds all headers in memory."""


def expect(holds: bool) -> None:
    """Raises NotPlain."""
    if not holds:
        raise NotPlain


class VerifyPath:
    """Of one chain. All verbs raise Gone where another try may help, and NotPlain."""

    def __init__(
        self, files: ChainFiles, listing: LongListing, facts: ChainFacts, headers: Headers
    ) -> None:
        self._files = files
        self._listing = listing
        self._facts = facts
        self._headers = headers
        self.lost: set[BlockId] = set()  # blocks that cannot be read

    def find(self, genesis: BlockId) -> None:
        """Note the path above the genesis block."""
        tip = self._tip(None)
        while tip is not None:
            slot = self._walk(tip, genesis)
            tip = None if slot is None else self._tip(slot)

    def _walk(self, tip: Block, genesis: BlockId) -> Slot | None:
        """Note it and what it stands on; above a gap, the slot of what is lost, or a higher one."""
        block = tip
        while True:
            expect(block.view > 0)
            self._headers.add_below(block.id)
            if block.parent_id == genesis:
                return None
            parent = self.look(block.parent_id)
            if parent is None:
                expect(block.parent_view < block.view)
                return block.epoch, block.parent_view
            block = parent

    def _tip(self, below: Slot | None) -> Block | None:
        """The block of the newest finalization that says where its block stands."""
        for block_id, epoch, view in self._headers.finals_down():
            if below is not None and (epoch, view) >= below:
                continue
            block = self.look(block_id)
            if block is not None and (block.epoch, block.view) == (epoch, view):
                return block
        return None

    def ends_epoch(self, block: Block) -> bool:
        """Whether it closes the last round of its epoch."""
        closes = isinstance(block.payload, ResultPayload | AbortPayload)
        return closes and block.height % self._facts.epoch_rounds == 0

    def block(self, block_id: BlockId) -> Block:
        """As it is, to be judged with its window."""
        block = self.look(block_id)
        if block is None:
            raise NotPlain
        return block

    def look(self, block_id: BlockId) -> Block | None:
        """The same; None if it cannot be read, and is noted as lost."""
        block = self._read(block_id)
        if block is None:
            self.lost.add(block_id)
        return block

    def _read(self, block_id: BlockId) -> Block | None:
        limits = self._facts.limits
        name = f"{BLOCKS}/{block_id.hex()}"
        try:
            payload = self._files.read(name, limits.block_bytes_max, again=True)
        except Gone:
            if name in self._listing:
                raise
            return None
        except Unreadable:
            return None
        try:
            block = decode_block(payload, limits)
        except (DagError, ConsensusError):
            return None
        return block if block.id == block_id and block.chain_id == self._facts.chain_id else None
