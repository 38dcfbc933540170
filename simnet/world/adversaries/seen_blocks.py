"""What a liar has seen proposed: blocks to vote for that it should not vote for."""

from daa_consensus.bft.messages import Block
from daa_consensus.votes import Kind, Statement
from daa_node.agreement.messages import Message, Proposed

BLOCKS_KEPT = 64  # the newest views' are what a lie is about


class SeenBlocks:
    """Blocks by slot, in the order in which they were seen."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], list[Block]] = {}

    def note(self, message: Message) -> None:
        """Remember what the message proposes, if it does."""
        if isinstance(message.body, Proposed):
            block = message.body.block
            seen = self._blocks.setdefault((block.epoch, block.view), [])
            if block not in seen:
                seen.append(block)
            while len(self._blocks) > BLOCKS_KEPT:
                del self._blocks[next(iter(self._blocks))]

    def of(self, statement: Statement) -> list[Block]:
        """What was proposed in the view that the statement speaks of."""
        return self._blocks.get((statement.domain.epoch, statement.view), [])


def votes_beside(statement: Statement, block: Block | None) -> list[Statement]:
    """All that there is to say in the statement's view: give it up, and vote for the block."""
    said: list[tuple[Kind, int, bytes | None]] = [(Kind.NULLIFY, 0, None)]
    if block is not None:
        said += [(kind, block.height, block.id) for kind in (Kind.NOTARIZE, Kind.FINALIZE)]
    return [
        Statement(statement.domain, kind, statement.view, height, value)
        for kind, height, value in said
    ]
