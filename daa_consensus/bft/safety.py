"""The rule that keeps the chain from forking: what a validator may sign, and why not.

Chained Simplex (Chan and Pass 2023; docs/consensus.md). A slot is `(epoch, view)`; in each slot

  * at most one Proposal and at most one Notarize, and only of a block whose parent is notarized in
    `parent_view` while every view between that and the slot is nullified;
  * never a Finalize and a Nullify, and never a Finalize of what another block's Notarize opposes;
  * never anything below the slot of the newest vote, so that the guard needs one slot's memory;
  * never a Notarize of an abort by who signed Exec for that round or holds an Exec quorum of it.

Why it is safe: two quorums share an honest validator, and it notarizes once a view, so a view has
one notarized block. A finalization means that f+1 honest validators never nullified its view, so
the view has no nullification, ever, and every later notarized block descends from the final one.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from daa_consensus.votes import Kind
from daa_dag.ids import BlockId


@dataclass(frozen=True, slots=True)
class Record:
    """All that a validator remembers of its own votes: those of the newest slot it voted in."""

    epoch: int
    view: int
    proposed: BlockId | None = None
    notarized: BlockId | None = None
    nullified: bool = False
    finalized: BlockId | None = None

    @property
    def slot(self) -> tuple[int, int]:
        return self.epoch, self.view

    @property
    def is_empty(self) -> bool:
        """Whether nothing is signed in its slot."""
        return not (self.proposed or self.notarized or self.nullified or self.finalized)

    def at(self, slot: tuple[int, int]) -> "Record":
        """What this validator has signed in `slot`, which is not below the record's own."""
        return self if slot == self.slot else Record(*slot)

    def after(self, vote: "Vote") -> "Record":
        """The record once an allowed `vote` is signed."""
        now = self.at(vote.slot)
        match vote.kind:
            case Kind.PROPOSAL:
                return replace(now, proposed=vote.block_id)
            case Kind.NOTARIZE:
                return replace(now, notarized=vote.block_id)
            case Kind.NULLIFY:
                return replace(now, nullified=True)
            case _:
                return replace(now, finalized=vote.block_id)


@dataclass(frozen=True, slots=True)
class Vote:
    """What is about to be signed. The parent matters to a Proposal and a Notarize only."""

    kind: Kind
    slot: tuple[int, int]
    block_id: BlockId | None = None
    parent_id: BlockId | None = None
    parent_view: int = 0
    aborts: int | None = None  # the round that the block aborts


@dataclass(frozen=True, slots=True)
class Seen:
    """The certificates that a validator holds, of one epoch, by view.

    `notarized` includes the newest final block. `executed` and `certified` are the newest rounds
    that this node signed Exec for and holds an Exec quorum of.
    """

    notarized: Mapping[int, BlockId]
    nullified: AbstractSet[int]
    executed: int = 0
    certified: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """`curable`: a certificate that has not arrived yet may turn a refusal around."""

    allowed: bool
    reason: str
    curable: bool = False


ALLOWED = Verdict(True, "no rule speaks against it")
Rules = Callable[[Record, Seen, Vote], Verdict]  # may_vote, and what a test breaks of it


def may_vote(record: Record, seen: Seen, vote: Vote) -> Verdict:
    """Whether a validator with this record may sign `vote`, and the reason."""
    if vote.slot < record.slot:
        return _no(f"slot {vote.slot} is below {record.slot}, where this node voted")
    mine = record.at(vote.slot)
    match vote.kind:
        case Kind.PROPOSAL:
            if mine.proposed not in (None, vote.block_id):
                return _no("already proposed another block in this view")
            return _justified(seen, vote)
        case Kind.NOTARIZE:
            return _may_notarize(mine, seen, vote)
        case Kind.NULLIFY:
            if mine.finalized is not None:
                return _no("sent a Finalize in this view")
            return ALLOWED
        case Kind.FINALIZE:
            if mine.nullified:
                return _no("sent a Nullify in this view")
            if mine.notarized not in (None, vote.block_id):
                return _no("notarized another block in this view")
            if mine.finalized not in (None, vote.block_id):
                return _no("finalized another block in this view")
            if seen.notarized.get(vote.slot[1]) != vote.block_id:
                return _no("holds no notarization of the block", curable=True)
            return ALLOWED
        case _:
            return _no(f"{vote.kind} is no vote on a block")


def _may_notarize(mine: Record, seen: Seen, vote: Vote) -> Verdict:
    if mine.notarized not in (None, vote.block_id):
        return _no("notarized another block in this view")
    if mine.finalized not in (None, vote.block_id):
        return _no("finalized another block in this view")
    if mine.nullified:
        return _no("sent a Nullify in this view")
    if vote.aborts is not None and seen.executed >= vote.aborts:
        return _no(f"signed Exec of round {vote.aborts}")
    if vote.aborts is not None and seen.certified >= vote.aborts:
        return _no(f"holds an Exec quorum of round {vote.aborts}")
    return _justified(seen, vote)


def _justified(seen: Seen, vote: Vote) -> Verdict:
    view = vote.slot[1]
    if not vote.parent_view < view:
        return _no("the parent is not of an earlier view")
    known = seen.notarized.get(vote.parent_view)
    if known != vote.parent_id:
        return _no(f"the parent is not notarized in view {vote.parent_view}", curable=known is None)
    for skipped in range(vote.parent_view + 1, view):
        if skipped not in seen.nullified:
            return _no(f"skipped view {skipped} is not nullified", curable=True)
    return ALLOWED


def _no(reason: str, curable: bool = False) -> Verdict:
    return Verdict(False, reason, curable)
