"""The block tree above the newest final block: who descends from whom, and what may follow what.

    closed --set(r+1)--> open --result(r+1) or abort(r+1)--> closed     an empty block keeps either

A set opens its round and raises the height; a result or an abort closes the round. No set is
placed before the closing of the round before it is final. Blocks at or below the tip's view are
gone: a path that does not end in the tip conflicts with finality.

However many blocks are notarized and not final, all of them are remembered: what is above a final
block must be known for it to become final. Each question costs the same, however many there are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from daa_consensus.bft.evidence import decode_evidence
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    GenesisPayload,
    ResultPayload,
    SetPayload,
)
from daa_consensus.committee import VALIDATORS_MAX
from daa_consensus.enrolment import enrolments
from daa_consensus.errors import BadMessage
from daa_consensus.membership import Membership
from daa_consensus.operations import membership_operations
from daa_consensus.roll import aborted
from daa_dag.ids import BlockId, Digest, NodeId

# A node that is further behind catches up oldest first: its host feeds it finalizations in order.
# Rounds, not blocks: any number of empty ones may lie between two of them.
WALK_ROUNDS_MAX = 512
# Of evidence in final sets, whatever the committee was when it was given.
ANY_COMMITTEE = Limits(VALIDATORS_MAX, VALIDATORS_MAX)


class Fit(Enum):
    FITS = auto()
    WAIT = auto()  # something that has not arrived may make it fit
    REFUSE = auto()


@dataclass(frozen=True, slots=True)
class Place:
    fit: Fit
    reason: str = ""


def follow(membership: Membership, block: Block, epoch_rounds: int) -> Membership:
    """Who votes, who trains, and what waits, once `block` is final: the next of the chain."""
    match block.payload:
        case SetPayload() as decided:
            return _after_set(membership, decided)
        case ResultPayload(round=round_, vertex_id=vertex_id):
            return _after_round(membership, round_, Digest(vertex_id), epoch_rounds)
        case AbortPayload(round=round_):
            return _after_round(membership, round_, None, epoch_rounds)
        case _:
            return membership


def _after_set(now: Membership, decided: SetPayload) -> Membership:
    proofs, encoded = decided.evidence, decided.operations
    if proofs or encoded:
        now = now.decided(membership_operations(encoded), offences(proofs))
    if now.roll.is_inert:
        return now
    requests = [enrolment.request for enrolment in enrolments(encoded)]
    authors = {offer.author for offer in decided.offers}
    voting = now.committee.stake_of.keys() - {*now.convicted}
    roll = now.roll.decided(decided.round, requests, authors, now.convicted, voting)
    return replace(now, roll=roll)


def _after_round(
    now: Membership, round_: int, vertex_id: Digest | None, epoch_rounds: int
) -> Membership:
    """Its successor's trainers are drawn, and maybe an epoch begins before that."""
    if vertex_id is None and not now.roll.is_inert:
        now = replace(now, roll=aborted(now.roll, round_))
    if round_ % epoch_rounds == 0:
        now = now.next_epoch()
    if now.roll.is_inert:
        return now
    room = max(0, now.roll.rules.contributors_max - len(now.committee.validators))
    seed = now.roll.seed if vertex_id is None else vertex_id  # an abort leaves the parent
    return replace(now, roll=now.roll.drawn(round_ + 1, seed, room))


def offences(proofs: Sequence[bytes]) -> list[tuple[NodeId, int]]:
    """Who broke a rule in which epoch, by the evidence of a final set; what is none is skipped."""
    found: list[tuple[NodeId, int]] = []
    for encoded in proofs:
        try:
            evidence = decode_evidence(encoded, ANY_COMMITTEE)
        except BadMessage:
            continue
        found.append((evidence.offender, evidence.epoch))
    return found


class Chain:
    """`tip` is the newest final block; `tip_open` says that its round awaits result or abort."""

    def __init__(self, tip: Block, tip_open: bool, epoch_rounds: int) -> None:
        assert epoch_rounds > 0
        self.tip = tip
        self.tip_open = tip_open
        self.epoch_rounds = epoch_rounds
        self._blocks: dict[BlockId, Block] = {tip.id: tip}
        # Of blocks whose ancestors are all known: the sets and closings among them and it.
        self._decisions: dict[BlockId, tuple[Block, ...]] = {tip.id: ()}
        self._lower: dict[BlockId, BlockId] = {}  # an ancestor, everything above it known
        self._proposed: dict[BlockId, int] = {}  # blocks that so far are no more, with their views

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

    def walk_allowed(self, height: int) -> bool:
        """Whether to fetch the ancestors of a block of this height one after the other."""
        return height - self.tip.height <= WALK_ROUNDS_MAX

    def add(self, block: Block) -> None:
        """Remember a block above the tip, which a quorum stands behind."""
        if block.view > self.tip.view:
            self._blocks[block.id] = block
            self._proposed.pop(block.id, None)

    def propose(self, block: Block) -> None:
        """Remember a leader's proposal, for as long as it may become more."""
        if block.view > self.tip.view and block.id not in self._blocks:
            self._blocks[block.id] = block
            self._proposed[block.id] = block.view

    def forget_proposals(self, before_view: int, notarized: Iterable[BlockId]) -> None:
        """Drop what was proposed in earlier views, unless one of `notarized` stands on it."""
        over = {known for known, view in self._proposed.items() if view < before_view}
        if not over:
            return
        needed: set[BlockId] = set()
        for known in notarized:
            while known in self._blocks and known not in needed:
                needed.add(known)
                known = self._blocks[known].parent_id
        self._proposed = {b: view for b, view in self._proposed.items() if b not in over}
        self._blocks = {b: block for b, block in self._blocks.items() if b not in over - needed}
        self._decisions, self._lower = {self.tip.id: ()}, {}

    def missing(self, block_id: BlockId) -> BlockId | None:
        """The newest unknown block on the way from `block_id` down to the tip, if any.

        None, too, where that way conflicts with the tip: nothing of it is worth fetching.
        """
        end = self._end(block_id)
        return None if end in self._blocks else end

    def decisions(self, block_id: BlockId) -> tuple[Block, ...] | None:
        """The sets and closings above the tip up to the block; None unless all blocks are known."""
        if self._end(block_id) not in self._decisions:
            return None
        way: list[Block] = []
        while block_id not in self._decisions:
            way.append(self._blocks[block_id])
            block_id = way[-1].parent_id
        decided = self._decisions[block_id]
        for block in reversed(way):
            if not isinstance(block.payload, EmptyPayload):
                decided = (*decided, block)
            self._decisions[block.id] = decided
        return decided

    def _end(self, block_id: BlockId) -> BlockId:
        """Where the way down ends: at what is unknown, what conflicts with the tip, or known well.

        Remembered for all blocks that were passed.
        """
        passed: list[BlockId] = []
        while block_id not in self._decisions:
            block = self._blocks.get(block_id)
            if block is None or (
                block.parent_view <= self.tip.view and block.parent_id != self.tip.id
            ):
                break
            passed.append(block_id)
            block_id = self._lower.get(block_id, block.parent_id)
        for known in passed:
            self._lower[known] = block_id
        return block_id

    def path(self, block_id: BlockId) -> list[Block] | None:
        """The blocks above the tip up to `block_id`, oldest first; None unless all are known."""
        if self._end(block_id) not in self._decisions:
            return None
        blocks: list[Block] = []
        while block_id != self.tip.id:
            blocks.append(self._blocks[block_id])
            block_id = blocks[-1].parent_id
        return blocks[::-1]

    def is_open(self, path: Sequence[Block]) -> bool:
        """Whether the round is open after the blocks of `path`, which starts above the tip.

        Empty ones may be left out.
        """
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
        below = self.decisions(block.parent_id)
        if below is None:
            if self.missing(block.parent_id) is None:
                return Place(Fit.REFUSE, "conflicts with the newest final block")
            return Place(Fit.WAIT, "an ancestor is unknown")
        parent = self._blocks[block.parent_id]
        if (block.parent_view, block.view > parent.view) != (parent.view, True):
            return Place(Fit.REFUSE, f"parent view {block.parent_view}, it is {parent.view}")
        return self._follows(block, parent, below)

    def _follows(self, block: Block, parent: Block, below: Sequence[Block]) -> Place:
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
        self._decisions, self._lower = {self.tip.id: ()}, {}
        self._proposed = {b: view for b, view in self._proposed.items() if b in self._blocks}
