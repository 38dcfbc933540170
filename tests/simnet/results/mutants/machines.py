"""Mistakes that somebody could make in the machine itself, each as a whole.

The rules have a second line of defence in the signer; who plants one of these may leave that out.
"""

from dataclasses import replace

from daa_consensus.bft.chain import Fit
from daa_consensus.bft.effects import Accuse, Effect, SignAndSend
from daa_consensus.bft.events import CertificateArrived, Event, ProposalArrived, VoteArrived
from daa_consensus.bft.evidence import Evidence
from daa_consensus.bft.messages import Block, EmptyPayload, SetPayload
from daa_consensus.bft.pacemaker import LEADER_DELTAS, Timing
from daa_consensus.bft.safety import Record, Seen, Verdict, Vote, may_vote
from daa_consensus.bft.state import Restored, Simplex
from daa_consensus.committee import Committee
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import BlockId, ChainId, NodeId


def bent(committee: Committee, **changes: object) -> Committee:
    """An equal committee of which something is miscounted."""
    copy = Committee(committee.validators)
    vars(copy).update(changes)
    return copy


def nullify_after_finalize(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.kind is Kind.NULLIFY:
        record = replace(record, finalized=None)
    return may_vote(record, seen, vote)


class TimerOutlivesView(Simplex):
    """A view's timer is not stopped with the view: it fires, and the rule forgets the Finalize."""

    _late: tuple[int, int, int] | None = None  # when it fires, and for which epoch and view

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        slot, opened_ns = self.known.slot, self._pacemaker._opened_ns
        effects = super().step(now_ns, event)
        if self.known.slot != slot and opened_ns is not None:
            due_ns = opened_ns + LEADER_DELTAS * self._pacemaker._timing.delta_ns
            self._late = (due_ns, *slot)
        if self._late is not None and now_ns >= self._late[0]:
            _, epoch, view = self._late
            self._late = None
            vote = Vote(Kind.NULLIFY, (epoch, view))
            verdict = nullify_after_finalize(self._voter.record, Seen({}, frozenset()), vote)
            if verdict.allowed and epoch == self.known.domain.epoch:
                statement = Statement(self.known.domain, Kind.NULLIFY, view, 0, None)
                effects.append(SignAndSend(statement, None))
        return effects


def notarize_again(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.kind is Kind.NOTARIZE:
        record = replace(record, notarized=None)
    return may_vote(record, seen, vote)


class EveryProposal(Simplex):
    """Every proposal of a leader is voted for, not its first alone."""

    def __init__(
        self,
        chain_id: ChainId,
        committee: Committee,
        me: NodeId | None,
        timing: Timing,
        epoch_rounds: int,
        restored: Restored,
    ) -> None:
        super().__init__(chain_id, committee, me, timing, epoch_rounds, restored, notarize_again)
        self._offered: dict[BlockId, tuple[NodeId, Block]] = {}  # of this view, not voted for

    def _take_in(self, event: Event) -> bool:
        taken = super()._take_in(event)
        if isinstance(event, ProposalArrived):
            self.known.chain.add(event.block)
            self._offered[event.block.id] = (event.signed.signer, event.block)
        return taken

    def _consider_proposal(self) -> None:
        view = self.known.view
        self._offered = {b: o for b, o in self._offered.items() if o[1].view >= view}
        for block_id, (leader, block) in list(self._offered.items()):
            if block.view == view and self._assess(block, leader).fit is Fit.FITS:
                del self._offered[block_id]
                self._voter.cast(Kind.NOTARIZE, block)


class LeaderUnchecked(Simplex):
    """Whoever proposes first is followed."""

    def _take_in(self, event: Event) -> bool:
        if isinstance(event, ProposalArrived):
            truth = self.known.committee
            anybody = bent(truth, leader=lambda domain, view: event.signed.signer)
            self.known.committee = anybody
            taken = super()._take_in(event)
            self.known.committee = truth
            return taken
        return super()._take_in(event)


class OwnBlock(Simplex):
    """The vote goes to a block that the voter made of the leader's."""

    def _consider_proposal(self) -> None:
        proposal = self.known.ballots.proposal(self.known.view)
        block = None if proposal is None else self.known.chain.get(BlockId(_id_in(proposal)))
        if block is None or proposal is None or not self._voter.may(Kind.NOTARIZE, block).allowed:
            return
        if self._assess(block, proposal.signer).fit is Fit.FITS:
            own = replace(block, height=block.height - 1, payload=EmptyPayload())
            own = own if isinstance(block.payload, SetPayload) else block
            self.known.chain.add(own)
            self._voter.cast(Kind.NOTARIZE, own)


def _id_in(signed: Signed) -> bytes:
    assert isinstance(signed.statement.value, bytes)
    return signed.statement.value


class FewerCertify(Simplex):
    """A received certificate needs the weight that holds an honest node, not a quorum's."""

    def _take_in(self, event: Event) -> bool:
        truth = self.known.committee
        if not isinstance(event, CertificateArrived):
            return super()._take_in(event)
        fewer = self.known.committee = bent(truth, quorum=truth.blocking, blocking=truth.blocking)
        try:
            return super()._take_in(event)
        finally:
            if self.known.committee is fewer:
                self.known.committee = truth


class Slander(Simplex):
    """To give up what one has voted for is taken for an offence."""

    def _take_in(self, event: Event) -> bool:
        taken = super()._take_in(event)
        if isinstance(event, VoteArrived) and event.signed.statement.kind is Kind.NULLIFY:
            view = event.signed.statement.view
            for word in self.known.ballots.mine(event.signed.signer, view):
                if word.statement.kind is Kind.NOTARIZE:
                    both = word, event.signed
                    offence = Evidence("notarize and nullify in one view", word.signer, both)
                    self.known.effects.append(Accuse(offence))
                    return True
        return taken
