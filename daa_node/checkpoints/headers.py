"""The finalized header chain, judged from the genesis block up: pure, signatures checked before.

Blocks reach us in no order, with the finalization certificates whose signatures held. A block is
final when a certificate names it or a descendant. Final blocks form one path; only the empty blocks
above an epoch's last block, which carry its proof, may branch off (docs/consensus.md, "Epochs").

    closed --set(r+1)--> open --result(r+1) or abort(r+1)--> closed      an empty block keeps either
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    GenesisPayload,
    ResultPayload,
    SetPayload,
)
from daa_dag.ids import BlockId
from daa_node.checkpoints.layout import BLOCKS
from daa_node.checkpoints.plain_files import Problem


@dataclass(frozen=True, slots=True)
class Outcome:
    """A round that ended in a result."""

    set_block: Block | None  # None where the set's block is missing or damaged
    block: Block
    result: ResultPayload


@dataclass(slots=True)
class Judged:
    """What the headers say."""

    final: set[BlockId] = field(default_factory=set)  # trailing blocks included
    outcomes: list[Outcome] = field(default_factory=list)  # oldest first
    problems: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class _Round:
    """Where the walk up the path stands; a gap makes it forget."""

    height: int | None = None
    open: Block | None = None
    known: bool = False
    trailing: bool = False


def judge_headers(
    blocks: Mapping[BlockId, Block],
    certified: Collection[BlockId],
    damaged: Collection[BlockId],
    genesis: Block,
    epoch_rounds: int,
) -> Judged:
    """Judge `blocks`, all of this chain and rightly named; `damaged` ones are reported already.

    They stand on `genesis`, or on another block, not an empty one, up to which all was judged.
    """
    judged = Judged()
    path = _final_path(blocks, certified, damaged, genesis, epoch_rounds, judged)
    at, previous = _Round(), None
    for block in path:
        if previous is None or block.parent_id != previous.id:
            is_start = block == genesis
            is_open = is_start and isinstance(block.payload, SetPayload)
            at = _Round(
                known=is_start,
                height=block.height if is_start else None,
                open=block if is_open else None,
            )
        else:
            _follow(previous, block, at, epoch_rounds, judged)
        if block != genesis:
            _enter(block, at, judged)
        previous = block
    return judged


def _final_path(
    blocks: Mapping[BlockId, Block],
    certified: Collection[BlockId],
    damaged: Collection[BlockId],
    genesis: Block,
    epoch_rounds: int,
    judged: Judged,
) -> list[Block]:
    """Final blocks, oldest first, without trailing branches; fills `final` and names gaps."""
    judged.final.add(genesis.id)
    path = [genesis]
    # By epoch first: an epoch's proof may lie in later views than the next epoch's first blocks.
    known = sorted(
        (blocks[b] for b in certified if b in blocks), key=lambda b: (-b.epoch, -b.view, b.id)
    )
    # Nothing lies on the path yet: the newest certificate starts it. Below what is missing the next
    # one does that stands on none of these: proofs of epochs' ends branch off in between.
    has_gap = True
    for tip in known:
        branch: list[Block] = []
        block: Block | None = tip
        while block is not None and block.id not in judged.final:
            branch.append(block)
            parent = blocks.get(block.parent_id)
            if parent is None and block.parent_id not in damaged:
                judged.problems.append(
                    Problem(
                        f"is missing; block {block.id.hex()} stands on it", _name(block.parent_id)
                    )
                )
            block = parent
        judged.final.update(b.id for b in branch)
        if has_gap and (block is None or block == genesis):
            path += branch
            has_gap = block is None
        elif branch and not _is_trailing(branch, block, epoch_rounds):
            judged.problems.append(
                Problem("conflicts with the final chain: two branches are final", _name(tip.id))
            )
    return sorted(path, key=lambda b: (b.epoch, b.view))


def _is_trailing(branch: list[Block], base: Block | None, epoch_rounds: int) -> bool:
    if base is None or not _ends_epoch(base, epoch_rounds):
        return False
    return all(isinstance(b.payload, EmptyPayload) and b.epoch == base.epoch for b in branch)


def _ends_epoch(block: Block, epoch_rounds: int) -> bool:
    closes = isinstance(block.payload, ResultPayload | AbortPayload)
    return closes and block.height % epoch_rounds == 0


def _follow(previous: Block, block: Block, at: _Round, epoch_rounds: int, judged: Judged) -> None:
    """Name what is wrong with `block` standing on `previous`."""
    wrong: list[str] = []
    if block.parent_view != previous.view:
        wrong.append(f"names view {block.parent_view} as its parent's, which is {previous.view}")
    at.trailing = (at.trailing or _ends_epoch(previous, epoch_rounds)) and (
        isinstance(block.payload, EmptyPayload) and block.epoch == previous.epoch
    )
    if at.known and at.height is not None and not at.trailing:
        closed_rounds = at.height - (1 if at.open is not None else 0)
        epoch = closed_rounds // epoch_rounds
        if block.epoch != epoch:
            wrong.append(f"is of epoch {block.epoch}, its round is in epoch {epoch}")
    wrong += _misplaced(block, at)
    judged.problems += [Problem(what, _name(block.id)) for what in wrong]


def _misplaced(block: Block, at: _Round) -> list[str]:
    height = at.height
    if not at.known or height is None:
        return []
    match block.payload:
        case SetPayload(round=round_):
            if at.open is not None or round_ != height + 1:
                return [f"decides round {round_} after round {height}"]
            height = round_
        case ResultPayload(round=round_) | AbortPayload(round=round_):
            if at.open is None or round_ != height:
                return [f"closes round {round_}, which is not open"]
        case GenesisPayload():
            return ["is a second genesis block"]
        case EmptyPayload():
            pass
    return [] if block.height == height else [f"says height {block.height}, it is {height}"]


def _enter(block: Block, at: _Round, judged: Judged) -> None:
    match block.payload:
        case SetPayload():
            at.open, at.height, at.known = block, block.height, True
        case ResultPayload() as result:
            judged.outcomes.append(Outcome(at.open, block, result))
            at.open, at.height, at.known = None, block.height, True
        case AbortPayload():
            at.open, at.height, at.known = None, block.height, True
        case _:
            pass


def _name(block_id: BlockId) -> str:
    return f"{BLOCKS}/{block_id.hex()}"
