"""Which contributions of a set count nothing, because they are copies of others in it.

    composed   the leader gives weight 0 to what it heard of later than of what it is a copy of
    judged     who is to notarize such a set holds all of it first, and refuses a 0 that is no copy
               of what counts, or that it heard of before everything that is like it

So nobody is void but by a copy of its own update (see spot_checks.copies), and only if one more
honest node than there may be liars heard of the copy first. A copier tells of its update only when
it has got the other one's, of which all have heard by then, unless its links are so much quicker.

Where honest nodes heard of the two in another order, no set that voids one of them may find a
quorum. So who has met two sets in a round that void whom it would void itself, its own among them,
voids nobody after that: the copy counts. What liars void against that order makes nobody give up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from daa_consensus.bft.messages import OfferBody, SetPayload
from daa_dag.ids import ContributionRoot
from daa_node.errors import PeerFault, RuleUnbounded, StorageFailed
from daa_node.rounds.collect import Collection
from daa_node.rounds.context import RoundContext
from daa_node.spot_checks.copies import MILLIONTHS, Likeness
from daa_node.updates.aggregation.rule import rule_named

VOIDING_SETS_MAX = 2  # a view is lost by each in vain; one may be lost as the links are slow


def counted(decided: SetPayload) -> SetPayload:
    """The set without those that count nothing: what is merged."""
    pairs = [pair for pair in zip(decided.offers, decided.weights, strict=True) if pair[1]]
    return replace(
        decided,
        offers=tuple(offer for offer, _ in pairs),
        weights=tuple(weight for _, weight in pairs),
    )


def check_bound(decided: SetPayload) -> None:
    """Raises RuleUnbounded unless those that count are enough for the set's rule."""
    rule_named(decided.rule).check_bound(sum(map(bool, decided.weights)), decided.f_agg)


@dataclass(frozen=True, slots=True)
class Copy:
    """One contribution that is made from another one of its set."""

    copy: OfferBody
    origin: OfferBody
    distance: float  # see spot_checks.copies


class Voiding:
    """Of one round."""

    def __init__(self, context: RoundContext, collection: Collection) -> None:
        self._context = context
        self._collection = collection
        self._voiding_sets = 0  # that we proposed, or have nothing against
        self._found: dict[ContributionRoot, Copy] = {}

    async def of(self, offers: Sequence[OfferBody]) -> frozenset[int]:
        """The places of those that our own set gives no weight, out of those that it merges.

        None unless all are held here, or if those that were left would be too few for the rule.
        """
        context = self._context
        if len(offers) < 2 or self._voiding_sets >= VOIDING_SETS_MAX or not self._holds(offers):
            return frozenset()
        try:
            likeness = await self._likeness(offers)
        except StorageFailed:
            return frozenset()  # a copy counts, rather than that the round waits for our disk
        heard = self._heard(offers)
        voided = likeness.later_copies(sorted(range(len(offers)), key=heard.__getitem__))
        rule = rule_named(context.rules.rule)
        terms = context.rules.terms(context.plan, [offer.author for offer in offers])
        try:
            rule.check_bound(len(offers) - len(voided), terms.f_agg)
        except RuleUnbounded:
            return frozenset()
        self._voiding_sets += bool(voided)
        self._note(offers, likeness, likeness.origins(voided))
        return voided

    async def fault_of(self, proposed: SetPayload) -> str | None:
        """Why a set, what it merges all held here, voids somebody who must not be."""
        fault = await self._judge(proposed)
        self._voiding_sets += fault is None
        return fault

    async def _judge(self, proposed: SetPayload) -> str | None:
        offers = proposed.offers
        voided = frozenset(at for at, weight in enumerate(proposed.weights) if not weight)
        try:
            check_bound(proposed)
            likeness = await self._likeness(offers)
        except (RuleUnbounded, StorageFailed) as failure:
            return f"no weight for {_names(offers, voided)}: {failure}"
        origins = likeness.origins(voided)
        if wronged := voided - origins.keys():
            return f"no weight for {_names(offers, wronged)}, which is no copy of what counts"
        self._note(offers, likeness, origins)
        heard = self._heard(offers)
        first = [
            at
            for at in voided
            if all(heard[at] < heard[other] for other in likeness.copies[at] - voided)
        ]
        return f"no weight for {_names(offers, first)}, which came first" if first else None

    def found_in(self, decided: SetPayload) -> list[tuple[Copy, bool]]:
        """The copies in it that we know of, and whether the set voids them."""
        offers = decided.offers
        heard = dict(zip((offer.root for offer in offers), self._heard(offers), strict=True))
        counts = {o.root: bool(w) for o, w in zip(offers, decided.weights, strict=True)}
        known = [
            each
            for each in self._found.values()
            if each.copy.root in counts and counts.get(each.origin.root)
        ]
        return [
            (each, not counts[each.copy.root])
            for each in known
            # Of two that count, we have met sets that void one or the other.
            if not counts[each.copy.root] or heard[each.copy.root] > heard[each.origin.root]
        ]

    def _note(
        self, offers: Sequence[OfferBody], likeness: Likeness, origins: dict[int, int]
    ) -> None:
        for at, origin in sorted(origins.items()):
            distance = likeness.apart[at][origin] / MILLIONTHS
            self._found[offers[at].root] = Copy(offers[at], offers[origin], distance)

    def _holds(self, offers: Sequence[OfferBody]) -> bool:
        return all(self._collection.is_held(offer.root) for offer in offers)

    def _heard(self, offers: Sequence[OfferBody]) -> Sequence[int]:
        """When we heard of each, in turns; of our own first, whatever a restart did."""
        me = self._context.me
        return [-1 if o.author == me else self._collection.turn_of(o) for o in offers]

    async def _likeness(self, offers: Sequence[OfferBody]) -> Likeness:
        """Of contributions that are all held here. Raises StorageFailed."""
        context = self._context
        blobs = [await context.store.view_blob("updates", offer.blob_root) for offer in offers]
        compare = partial(context.rules.likeness, context.plan, offers, blobs)
        try:
            return await context.offload.run(compare)
        except PeerFault as fault:  # no more what was checked when it came
            raise StorageFailed(f"an update was damaged: {fault}") from None


def _names(offers: Sequence[OfferBody], places: Iterable[int]) -> str:
    return ", ".join(offers[at].author.hex()[:8] for at in sorted(places))
