"""Who said what in each view of one epoch, and the certificates that follow from it.

One message a kind, sender and view is kept; a different second one is evidence. Votes are kept for
a window of views around the current one. Which views above the newest final block were notarized
and nullified is known for all of them; certificates go where nobody can need them any more.
"""

from dataclasses import dataclass, field

from daa_consensus.bft.evidence import Evidence, conflict
from daa_consensus.bft.safety import Seen
from daa_consensus.committee import Committee
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import BlockId, NodeId

VIEWS_AHEAD_MAX = 8  # a peer further ahead has certificates to offer instead
VIEWS_BEHIND_MAX = 8  # late votes of these views still make finalizations and evidence

CERTIFIED_KINDS = (Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE)


@dataclass(slots=True)
class _Slot:
    votes: dict[Kind, dict[NodeId, Signed]] = field(default_factory=dict)
    certificates: dict[Kind, Certificate] = field(default_factory=dict)


class Ballots:
    """The ballots of one epoch above its newest final block."""

    def __init__(self, committee: Committee, root_view: int, root_id: BlockId) -> None:
        self._committee = committee
        self._slots: dict[int, _Slot] = {}
        self.root_view = root_view
        self.notarized: dict[int, BlockId] = {root_view: root_id}
        self.nullified: set[int] = set()
        self._newest_notarized = root_view
        self._newest_nullified = 0

    def seen(self, executed: int, certified: int) -> Seen:
        return Seen(self.notarized, self.nullified, executed, certified)

    def add(self, signed: Signed) -> tuple[Certificate | None, list[Evidence]]:
        """Count a vote: the certificate that it completes, and what it convicts its signer of."""
        statement = signed.statement
        slot = self._slots.setdefault(statement.view, _Slot())
        evidence = []
        for votes in slot.votes.values():
            other = votes.get(signed.signer)
            found = None if other is None else conflict(other, signed)
            if found is not None:
                evidence.append(found)
        votes = slot.votes.setdefault(statement.kind, {})
        if signed.signer in votes:
            return None, evidence
        votes[signed.signer] = signed
        if statement.kind == Kind.PROPOSAL or statement.kind in slot.certificates:
            return None, evidence
        return self._certificate(slot, statement), evidence

    def _certificate(self, slot: _Slot, statement: Statement) -> Certificate | None:
        votes = slot.votes[statement.kind]
        if self._committee.weight(votes.keys()) < self._committee.quorum:
            return None  # whatever they say
        agreeing = {
            signer: vote.signature for signer, vote in votes.items() if vote.statement == statement
        }
        if self._committee.weight(agreeing.keys()) < self._committee.quorum:
            return None
        return Certificate(statement, tuple(sorted(agreeing.items())))

    def certify(self, certificate: Certificate) -> bool:
        """Hold a certificate of a view above the root; False if there was one of its kind."""
        statement = certificate.statement
        slot = self._slots.setdefault(statement.view, _Slot())
        if statement.kind in slot.certificates:
            return False
        slot.certificates[statement.kind] = certificate
        if statement.kind == Kind.NULLIFY:
            self.nullified.add(statement.view)
            self._newest_nullified = max(self._newest_nullified, statement.view)
        else:  # a finalization implies that f+1 honest validators saw the notarization
            assert isinstance(statement.value, bytes)
            self.notarized.setdefault(statement.view, BlockId(statement.value))
            self._newest_notarized = max(self._newest_notarized, statement.view)
        return True

    def proposal(self, view: int) -> Signed | None:
        """The first Proposal of the view's leader (nobody else's gets here)."""
        slot = self._slots.get(view)
        proposals = slot.votes.get(Kind.PROPOSAL, {}) if slot else {}
        return next(iter(proposals.values()), None)

    def mine(self, me: NodeId, view: int) -> list[Signed]:
        """Own messages of the view."""
        slot = self._slots.get(view)
        return [votes[me] for votes in slot.votes.values() if me in votes] if slot else []

    def my_finalize(self, me: NodeId) -> Signed | None:
        """The newest own Finalize above the root."""
        for view in sorted(self._slots, reverse=True):
            vote = self._slots[view].votes.get(Kind.FINALIZE, {}).get(me)
            if vote is not None:
                return vote
        return None

    def senders(self, view: int) -> set[NodeId]:
        """Who spoke of `view` or a later one; a Finalize speaks of a view already left."""
        return {
            signer
            for at, slot in self._slots.items()
            if at >= view
            for kind, votes in slot.votes.items()
            if kind != Kind.FINALIZE
            for signer in votes
        }

    def certificates(self, first_view: int, last_view: int) -> list[Certificate]:
        """Notarizations and nullifications of the views, oldest first."""
        found: list[Certificate] = []
        for view in sorted(v for v in self._slots if first_view <= v <= last_view):
            held = self._slots[view].certificates
            found += [held[kind] for kind in (Kind.NOTARIZE, Kind.NULLIFY) if kind in held]
        return found

    def signers(self, view: int) -> tuple[NodeId, ...]:
        """Who certified the block of `view`: they have it, or know who has."""
        slot = self._slots.get(view)
        held = slot.certificates if slot else {}
        certificate = held.get(Kind.FINALIZE) or held.get(Kind.NOTARIZE)
        return tuple(signer for signer, _ in certificate.signatures) if certificate else ()

    def highest_notarized(self) -> int:
        return self._newest_notarized

    def highest_certified(self) -> int:
        """The newest view that is over: a node stands in a later one."""
        return max(self._newest_notarized, self._newest_nullified)

    def fruitless_before(self, view: int) -> int:
        """Views between the newest final block and `view`, but for one that may become final."""
        return view - self.root_view - 1 - (self.highest_notarized() > self.root_view)

    def parent_for(self, view: int) -> BlockId | None:
        """The newest notarized block that a block of `view` may stand on; None if a gap is open."""
        for below in range(view - 1, self.root_view - 1, -1):
            if below in self.notarized:
                return self.notarized[below]
            if below not in self.nullified:
                return None
        return None

    def views(self) -> list[int]:
        return list(self._slots)

    def forget(self, current_view: int) -> None:
        """Drop the votes of views long over, and certificates below the newest notarized block.

        Whoever is shown its notarization stands in the view after it, whatever it has missed; and
        this node proposes on no older block.
        """
        oldest = current_view - VIEWS_BEHIND_MAX
        needed = min(oldest, self._newest_notarized)
        self._slots = {view: slot for view, slot in self._slots.items() if view >= needed}
        for view, slot in self._slots.items():
            if view < oldest:
                slot.votes.clear()

    def first_gap(self, parent_view: int, view: int) -> int:
        """The first view that a block of `view` on one of `parent_view` must explain to us."""
        if parent_view not in self.notarized:
            return parent_view
        skipped = range(parent_view + 1, view)
        return next((view for view in skipped if view not in self.nullified), parent_view)

    def reroot(self, view: int, block_id: BlockId) -> None:
        """A newer block is final: forget everything at or below its view."""
        self.root_view = view
        self._slots = {v: slot for v, slot in self._slots.items() if v > view}
        self.notarized = {v: b for v, b in self.notarized.items() if v > view} | {view: block_id}
        self.nullified = {v for v in self.nullified if v > view}
        self._newest_notarized = max(self.notarized)
        self._newest_nullified = max(self.nullified, default=0)
