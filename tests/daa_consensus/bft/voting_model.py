"""What four validators, one of them a traitor, can vote into being: every state of it.

The honest three sign whatever the rules allow, in any order. The traitor's every vote is always
there, in every epoch, hence two honest votes make a quorum of three. A certificate may be used from
the moment it exists, and may stay unknown: a node acts on any final block that it could have heard
of, and learns of an Exec quorum in a step of its own. So all delays are covered, and more besides.

Not modelled: time (a deadline may pass at any moment), data (it may arrive at any moment), and what
a node can no longer do because it has heard of a certificate; that only takes votes away.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from daa_consensus.bft.agenda import Agenda
from daa_consensus.bft.chain import Chain, Fit, Place
from daa_consensus.bft.events import ExecCertified
from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload, SetPayload
from daa_consensus.bft.safety import Record, Seen, Verdict, Vote, may_vote
from daa_consensus.votes import Kind
from daa_dag.ids import BlockId
from tests.daa_consensus.bft.simulation import result_of
from tests.daa_consensus.bft.voting_universe import NONE, ROOT, Slot, Split, Universe, Word

HONEST = 3


class Node(NamedTuple):
    """What an honest node carries from slot to slot, besides its record."""

    executed: tuple[int, ...] = ()  # the sets that it signed Exec for
    holds: int = NONE  # the newest set that it holds an Exec quorum of
    aborted: bool = False  # notarized an abort; noted for rules that look at it


class State(NamedTuple):
    certified: int = 0
    nodes: tuple[Node, ...] = (Node(),) * HONEST


class Local(NamedTuple):
    record: Record
    sent: int
    node: Node


class Broken(Exception):
    """A state that must not be reachable was reached."""


def open_round(chain: Chain, round_: int, node: Node) -> bool:
    return chain.may_execute(round_)


@dataclass(frozen=True)
class Rules:
    """What honest nodes obey: the real thing, unless a field is replaced."""

    may_vote: Callable[[Record, Seen, Vote], Verdict] = may_vote
    place: Callable[[Chain, Block], Place] = Chain.place
    split_trailing: Split = Chain.split_trailing
    assess_result: Callable[[Agenda, ResultPayload], Place] = Agenda.assess_result
    may_execute: Callable[[Chain, int, Node], bool] = open_round
    notes_aborts: bool = False
    honest_quorum: int = 2


class Honesty:
    """What an honest node may do next, if these certificates exist."""

    def __init__(self, rules: Rules, universe: Universe) -> None:
        self.rules = rules
        self.universe = universe
        self.tips = cache(self._tips)
        self.known = cache(self._known)
        self.seen = cache(self._seen)
        self._standing = cache(self._number_of_known)
        self.stands_in = cache(self._stands_in)
        self.place = cache(self._place)
        self.epoch = cache(self._epoch)
        self._agenda = cache(self._agenda_of)
        self._alike: dict[tuple[object, ...], int] = {}  # a number for whatever is known alike
        self._said: dict[tuple[object, ...], dict[int, bool]] = {}  # by the bits of words

    def round(self, block: int) -> int:
        return 0 if block == NONE else self.universe.blocks[block].height

    def executed(self, node: Node) -> int:
        """The newest round that the node signed Exec for."""
        return max((self.round(block) for block in node.executed), default=0)

    def _tips(self, certified: int) -> tuple[int, ...]:
        """Every block that may be the newest final one for somebody; the newest one first."""
        final = self.universe.named(Kind.FINALIZE, certified)
        split = self.rules.split_trailing
        found = {ROOT} | {self.universe.split_trailing(block, split) for block in final}
        return tuple(sorted(found, key=self.universe.slot, reverse=True))

    def _epoch(self, tip: int) -> int:
        return self.universe.chain(tip, tip).epoch

    def _stands_in(self, tip: int, slot: Slot) -> bool:
        """Whether a node with this tip has the slot before it."""
        return self.epoch(tip) == slot[0] and self.universe.blocks[tip].view < slot[1]

    def _known(self, certified: int, tip: int) -> tuple[dict[int, BlockId], frozenset[int]]:
        """What stands in the Ballots of a node with this tip."""
        blocks, epoch = self.universe.blocks, self.epoch(tip)
        notarized, nullified = {blocks[tip].view: blocks[tip].id}, set()
        for word in self.universe.in_mask(certified):
            (in_epoch, view), kind = word.vote.slot, word.vote.kind
            if in_epoch == epoch and view > blocks[tip].view:
                if kind == Kind.NULLIFY:
                    nullified.add(view)
                elif word.vote.block_id is not None:
                    notarized.setdefault(view, word.vote.block_id)
        return notarized, frozenset(nullified)

    def _seen(self, certified: int, tip: int, node: Node) -> Seen:
        notarized, nullified = self.known(certified, tip)
        return Seen(notarized, nullified, self.executed(node), self.round(node.holds))

    def signable(
        self, record: Record, node: Node, words: Sequence[Word], certified: int
    ) -> list[Word]:
        """Those that it may sign, for all that anybody can know of its tip."""
        tips = self.tips(certified)
        # Of certificates it is asked a million times what a few thousand others have answered.
        said = [
            self._said.setdefault((record, node, tip, self._standing(certified, tip)), {})
            for tip in tips
        ]
        found = []
        for word in words:
            for tip, known in zip(tips, said, strict=True):
                may = known.get(word.bit)
                if may is None:
                    may = known[word.bit] = self.may_sign_at(tip, record, node, word, certified)
                if may:
                    found.append(word)
                    break
        return found

    def _number_of_known(self, certified: int, tip: int) -> int:
        notarized, nullified = self.known(certified, tip)
        known = (*sorted(notarized.items()), nullified)
        return self._alike.setdefault(known, len(self._alike))

    def may_sign_at(self, tip: int, record: Record, node: Node, word: Word, certified: int) -> bool:
        return self._may_sign(tip, self.seen(certified, tip, node), record, node, word)

    def _may_sign(self, tip: int, seen: Seen, record: Record, node: Node, word: Word) -> bool:
        if not self.stands_in(tip, word.vote.slot):
            return False
        if not self.rules.may_vote(record, seen, word.vote).allowed:
            return False
        if word.vote.kind != Kind.NOTARIZE:
            return True
        if self.place(tip, word.block) != Fit.FITS:
            return False
        payload = self.universe.blocks[word.block].payload
        if isinstance(payload, ResultPayload):
            return self.rules.assess_result(self._agenda(node.holds), payload).fit == Fit.FITS
        return True

    def _place(self, tip: int, block: int) -> Fit:
        chain = self.universe.chain(tip, block)
        return self.rules.place(chain, self.universe.blocks[block]).fit

    def _agenda_of(self, holds: int) -> Agenda:
        agenda = Agenda(0)
        if holds != NONE:
            result = result_of(self.universe.blocks[holds])
            agenda.exec_certified(ExecCertified(result.round, result.vertex_id, result.result_root))
        return agenda

    def moves(
        self, node: Node, certified: int, executed: tuple[int, ...], tips: tuple[int, ...]
    ) -> Iterator[Node]:
        """The node after an Exec of a notarized set, if allowed, or after hearing of a quorum."""
        for block in executed:
            if self.round(block) > self.round(node.holds):
                yield node._replace(holds=block)
        for block in self.universe.named(Kind.NOTARIZE, certified):
            a_set = isinstance(self.universe.blocks[block].payload, SetPayload)
            if not a_set or self.round(block) <= self.executed(node):
                continue
            for tip in tips:
                chain = self.universe.chain(tip, block)
                fits = self.universe.comparable(tip, block)
                if fits and self.rules.may_execute(chain, self.round(block), node):
                    yield node._replace(executed=(*node.executed, block))
                    break

    def after(self, local: Local, word: Word) -> Local:
        """The local state once an allowed vote is signed. Raises Broken."""
        aborts, node = word.vote.aborts, local.node
        if word.vote.kind == Kind.NOTARIZE and aborts is not None:
            if self.executed(node) == aborts:
                raise Broken("an abort is notarized by who has executed the round")
            if self.round(node.holds) == aborts:
                raise Broken("an abort is notarized by who holds the round's Exec quorum")
            node = node._replace(aborted=self.rules.notes_aborts)
        return Local(local.record.after(word.vote), local.sent | word.bit, node)


def quorum(one: int, two: int, three: int, honest_quorum: int) -> int:
    """The votes that make a quorum together with the traitor's."""
    if honest_quorum == 1:
        return one | two | three
    return one & two | one & three | two & three


def executed_by(nodes: Iterable[Node], honest_quorum: int) -> tuple[int, ...]:
    """The sets that an Exec quorum stands behind."""
    executed = [block for node in nodes for block in node.executed]
    return tuple(b for b in sorted(set(executed)) if executed.count(b) >= honest_quorum)


class Safety:
    """What must hold in every reachable state."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self.check = cache(self._check)

    def _check(self, certified: int, executed: tuple[int, ...]) -> None:
        """Raises Broken."""
        universe = self._universe
        words = universe.in_mask(certified)
        notarized = list(universe.named(Kind.NOTARIZE, certified))
        slots = [(universe.blocks[b].epoch, universe.blocks[b].view) for b in notarized]
        if len(set(slots)) != len(slots):
            raise Broken("two blocks are notarized in one view")
        nullified = {word.vote.slot for word in words if word.vote.kind == Kind.NULLIFY}
        final = list(universe.named(Kind.FINALIZE, certified))
        for block in final:
            slot = universe.blocks[block].epoch, universe.blocks[block].view
            if slot in nullified:
                raise Broken("a view with a final block is nullified")
            self._check_line(block)
            tip = universe.split_trailing(block, Chain.split_trailing)
            for later, at in zip(notarized, slots, strict=True):
                if at > slot and not universe.descends(later, block if at[0] == slot[0] else tip):
                    raise Broken("a block is notarized that conflicts with a final one")
            for other in final:
                if not universe.comparable(
                    tip, universe.split_trailing(other, Chain.split_trailing)
                ):
                    raise Broken("two conflicting blocks are final")
        self._check_results(notarized, final, executed)

    def _check_line(self, block: int) -> None:
        """A final chain closes each round once, and holds no set beyond the end of its epoch."""
        universe = self._universe
        payloads = [universe.blocks[b].payload for b in universe.line(block)]
        closed = [p.round for p in payloads if isinstance(p, ResultPayload | AbortPayload)]
        if len(set(closed)) != len(closed):
            raise Broken("a round is closed twice")
        tip = universe.split_trailing(block, Chain.split_trailing)
        if universe.set_below(block) != universe.set_below(tip):
            raise Broken("a set is final that the next epoch does not stand on")

    def _check_results(
        self, notarized: list[int], final: list[int], executed: tuple[int, ...]
    ) -> None:
        universe = self._universe
        for block in notarized:
            payload = universe.blocks[block].payload
            if isinstance(payload, ResultPayload):
                below = universe.set_below(block)
                if below not in executed:
                    raise Broken("a result is notarized without an Exec quorum")
                if payload != result_of(universe.blocks[below]):
                    raise Broken("a result is notarized that nobody honest computed")
        for block in executed:
            if not any(universe.descends(f, block) for f in final):
                raise Broken("an Exec quorum stands behind a set that is not final")
