"""Collect the contributions of one round: offers in, blobs fetched and checked, Acks out.

    offered --fetch, check, store--> held --Ack quorum--> eligible

Invariants: an author has at most one candidate a round; an Ack of ours names only what we hold
durably and have checked; Acks are cumulative, so one counts for everything an earlier one named.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from daa_consensus.bft.messages import OfferBody
from daa_consensus.committee import Committee
from daa_dag.ids import ContributionRoot, Digest, NodeId
from daa_node.errors import PeerFault
from daa_node.rounds.plan import Plan


@dataclass(slots=True)
class Candidate:
    """One author's offer and how far it came."""

    contribution: OfferBody
    held: bool = False
    fetching: bool = False
    refused: bool = False  # its blob failed the checks; kept, so that resending it is no new offer
    ackers: set[NodeId] = field(default_factory=set)


class Collection:
    """The candidates of one round; pure bookkeeping, fed by `rounds.gather`."""

    def __init__(
        self, plan: Plan, committee: Committee, size_of: Callable[[str], int | None]
    ) -> None:
        self.plan = plan
        self._committee = committee
        self._size_of = size_of  # bytes of a blob in the named codec; None: unknown codec
        self._by_author: dict[NodeId, Candidate] = {}
        # Acks may arrive before the offer they name; the newest one of each validator counts.
        self._acked: dict[NodeId, tuple[frozenset[ContributionRoot], Digest]] = {}

    def offer(self, contribution: OfferBody) -> Candidate | None:
        """The new candidate, or None if it was known. Raises PeerFault if it is not eligible."""
        self._check(contribution)
        known = self._by_author.get(contribution.author)
        if known is not None:
            if known.contribution != contribution:
                raise PeerFault("two_offers", f"round {self.plan.round}")
            return None
        candidate = Candidate(contribution)
        for validator, (roots, _) in self._acked.items():
            if contribution.root in roots:
                candidate.ackers.add(validator)
        self._by_author[contribution.author] = candidate
        return candidate

    def ack(
        self, validator: NodeId, roots: Iterable[ContributionRoot], statement_id: Digest
    ) -> bool:
        """Count an Ack; True if it said anything new. Older, smaller Acks change nothing."""
        named = frozenset(roots)
        before = self._acked.get(validator, (frozenset[ContributionRoot](), statement_id))[0]
        if named <= before:
            return False
        self._acked[validator] = (named | before, statement_id)
        for candidate in self._by_author.values():
            if candidate.contribution.root in named:
                candidate.ackers.add(validator)
        return True

    def held(self, author: NodeId) -> None:
        self._by_author[author].held = True

    def refuse(self, author: NodeId) -> None:
        """The author's blob failed its checks: we never ack it."""
        self._by_author[author].refused = True

    def held_roots(self) -> list[ContributionRoot]:
        """What our next Ack may name, sorted."""
        return sorted(c.contribution.root for c in self._by_author.values() if c.held)

    def eligible(self) -> list[OfferBody]:
        """Contributions with an Ack quorum, sorted by author."""
        return [
            candidate.contribution
            for _, candidate in sorted(self._by_author.items())
            if self._committee.weight(candidate.ackers) >= self._committee.quorum
        ]

    def ack_ids(self) -> list[Digest]:
        """The newest Ack statement of each validator: what a proposal relies on, sorted."""
        return sorted(statement_id for _, statement_id in self._acked.values())

    def ackers_of(self, root: ContributionRoot) -> list[NodeId]:
        return sorted(v for v, (roots, _) in self._acked.items() if root in roots)

    def candidate(self, root: ContributionRoot) -> Candidate | None:
        return next((c for c in self._by_author.values() if c.contribution.root == root), None)

    def authors(self) -> set[NodeId]:
        return set(self._by_author)

    def _check(self, contribution: OfferBody) -> None:
        share = self.plan.share_of(contribution.author)
        if share is None:
            raise PeerFault("stranger_offer", "the author is no contributor of this network")
        if contribution.round != self.plan.round:
            raise PeerFault("wrong_round", f"{contribution.round}, now {self.plan.round}")
        if contribution.base_vertex_id != self.plan.base:
            raise PeerFault("wrong_base", contribution.base_vertex_id.hex())
        size_bytes = self._size_of(contribution.codec)
        if size_bytes is None:
            raise PeerFault("unknown_codec", contribution.codec)
        if contribution.size_bytes != size_bytes:
            raise PeerFault("bad_size", f"{contribution.size_bytes} bytes, want {size_bytes}")
        if not 1 <= contribution.steps <= share.steps_max:
            raise PeerFault("too_many_steps", f"{contribution.steps} of {share.steps_max}")
