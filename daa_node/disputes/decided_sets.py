"""The sets that were decided lately, and what the lot has drawn of them: what disputes are about.

Kept in memory for as long as a dispute may take. Who has just started reads them from its chain
(rounds/past_sets.py).
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from daa_consensus.bft.messages import Block, SetPayload
from daa_dag.ids import BlobRoot, Digest, NodeId, VertexId
from daa_node.seams import SealedClaim, SegmentOrder
from daa_node.spot_checks.checks import Basis, CheckRules
from daa_node.spot_checks.lot import Draw, draw
from daa_node.training.boundaries import DISPUTED

# From the decision of a set to the verdict: to fetch, train again, open and halve takes one round
# each at most, of a segment of 128 steps ten in all, and judges need some more. Who opens nothing
# for some rounds, or not all of it, has the whole segment replayed, by the accuser and then by
# judges: a quarter of a round's steps, at some ten times their time, in every other round.
HALVED_WITHIN_ROUNDS = 14
DISPUTE_ROUNDS = 32


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn segment, and what its steps follow from."""

    draw: Draw
    basis: Basis
    merged: VertexId | None  # the newest that had merged work of its author then
    segment_steps: int

    @property
    def round(self) -> int:
        return self.draw.offer.round

    @property
    def author(self) -> NodeId:
        return self.draw.offer.author

    @property
    def begun(self) -> int:
        """The step of the round that the segment begins with."""
        return self.draw.segment * self.segment_steps

    @property
    def steps(self) -> int:
        return min(self.draw.offer.steps - self.begun, self.segment_steps)

    @property
    def ends(self) -> tuple[Digest, Digest]:
        """The roots of its two boundaries, as its author committed to them."""
        first, last = self.draw.offer.snapshot_roots[self.draw.segment :][:2]
        return first, last

    @property
    def states(self) -> frozenset[Digest]:
        """The roots of what who checks it, or looks for itself, has to see."""
        roots = self.draw.offer.snapshot_roots
        return frozenset((roots[0], *self.ends, roots[-1]))

    def order(
        self,
        step: int,
        steps: int,
        start: Digest,
        end: Digest,
        exact: bool = False,
        shelf: str = DISPUTED,
    ) -> SegmentOrder:
        """To take some of its steps again; `step` is counted from its first."""
        return SegmentOrder(
            seed=self.basis.seed,
            round=self.round,
            author=self.author,
            first_step=self.basis.first_step,
            step=self.begun + step,
            steps=steps,
            start_root=BlobRoot(start),
            end_root=BlobRoot(end),
            sealed=None,
            exact=exact,
            shelf=shelf,
        )

    def seal_order(self) -> SegmentOrder:
        """To seal the round again, from its first boundary and its last."""
        offer = self.draw.offer
        first, last = offer.snapshot_roots[0], offer.snapshot_roots[-1]
        sealed = SealedClaim(None, BlobRoot(last), offer.blob_root, offer.codec)
        return replace(self.order(0, 0, first, last, exact=True), sealed=sealed)


class DecidedSets:
    """Of the newest DISPUTE_ROUNDS rounds that this node saw decided, or has in its chain."""

    def __init__(self, rules: CheckRules) -> None:
        self._rules = rules
        self._drawn: OrderedDict[int, list[Drawn]] = OrderedDict()  # by round, ascending
        self._authors: dict[int, frozenset[NodeId]] = {}  # of rounds that we saw decided
        self.newest_round = 0
        self.steps_convict = rules.steps_convict  # see CheckRules

    def note(self, basis: Basis, set_block: Block, is_recalled: bool = False) -> bool:
        """A set is final, or was while we were away; whether anything is drawn of it."""
        payload = set_block.payload
        assert isinstance(payload, SetPayload)
        self.newest_round = max(self.newest_round, payload.round)
        found = draw(self._rules.lot, basis.seed, set_block.id, payload.offers)
        self._drawn[payload.round] = [
            Drawn(one, basis, basis.merged_vertex(one.offer.author), self._rules.segment_steps)
            for one in found
        ]
        if not is_recalled:
            self._authors[payload.round] = frozenset(offer.author for offer in payload.offers)
        while len(self._drawn) > DISPUTE_ROUNDS:
            self._authors.pop(self._drawn.popitem(last=False)[0], None)
        return bool(found)

    def is_open(self, round_number: int, within: int = DISPUTE_ROUNDS) -> bool:
        """Whether there may still be disputes over the round, or it is one of the newest."""
        return self.newest_round - within < round_number <= self.newest_round

    def knows(self, round_number: int) -> bool:
        return round_number in self._drawn

    def find(self, round_number: int, contribution: bytes) -> Drawn | None:
        """What is drawn of that contribution."""
        for drawn in self._drawn.get(round_number, ()):
            if drawn.draw.offer.root == contribution:
                return drawn
        return None

    def of(self, author: NodeId) -> Iterator[Drawn]:
        """What is drawn of that author's contributions."""
        for found in self._drawn.values():
            yield from (drawn for drawn in found if drawn.author == author)

    def contributed_since(self, author: NodeId, round_number: int) -> int:
        """To how many rounds after that one, of those that we were there for.

        In the others it could not have answered us.
        """
        return sum(
            author in authors for round_, authors in self._authors.items() if round_ > round_number
        )
