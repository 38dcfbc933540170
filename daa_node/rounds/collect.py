"""Collect the contributions of one round: offers in, blobs fetched and checked, Acks out.

    signed by its author --fetch, check, store--> held: we ack it --Ack quorum--> eligible
    named by a set with an Ack quorum, or by a decided one: adopted, fetched, never acked by us

Invariants: we ack one contribution an author, the first that it signed, once we hold it durably and
have checked it. So an Ack quorum proves that the author signed, and of two things that one author
offers to different members at most one is agreed on, by all. Acks are cumulative: one counts for
everything an earlier one named.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from daa_consensus.bft.messages import OfferBody
from daa_consensus.committee import Committee
from daa_dag.ids import ContributionRoot, Digest, NodeId
from daa_node.errors import PeerFault
from daa_node.rounds.plan import Plan
from daa_node.rounds.planned import check_offer

# Roots that one validator may ack, for each contributor: its own one, and another one after it was
# restarted beside an author that offers different things.
ACKED_EACH_MAX = 2


@dataclass(slots=True)
class Candidate:
    """One contribution and how far it came."""

    contribution: OfferBody
    held: bool = False
    fetching: bool = False
    refused: bool = False  # its blob failed the checks; kept, so that resending it is no new offer
    ackers: set[NodeId] = field(default_factory=set)
    weight: int = 0  # of the ackers


class Collection:
    """The candidates of one round; pure bookkeeping, fed by `rounds.gather`."""

    def __init__(
        self, plan: Plan, committee: Committee, size_of: Callable[[str], int | None]
    ) -> None:
        self.plan = plan
        self._committee = committee
        self._size_of = size_of  # bytes of a blob in the named codec; None: unknown codec
        self._candidates: dict[ContributionRoot, Candidate] = {}
        self._signed: dict[NodeId, ContributionRoot] = {}  # the first that each author signed
        # Acks may arrive before the offer they name; the newest one of each validator counts.
        self._acked: dict[NodeId, tuple[frozenset[ContributionRoot], Digest]] = {}
        # What is asked at every word of a hundred members, worked out when it has changed.
        self._eligible: list[OfferBody] | None = None
        self._held: list[ContributionRoot] | None = None

    def offer(self, contribution: OfferBody) -> Candidate | None:
        """What its author signed: the new candidate, or None if it was known.

        Raises PeerFault if it is not eligible, or not the first of its author.
        """
        check_offer(self.plan, self._size_of, contribution)
        root = contribution.root
        if self._signed.setdefault(contribution.author, root) != root:
            raise PeerFault("two_offers", f"round {self.plan.round}")
        self._held = None
        return self.adopt(contribution)

    def adopt(self, contribution: OfferBody) -> Candidate | None:
        """What a decided set names, or a quorum acknowledged: new, or None if it was known."""
        if contribution.root in self._candidates:
            return None
        candidate = Candidate(contribution)
        for validator in self.ackers_of(contribution.root):
            self._count(validator, candidate)
        self._candidates[contribution.root] = candidate
        return candidate

    def ack(
        self, validator: NodeId, roots: Iterable[ContributionRoot], statement_id: Digest
    ) -> bool:
        """Count an Ack; True if it said anything new. Older, smaller Acks change nothing.

        Raises PeerFault for a validator that acks more than there can be contributions.
        """
        named = frozenset(roots)
        before = self._acked.get(validator, (frozenset[ContributionRoot](), statement_id))[0]
        if named <= before:
            return False
        if len(named | before) > ACKED_EACH_MAX * len(self.plan.shares):
            raise PeerFault("too_many_acks", f"{len(named | before)} of {len(self.plan.shares)}")
        self._acked[validator] = (named | before, statement_id)
        for root in named - before:
            if root in self._candidates:
                self._count(validator, self._candidates[root])
        return True

    def _count(self, validator: NodeId, candidate: Candidate) -> None:
        if validator not in candidate.ackers:
            candidate.ackers.add(validator)
            before = candidate.weight
            candidate.weight += self._committee.weight({validator})
            if before < self._committee.quorum <= candidate.weight:
                self._eligible = None

    def held(self, root: ContributionRoot) -> None:
        self._candidates[root].held = True
        self._held = None

    def refuse(self, root: ContributionRoot) -> None:
        """The contribution's blob failed its checks: we never ack it."""
        self._candidates[root].refused = True

    def held_roots(self) -> Sequence[ContributionRoot]:
        """What our next Ack may name, sorted."""
        if self._held is None:
            signed = self._signed.values()
            self._held = sorted(root for root in signed if self._candidates[root].held)
        return self._held

    def has_quorum(self, root: ContributionRoot) -> bool:
        """Whether an Ack quorum vouches for the contribution, known here or not."""
        candidate = self._candidates.get(root)
        if candidate is not None:
            return candidate.weight >= self._committee.quorum
        return self._committee.weight(set(self.ackers_of(root))) >= self._committee.quorum

    def eligible(self) -> Sequence[OfferBody]:
        """Contributions with an Ack quorum, sorted by author; a new list when there are more."""
        if self._eligible is None:
            found: dict[NodeId, OfferBody] = {}
            for _, candidate in sorted(self._candidates.items()):
                if candidate.weight >= self._committee.quorum:
                    found.setdefault(candidate.contribution.author, candidate.contribution)
            self._eligible = [contribution for _, contribution in sorted(found.items())]
        return self._eligible

    def ack_ids(self) -> list[Digest]:
        """The newest Ack statement of each validator: what a proposal relies on, sorted."""
        return sorted(statement_id for _, statement_id in self._acked.values())

    def ackers_of(self, root: ContributionRoot) -> list[NodeId]:
        return sorted(v for v, (roots, _) in self._acked.items() if root in roots)

    def candidate(self, root: ContributionRoot) -> Candidate | None:
        return self._candidates.get(root)

    def authors(self) -> set[NodeId]:
        return {candidate.contribution.author for candidate in self._candidates.values()}
