"""The block tree above the newest final block: who descends from whom, and what may follow what.

    closed --set(r+1)--> open --result(r+1) or abort(r+1)--> closed     an empty block keeps either

A set opens its round and raises the height; a result or an abort closes the round. No set is
placed before the closing of the round before it is final. Blocks at or below the tip's view are
gone: a path that does not end in the tip conflicts with finality.
"""

from dataclasses import dataclass
from enum import Enum, auto

from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    GenesisPayload,
    ResultPayload,
    SetPayload,
)
from daa_consensus.membership import Membership
from daa_consensus.operations import membership_operations
from daa_dag.ids import BlockId

BLOCKS_MAX = 4_096  # a proposal a view since the newest final block, and a walk
# A node that is further behind catches up oldest first: its host feeds it finalizations in order.
WALK_BLOCKS_MAX = BLOCKS_MAX // 2


class Fit(Enum):
    FITS = auto()
    WAIT = auto()  # something that has not arrived may make it fit
    REFUSE = auto()


@dataclass(frozen=True, slots=True)
class Place:
    fit: Fit
    reason: str = ""


def follow(membership: Membership, block: Block, epoch_rounds: int) -> Membership:
    """Who votes, and what waits, once `block` is final: the next of the chain."""
    match block.payload:
        case SetPayload(operations=encoded) if encoded:
            return membership.decided(membership_operations(encoded))
        case ResultPayload(round=round_) | AbortPayload(round=round_):
            return membership.next_epoch() if round_ % epoch_rounds == 0 else membership
        case _:
            return membership


class Chain:
    """`tip` is the newest final block; `tip_open` says that its round awaits result or abort."""

    def __init__(self, tip: Block, tip_open: bool, epoch_rounds: int) -> None:
        assert epoch_rounds > 0
        self.tip = tip
        self.tip_open = tip_open
        self.epoch_rounds = epoch_rounds
        self._blocks: dict[BlockId, Block] = {tip.id: tip}

    @property
    def epoch(self) -> int:
        """The epoch of whatever comes next: each lasts `epoch_rounds` closed rounds."""
        closed_rounds = self.tip.height - (1 if self.tip_open else 0)
        return closed_rounds // self.epoch_rounds

    def may_execute(self, round_: int) -> bool:
        """Whether Exec of `round_` may be signed: its set is final, its closing is not."""
        return self.tip_open and self.tip.height == round_

    def get(self, block_id: BlockId) -> Block | None:
        return self._blocks.get(block_id)

    @property
    def walk_allowed(self) -> bool:
        """Whether to fetch one more ancestor of a final block."""
        return len(self._blocks) < WALK_BLOCKS_MAX

    def add(self, block: Block) -> None:
        """Remember a block above the tip, while there is room."""
        if block.view > self.tip.view and len(self._blocks) < BLOCKS_MAX:
            self._blocks[block.id] = block

    def missing(self, block_id: BlockId) -> BlockId | None:
        """The newest unknown block on the way from `block_id` down to the tip, if any."""
        while block_id != self.tip.id:
            block = self._blocks.get(block_id)
            if block is None:
                return block_id
            if block.parent_view <= self.tip.view and block.parent_id != self.tip.id:
                return None  # conflicts with the tip: nothing worth fetching
            block_id = block.parent_id
        return None

    def path(self, block_id: BlockId) -> list[Block] | None:
        """The blocks above the tip up to `block_id`, oldest first; None unless all are known."""
        blocks: list[Block] = []
        while block_id != self.tip.id:
            block = self._blocks.get(block_id)
            if block is None:
                return None
            blocks.append(block)
            block_id = block.parent_id
        return blocks[::-1]

    def is_open(self, path: list[Block]) -> bool:
        """Whether the round is open after the blocks of `path`, which starts above the tip."""
        is_open = self.tip_open
        for block in path:
            if not isinstance(block.payload, EmptyPayload):
                is_open = isinstance(block.payload, SetPayload)
        return is_open

    def place(self, block: Block) -> Place:
        """Whether `block` may stand where it wants to; its parent's certificates are not looked at.

        The first wrong thing is named.
        """
        if block.epoch != self.epoch:
            return Place(Fit.REFUSE, f"epoch {block.epoch} in epoch {self.epoch}")
        below = self.path(block.parent_id)
        if below is None:
            if self.missing(block.parent_id) is None:
                return Place(Fit.REFUSE, "conflicts with the newest final block")
            return Place(Fit.WAIT, "an ancestor is unknown")
        parent = below[-1] if below else self.tip
        if (block.parent_view, block.view > parent.view) != (parent.view, True):
            return Place(Fit.REFUSE, f"parent view {block.parent_view}, it is {parent.view}")
        return self._follows(block, parent, below)

    def _follows(self, block: Block, parent: Block, below: list[Block]) -> Place:
        is_open, height = self.is_open(below), parent.height
        match block.payload:
            case SetPayload(round=round_):
                if is_open or round_ != height + 1:
                    return Place(Fit.REFUSE, f"set of round {round_} after round {height}")
                if self.tip_open or self.tip.height != height:
                    return Place(Fit.WAIT, f"the closing of round {height} is not final")
                height = round_
            case ResultPayload(round=round_) | AbortPayload(round=round_):
                if not is_open or round_ != height:
                    return Place(Fit.REFUSE, f"closing of round {round_} that is not open")
            case GenesisPayload():
                return Place(Fit.REFUSE, "a second genesis")
            case EmptyPayload():
                pass
        if block.height != height:
            return Place(Fit.REFUSE, f"height {block.height}, it should be {height}")
        return Place(Fit.FITS)

    def split_trailing(self, path: list[Block]) -> tuple[list[Block], list[Block]]:
        """The part of a final path that is chain, and the empty blocks above an epoch's last one.

        The next epoch stands on the closing of its last round itself, whichever descendant made
        that closing final, so that all nodes start it from one block.
        """
        for index, block in enumerate(path[:-1]):
            closes = isinstance(block.payload, ResultPayload | AbortPayload)
            last = closes and block.height % self.epoch_rounds == 0
            if last and path[index + 1].epoch == block.epoch:
                return path[: index + 1], path[index + 1 :]
        return path, []

    def finalize(self, path: list[Block]) -> None:
        """Make the last block of `path` the tip; forget what is at or below its view."""
        self.tip_open = self.is_open(path)
        self.tip = path[-1]
        kept = [
            b for b in self._blocks.values() if b.view > self.tip.view and b.epoch >= self.epoch
        ]
        self._blocks = {block.id: block for block in [self.tip, *kept]}
