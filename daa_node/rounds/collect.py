"""Collect the contributions of one round: offers in, blobs fetched and checked, Acks out.

    signed by its author --fetch, check, store--> held: we ack it --Ack quorum--> eligible
    shown with an Ack quorum, or named by a decided set: adopted, fetched, never acked by us

Invariants: we ack one contribution an author, the first that it signed, once we hold it durably and
have checked it. So an Ack quorum proves that the author signed, and of two things that one author
offers to different members at most one is agreed on, by all. What makes a contribution eligible can
be shown to whoever has not heard it (`rounds.acks`), and counts there as well.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from daa_consensus.bft.messages import OfferBody
from daa_consensus.committee import Committee
from daa_consensus.votes import Signed
from daa_dag.ids import BlobRoot, ContributionRoot, Digest, NodeId
from daa_node.errors import PeerFault
from daa_node.rounds.acks import Acks, acked_roots
from daa_node.rounds.plan import Plan
from daa_node.rounds.planned import check_offer

# What one validator may acknowledge that we do not know, for each contributor, before it is blamed:
# another thing after it was restarted beside authors that offer different ones.
UNKNOWN_EACH_MAX = 1


@dataclass(slots=True)
class Candidate:
    """One contribution and how far it came."""

    contribution: OfferBody
    held: bool = False
    fetching: bool = False
    refused: bool = False  # its blob failed the checks; kept, so that resending it is no new offer


class Collection:
    """The candidates of one round; pure bookkeeping, fed by `rounds.gather`."""

    def __init__(
        self, plan: Plan, committee: Committee, size_of: Callable[[str], int | None]
    ) -> None:
        self.plan = plan
        self._committee = committee
        self._acks = Acks(committee)
        self._size_of = size_of  # bytes of a blob in the named codec; None: unknown codec
        self._candidates: dict[ContributionRoot, Candidate] = {}
        self._signed: dict[NodeId, ContributionRoot] = {}  # the first that each author signed
        self._unknown: dict[NodeId, set[ContributionRoot]] = {}  # acknowledged, and never heard of
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
        root = contribution.root
        if root in self._candidates:
            return None
        candidate = self._candidates[root] = Candidate(contribution)
        if self._acks.know(root):
            self._eligible = None
        return candidate

    def ack(self, signed: Signed) -> None:
        """Count a verified Ack; what an earlier one named counts on.

        Raises PeerFault for a validator that acks more than there can be contributions.
        """
        if self._acks.hear(signed):
            self._eligible = None
        roots, most = acked_roots(signed), UNKNOWN_EACH_MAX * len(self.plan.shares)
        before = self._unknown.get(signed.signer, set())
        unknown = (before | roots) - self._candidates.keys()
        if len(unknown) > most:
            raise PeerFault("too_many_acks", f"{len(unknown)} of what nobody offered")
        self._unknown[signed.signer] = unknown

    def show(
        self, roots: Iterable[ContributionRoot]
    ) -> tuple[tuple[OfferBody, ...], tuple[Signed, ...]]:
        """As many of these as one letter can prove eligible, with the Acks that do."""
        shown, acks = self._acks.proof(roots)
        return tuple(self._candidates[root].contribution for root in shown), tuple(acks)

    def take_over(
        self, contributions: Sequence[OfferBody], acks: Sequence[Signed]
    ) -> list[Candidate]:
        """What somebody shows to be eligible is so here too; those that were not known.

        Raises PeerFault, having changed nothing, unless the plan allows each and these Acks,
        verified, make a quorum for it.
        """
        shown = Acks(self._committee)
        for contribution in contributions:
            check_offer(self.plan, self._size_of, contribution)
            shown.know(contribution.root)
        for signed in acks:
            shown.hear(signed)
        for contribution in contributions:
            if not shown.has_quorum(contribution.root):
                raise PeerFault("no_quorum", f"of Acks for {contribution.root.hex()[:8]}")
        made = [self.adopt(contribution) for contribution in contributions]
        for signed in acks:
            if self._acks.hear(signed):
                self._eligible = None
        return [candidate for candidate in made if candidate is not None]

    def held(self, root: ContributionRoot) -> None:
        self._candidates[root].held = True
        self._held = None

    def lost(self, root: ContributionRoot) -> None:
        """What we held is damaged: it is to be fetched again."""
        self._candidates[root].held = False
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

    def unfinished(self) -> set[BlobRoot]:
        """Blobs that were offered and did not come, or not whole."""
        return {c.contribution.blob_root for c in self._candidates.values() if not c.held}

    def has_quorum(self, root: ContributionRoot) -> bool:
        """Whether an Ack quorum vouches for the contribution, known here or not."""
        return self._acks.has_quorum(root)

    def lacks(self, roots: Iterable[ContributionRoot]) -> Sequence[ContributionRoot]:
        """Those of them that are not known here to have an Ack quorum."""
        known = self._candidates
        return [root for root in roots if root not in known or not self._acks.has_quorum(root)]

    def eligible(self) -> Sequence[OfferBody]:
        """Contributions with an Ack quorum, sorted by author; a new list when there are more."""
        if self._eligible is None:
            found: dict[NodeId, OfferBody] = {}
            for root, candidate in sorted(self._candidates.items()):
                if self._acks.has_quorum(root):
                    found.setdefault(candidate.contribution.author, candidate.contribution)
            self._eligible = [contribution for _, contribution in sorted(found.items())]
        return self._eligible

    def ack_ids(self) -> list[Digest]:
        """The newest Ack of each validator that counts: what a proposal relies on, sorted."""
        return self._acks.ids()

    def ackers_of(self, root: ContributionRoot) -> list[NodeId]:
        return self._acks.ackers_of(root)

    def candidate(self, root: ContributionRoot) -> Candidate | None:
        return self._candidates.get(root)

    def authors(self) -> set[NodeId]:
        return {candidate.contribution.author for candidate in self._candidates.values()}
