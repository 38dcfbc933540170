"""The round that is open: what was offered, acknowledged, closed, proposed, decided and executed.

    offered --quorum holds it--> eligible --collections close--> proposed --votes--> decided
                                                    executed --Exec quorum--> certified --> over

All nodes of a training world stand in one round, or catch up to it. Bookkeeping only; time and
messages are the world's.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from daa_consensus.bft.messages import OfferBody, SetPayload
from daa_consensus.votes import Kind
from daa_dag.checkpoint import Vertex
from daa_dag.ids import Digest, NodeId, digest_of
from daa_node.autonomy.policy import Policy
from daa_node.autonomy.reason import Decision, Gathering, stop_waiting
from daa_node.rounds.config import RoundsConfig
from daa_node.rounds.plan import Plan, Share

ACK = digest_of(Kind.ACK.value.encode())  # stands for the newest Acks: they are not modelled alone


@dataclass(slots=True)
class OpenRound:
    """One round on one base."""

    plan: Plan
    parent: Vertex
    opened_ns: int
    expected: frozenset[NodeId]
    recent: set[NodeId]  # of them, who contributed to the newest set and was never gone since
    offers: dict[int, OfferBody] = field(default_factory=dict)
    acked_weight: dict[int, int] = field(default_factory=dict)
    # by author: holders whose Acks those who decide have not heard
    unheard: list[tuple[int, NDArray[np.int64]]] = field(default_factory=list)
    eligible: dict[int, int] = field(default_factory=dict)  # node -> when
    half_eligible_ns: int | None = None  # when more than half of those planned were
    eligible_ids: set[NodeId] = field(default_factory=set)
    closed: dict[int, int] = field(default_factory=dict)
    timed_view: int | None = None  # whose leader's timer runs
    proposal: SetPayload | None = None
    authors: list[int] = field(default_factory=list)  # of what is proposed
    arrives_ns: int = 0  # the proposal, at everybody's
    voting: bool = False
    decided_ns: int | None = None
    executed: dict[int, int] = field(default_factory=dict)
    certified: bool = False
    over: bool = False

    @property
    def half(self) -> int:
        return len(self.plan.shares) // 2

    @property
    def first_eligible_ns(self) -> int | None:
        return next(iter(self.eligible.values()), None)  # they were added in time's order

    @property
    def newest_eligible_ns(self) -> int | None:
        return next(reversed(self.eligible.values()), None)

    def make_eligible(self, node: int, node_id: NodeId, now_ns: int) -> None:
        self.eligible[node] = now_ns
        if len(self.eligible) == self.half + 1:
            self.half_eligible_ns = now_ns
        self.eligible_ids.add(node_id)

    def is_judged_at(self, now_ns: int) -> bool:
        """Whether whoever has closed can vote."""
        return self.proposal is not None and now_ns >= self.arrives_ns

    def propose(self, rule: str, f_agg: int, arrives_ns: int) -> None:
        """Everything with an Ack quorum, sorted by author."""
        offers = sorted(
            (self.offers[node] for node in self.eligible), key=lambda offer: offer.author
        )
        self.authors = list(self.eligible)
        weights = tuple(self.plan.weight_of(offer.author, offer.tokens) for offer in offers)
        self.proposal = SetPayload(
            self.plan.round, tuple(offers), weights, rule, f_agg, (), (), (Digest(ACK),)
        )
        self.arrives_ns = arrives_ns


def naive(plan: Plan, config: RoundsConfig) -> Plan:
    """The same plan without regard to speeds: every step for everybody."""
    steps, tokens = config.inner_steps_max, config.inner_steps_max * plan.tokens_per_step
    shares = tuple(Share(share.author, steps, tokens) for share in plan.shares)
    return replace(plan, shares=shares)


def why_close(gathering: Gathering, policy: Policy, adaptive: bool) -> str | None:
    """Why a node closes its collection now; None to wait on."""
    if not adaptive:
        if not gathering.expected - gathering.eligible:
            return "everybody is there"
        return "the window ended" if gathering.elapsed_s >= gathering.window_s else None
    decision: Decision | None = stop_waiting(gathering, policy)
    return None if decision is None else decision.reason
