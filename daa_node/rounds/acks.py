"""What each validator acknowledged in one round, and the signed Acks that show it.

An Ack only adds: nobody takes a word back, and who was started again may name less than before. So
of each validator every Ack is kept that names a contribution which we know and which no kept one of
its names, and those go that a larger one replaces: one of an honest validator, at most one for each
contribution of a liar. Beside them the newest stays, which may name what we have yet to hear of.
What has counted here can therefore always be shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from daa_consensus.committee import Committee
from daa_consensus.votes import Signed
from daa_dag.ids import ContributionRoot, Digest, NodeId
from daa_node.agreement.letters import ACKS_SHOWN_EACH_MAX


@dataclass(frozen=True, slots=True)
class Ack:
    """One signed Ack and the contributions that it names."""

    signed: Signed
    roots: frozenset[ContributionRoot]


@dataclass(slots=True)
class _Said:
    """One validator's Acks."""

    newest: Ack
    kept: list[Ack] = field(default_factory=list)  # each names a known one that none before it does


class Acks:
    """The Acks of one round; whoever calls says which contributions are known."""

    def __init__(self, committee: Committee) -> None:
        self._committee = committee
        self._said: dict[NodeId, _Said] = {}
        self._ackers: dict[ContributionRoot, set[NodeId]] = {}  # of each known contribution
        self._weights: dict[ContributionRoot, int] = {}

    def hear(self, signed: Signed) -> bool:
        """Take a verified Ack; whether it made a quorum for something known."""
        ack = Ack(signed, acked_roots(signed))
        said = self._said.setdefault(signed.signer, _Said(ack))
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
        """Of what is not known, as far as the newest Acks tell."""
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
        """The newest Ack of each validator that names something known, sorted."""
        return sorted(said.kept[-1].signed.id for said in self._said.values() if said.kept)

    def proof(
        self, roots: Iterable[ContributionRoot]
    ) -> tuple[list[ContributionRoot], list[Signed]]:
        """As many of `roots` as one letter can show a quorum for, with these Acks.

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

    def _count(self, said: _Said, ack: Ack) -> bool:
        """Whether it made a quorum for something known."""
        signer = ack.signed.signer
        new = [r for r in ack.roots if r in self._ackers and signer not in self._ackers[r]]
        if new and not any(kept is ack for kept in said.kept):
            said.kept = [*(kept for kept in said.kept if not kept.roots <= ack.roots), ack]
        weight, quorum, made = self._committee.weight({signer}), self._committee.quorum, False
        for root in new:
            self._ackers[root].add(signer)
            made |= self._weights[root] < quorum <= self._weights[root] + weight
            self._weights[root] += weight
        return made


def acked_roots(signed: Signed) -> frozenset[ContributionRoot]:
    roots = signed.statement.value
    assert isinstance(roots, list), "an Ack's shape was checked when it was decoded"
    return frozenset(ContributionRoot(root) for root in roots)
