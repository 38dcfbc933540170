"""Collect the contributions of one round: offers in, blobs fetched and checked, Acks out.

    signed by its author --fetch, check, store--> held: we ack it --Ack quorum--> eligible
    shown with an Ack quorum, or named by a decided set: adopted, fetched, never acked by us

Invariants: we ack one contribution an author, the first that it signed, once we hold it durably and
have checked it. So an Ack quorum proves that the author signed, and of two things that one author
offers to different members at most one is agreed on, by all. What makes a contribution eligible can
be shown to whoever has not heard it, and counts there as well.

An Ack only adds: nobody takes a word back, and who was started again may name less than before. So
of each validator every Ack is kept that names a contribution which we know and which no kept one of
its names, and those go that a larger one replaces: one of an honest validator, at most one for each
contribution of a liar. Beside them the newest stays, which may name what we have yet to hear of.
What has counted here can therefore always be shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from daa_consensus.bft.messages import OfferBody
from daa_consensus.committee import Committee
from daa_consensus.votes import Signed
from daa_dag.ids import BlobRoot, ContributionRoot, Digest, NodeId
from daa_node.agreement.messages import ACKS_SHOWN_EACH_MAX
from daa_node.errors import PeerFault
from daa_node.rounds.plan import Plan, SizeOf

# What one validator may acknowledge that we do not know, for each contributor, before it is blamed:
# another thing after it was restarted beside authors that offer different ones.
UNKNOWN_EACH_MAX = 1


@dataclass(frozen=True, slots=True)
class Ack:
    """One signed Ack and the contributions that it names."""

    signed: Signed
    roots: frozenset[ContributionRoot]

    @classmethod
    def of(cls, signed: Signed) -> "Ack":
        roots = signed.statement.value
        assert isinstance(roots, list), "an Ack's shape was checked when it was decoded"
        return cls(signed, frozenset(cast(list[ContributionRoot], roots)))


@dataclass(slots=True)
class _AcksOfOne:
    """One validator's Acks."""

    newest: Ack
    kept: list[Ack] = field(default_factory=list)  # each names a known one that none before it does
    counted: set[ContributionRoot] = field(default_factory=set)  # the known ones that these name


class Acks:
    """The Acks of one round; whoever calls says which contributions are known."""

    def __init__(self, committee: Committee) -> None:
        self._committee = committee
        self._said: dict[NodeId, _AcksOfOne] = {}
        self._ackers: dict[ContributionRoot, set[NodeId]] = {}  # of each known contribution
        self._weights: dict[ContributionRoot, int] = {}

    def hear(self, ack: Ack) -> list[ContributionRoot]:
        """Take a verified Ack; for which known contributions it made a quorum."""
        said = self._said.setdefault(ack.signed.signer, _AcksOfOne(ack))
        if not ack.roots <= said.newest.roots:
            said.newest = ack
        return self._count(said, ack)

    def know(self, root: ContributionRoot) -> bool:
        """From now on Acks that name this are kept; whether it has a quorum already."""
        if root in self._ackers:
            return False
        self._ackers[root], self._weights[root] = set(), 0
        for said in self._said.values():
            for ack in (*said.kept, said.newest):
                if root in ack.roots:
                    self._count(said, ack)
                    break
        return self.has_quorum(root)

    def has_quorum(self, root: ContributionRoot) -> bool:
        """Whether a quorum vouches for it; of what is not known, as far as the newest Acks tell."""
        weight = self._weights.get(root)
        if weight is None:
            weight = self._committee.weight(set(self.ackers_of(root)))
        return weight >= self._committee.quorum

    def ackers_of(self, root: ContributionRoot) -> list[NodeId]:
        """Who acknowledged it; of what is not known, as far as the newest Acks tell."""
        if root in self._ackers:
            return sorted(self._ackers[root])
        return sorted(node for node, said in self._said.items() if root in said.newest.roots)

    def ids(self) -> list[Digest]:
        """The newest Ack of each validator that names something known: a proposal relies on it."""
        return sorted(said.kept[-1].signed.id for said in self._said.values() if said.kept)

    def proof(
        self, roots: Iterable[ContributionRoot]
    ) -> tuple[list[ContributionRoot], list[Signed]]:
        """As many of `roots` as one message can show a quorum for, with these Acks.

        At least one, if one has a quorum: two Acks of each validator are always enough for that.
        """
        most = ACKS_SHOWN_EACH_MAX * len(self._committee.validators)
        shown: list[ContributionRoot] = []
        chosen: dict[Digest, Ack] = {}
        for root in (root for root in roots if root in self._ackers and self.has_quorum(root)):
            more = self._lacking(root, chosen)
            if len(chosen) + len(more) <= most:
                chosen |= {ack.signed.id: ack for ack in more}
                shown.append(root)
        return shown, [ack.signed for ack in chosen.values()]

    def _lacking(self, root: ContributionRoot, chosen: Mapping[Digest, Ack]) -> Sequence[Ack]:
        """The Acks that make a quorum for the contribution beside those that are chosen already."""
        there = {ack.signed.signer for ack in chosen.values() if root in ack.roots}
        more: list[Ack] = []
        for node in sorted(self._ackers[root] - there):
            if self._committee.weight(there) >= self._committee.quorum:
                break
            there.add(node)
            more.append(next(a for a in reversed(self._said[node].kept) if root in a.roots))
        return more

    def _count(self, said: _AcksOfOne, ack: Ack) -> list[ContributionRoot]:
        """For which known contributions it made a quorum."""
        signer = ack.signed.signer
        # Only what is new of it: it names again all that its author held before.
        new = [root for root in ack.roots - said.counted if root in self._ackers]
        if new and not any(kept is ack for kept in said.kept):
            said.kept = [*(kept for kept in said.kept if not kept.roots <= ack.roots), ack]
        said.counted.update(new)
        weight, quorum = self._committee.weight({signer}), self._committee.quorum
        made: list[ContributionRoot] = []
        for root in new:
            self._ackers[root].add(signer)
            if self._weights[root] < quorum <= self._weights[root] + weight:
                made.append(root)
            self._weights[root] += weight
        return made


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
        self,
        plan: Plan,
        committee: Committee,
        size_of: SizeOf,
        shunned: frozenset[NodeId] = frozenset(),
    ) -> None:
        """`shunned`: whose contributions we do not acknowledge, nor wait for."""
        self.plan = plan
        self.shunned = shunned
        self._committee = committee
        self.acks = Acks(committee)
        self._size_of = size_of
        self._candidates: dict[ContributionRoot, Candidate] = {}
        self._signed: dict[NodeId, ContributionRoot] = {}  # the first that each author signed
        # What each has acknowledged that we have never heard of.
        self._unknown: dict[NodeId, frozenset[ContributionRoot]] = {}
        # What is asked at every statement of a hundred members, worked out when it has changed.
        self._found: dict[NodeId, OfferBody] = {}  # what counts of each author
        self._eligible: list[OfferBody] | None = None  # the same, in order
        self._held: list[ContributionRoot] | None = None

    def offer(self, contribution: OfferBody) -> Candidate | None:
        """What its author signed: the new candidate, or None if it was known.

        Raises PeerFault if it is not eligible, or not the first of its author.
        """
        self.plan.check(contribution, self._size_of)
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
        if self.acks.know(root):
            self._count([root])
        return candidate

    def ack(self, signed: Signed) -> None:
        """Count a verified Ack; what an earlier one named counts on.

        Raises PeerFault for a validator that acks more than there can be contributions.
        """
        ack, most = Ack.of(signed), UNKNOWN_EACH_MAX * len(self.plan.shares)
        self._count(self.acks.hear(ack))
        unknown = ack.roots.difference(self._candidates)
        unknown |= self._unknown.get(signed.signer, frozenset()).difference(self._candidates)
        if len(unknown) > most:
            raise PeerFault("too_many_acks", f"{len(unknown)} of what nobody offered")
        self._unknown[signed.signer] = unknown

    def show(
        self, roots: Iterable[ContributionRoot]
    ) -> tuple[tuple[OfferBody, ...], tuple[Signed, ...]]:
        """As many of these as one message can prove eligible, with the Acks that do."""
        shown, acks = self.acks.proof(roots)
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
            self.plan.check(contribution, self._size_of)
            shown.know(contribution.root)
        for signed in acks:
            shown.hear(Ack.of(signed))
        for contribution in contributions:
            if not shown.has_quorum(contribution.root):
                raise PeerFault("no_quorum", f"of Acks for {contribution.root.hex()[:8]}")
        made = [self.adopt(contribution) for contribution in contributions]
        for signed in acks:
            self._count(self.acks.hear(Ack.of(signed)))
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
            self._held = sorted(
                root
                for author, root in self._signed.items()
                if self._candidates[root].held and author not in self.shunned
            )
        return self._held

    def relent(self) -> None:
        """Acknowledge everybody after all."""
        self.shunned, self._held = frozenset(), None

    def unfinished(self) -> set[BlobRoot]:
        """Blobs that were offered and did not come, or not whole."""
        return {c.contribution.blob_root for c in self._candidates.values() if not c.held}

    def lacks(self, roots: Iterable[ContributionRoot]) -> Sequence[ContributionRoot]:
        """Those of them that are not known here to have an Ack quorum."""
        known = self._candidates
        return [root for root in roots if root not in known or not self.acks.has_quorum(root)]

    def eligible(self) -> Sequence[OfferBody]:
        """Contributions with an Ack quorum, sorted by author; a new list when there are more."""
        if self._eligible is None:
            self._eligible = [self._found[author] for author in sorted(self._found)]
        return self._eligible

    def _count(self, roots: Iterable[ContributionRoot]) -> None:
        """These have a quorum now: of two of one author the smaller root counts."""
        for root in roots:
            contribution = self._candidates[root].contribution
            before = self._found.get(contribution.author)
            if before is None or root < before.root:
                self._found[contribution.author], self._eligible = contribution, None

    def is_held(self, root: ContributionRoot) -> bool:
        candidate = self._candidates.get(root)
        return candidate is not None and candidate.held

    def turn_of(self, contribution: OfferBody) -> int:
        """How many authors' Offers had come here when this one came.

        What its author has not told us comes after all that authors have.
        """
        for turn, (author, root) in enumerate(self._signed.items()):
            if author == contribution.author and root == contribution.root:
                return turn
        return len(self._signed)

    def candidate(self, root: ContributionRoot) -> Candidate | None:
        return self._candidates.get(root)

    def authors(self) -> set[NodeId]:
        return {candidate.contribution.author for candidate in self._candidates.values()}
