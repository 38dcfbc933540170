"""What a decided round shows of each planned contributor, for its record with this node. Pure."""

from collections.abc import Mapping, Set

from daa_consensus.bft.messages import OfferBody, SetPayload
from daa_dag.ids import NodeId
from daa_node.contributors.score import Measure
from daa_node.rounds.plan import Plan, Share

# Of its training a contributor may spend as much on checks of others (see spot_checks.checks).
TRAINING_SHARE = 0.5


def observed(
    plan: Plan,
    decided: SetPayload,
    offered: Set[NodeId],
    reachable: Set[NodeId],
    never_train: Set[NodeId] = frozenset(),
) -> Mapping[NodeId, Mapping[Measure, float]]:
    """`offered`: whose Offers are here; `reachable`: who has a connection with us.

    Of who is away only that it is, and of who says that it never trains only that it is here. A
    contribution that is another's copy says nothing either way: its author may be the one that was
    copied.
    """
    in_set = {o.author: (o, w) for o, w in zip(decided.offers, decided.weights, strict=True)}
    seen: dict[NodeId, dict[Measure, float]] = {}
    for share in plan.shares:
        author = share.author
        is_here = author in in_set or author in reachable
        measures = seen[author] = {Measure.PRESENT: float(is_here)}
        if author in in_set:
            offer, weight = in_set[author]
            measures[Measure.IN_TIME] = 1.0
            if weight:
                measures[Measure.CONTRIBUTED] = _done(plan, share, offer)
        else:
            if author in offered:
                measures[Measure.IN_TIME] = 0.0
            if author in offered or (is_here and author not in never_train):
                measures[Measure.CONTRIBUTED] = 0.0
    return seen


def _done(plan: Plan, share: Share, offer: OfferBody) -> float:
    """Of the steps that it had time for, but for checks of others; at most 1."""
    had_time_for = max(1, plan.train_us // max(1, offer.us_per_step))
    promised = min(share.steps_max, had_time_for)
    return min(1.0, offer.steps / (TRAINING_SHARE * promised))
