"""The blocks and votes that the model of the voting rules speaks of, each with a number.

Blocks are real ones, so that the real `Chain` can say what may stand where and where an epoch ends.
A set of votes, and so a set of certificates, is a bit mask over the numbers of all votes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from daa_consensus.bft.chain import Chain
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    Payload,
    SetPayload,
)
from daa_consensus.bft.safety import Vote
from daa_consensus.votes import Kind
from daa_dag.ids import Digest
from tests.daa_consensus.bft.simulation import CHAIN, GENESIS, empty_set, result_of

Slot = tuple[int, int]  # epoch, view
Split = Callable[[Chain, list[Block]], tuple[list[Block], list[Block]]]

NONE = -1  # no block
ROOT = 0  # genesis
LIE = Digest(b"lie!" * 8)  # a result root that nobody honest computes


@dataclass(frozen=True)
class Word:
    """A vote, the number of its block, and its bit."""

    vote: Vote
    block: int
    bit: int


class Universe:
    """Numbers are given out when something is first spoken of.

    A leader chooses among `rival_sets` sets, and all else that may stand on a block.
    """

    def __init__(self, epoch_rounds: int, rival_sets: int = 2) -> None:
        self.blocks = [GENESIS]
        self.number = {GENESIS.id: ROOT}
        self.words: list[Word] = []
        self._epoch_rounds = epoch_rounds
        self._rival_sets = rival_sets
        self._parents = [NONE]
        self._word_of: dict[tuple[Kind, Slot, int], Word] = {}
        self.children = cache(self._children)
        self.line = cache(self._line)
        self.chain = cache(self._chain)
        self.in_mask = cache(self._in_mask)

    def word(self, kind: Kind, block: int) -> Word:
        """A Notarize or Finalize of the block."""
        named = self.blocks[block]
        aborts = named.payload.round if isinstance(named.payload, AbortPayload) else None
        slot = named.epoch, named.view
        vote = Vote(kind, slot, named.id, named.parent_id, named.parent_view, aborts)
        return self._word(vote, block)

    def nullify(self, slot: Slot) -> Word:
        return self._word(Vote(Kind.NULLIFY, slot), NONE)

    def _word(self, vote: Vote, block: int) -> Word:
        key = vote.kind, vote.slot, block
        if key not in self._word_of:
            self._word_of[key] = Word(vote, block, 1 << len(self.words))
            self.words.append(self._word_of[key])
        return self._word_of[key]

    def _in_mask(self, mask: int) -> tuple[Word, ...]:
        found = []
        while mask:
            low = mask & -mask
            found.append(self.words[low.bit_length() - 1])
            mask ^= low
        return tuple(found)

    def named(self, kind: Kind, mask: int) -> Iterator[int]:
        """The blocks that votes of the kind in the mask name."""
        return (word.block for word in self.in_mask(mask) if word.vote.kind == kind)

    def _children(self, parent: int, slot: Slot) -> tuple[int, ...]:
        """What a leader, honest or not, can put on `parent`: all that fits, and a false result."""
        payloads: list[Payload] = [EmptyPayload()]
        if self.is_open(parent):
            result = result_of(self.blocks[self.set_below(parent)])
            lie = replace(result, result_root=LIE)
            payloads += [result, lie, AbortPayload(result.round)]
        else:
            round_ = self.blocks[parent].height + 1
            payloads += [empty_set(round_, weight) for weight in range(self._rival_sets)]
        return tuple(self.add(parent, slot, payload) for payload in payloads)

    def add(self, parent: int, slot: Slot, payload: Payload) -> int:
        """The number of this block."""
        below = self.blocks[parent]
        height = payload.round if isinstance(payload, SetPayload) else below.height
        block = Block(CHAIN, *slot, height, below.id, below.view, payload)
        if block.id not in self.number:
            self.number[block.id] = len(self.blocks)
            self.blocks.append(block)
            self._parents.append(parent)
        return self.number[block.id]

    def _line(self, block: int) -> tuple[int, ...]:
        """The block and its ancestors, newest first, without genesis."""
        return () if block == ROOT else (block, *self.line(self._parents[block]))

    def descends(self, block: int, ancestor: int) -> bool:
        return ancestor == ROOT or ancestor in self.line(block)

    def slot(self, block: int) -> Slot:
        return self.blocks[block].epoch, self.blocks[block].view

    def comparable(self, one: int, other: int) -> bool:
        return self.descends(one, other) or self.descends(other, one)

    def set_below(self, block: int) -> int:
        """The newest set at or below the block; genesis if there is none."""
        sets = (b for b in self.line(block) if isinstance(self.blocks[b].payload, SetPayload))
        return next(sets, ROOT)

    def is_open(self, block: int) -> bool:
        return self._from_genesis().is_open(self.path(block))

    def path(self, block: int) -> list[Block]:
        """From the first block above genesis up to this one."""
        return [self.blocks[b] for b in reversed(self.line(block))]

    def split_trailing(self, block: int, split: Split) -> int:
        """The tip of a node for which `block` is final."""
        chain, _ = split(self._from_genesis(), self.path(block))
        return next((b for b in self.line(block) if self.blocks[b] == chain[-1]), ROOT)

    def _from_genesis(self) -> Chain:
        return Chain(GENESIS, False, self._epoch_rounds)

    def _chain(self, tip: int, block: int) -> Chain:
        """The real chain of a node whose newest final block is `tip`, and that knows `block`."""
        chain = Chain(self.blocks[tip], self.is_open(tip), self._epoch_rounds)
        for known in self.path(block):
            chain.add(known)
        return chain
