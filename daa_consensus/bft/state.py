"""A validator of chained Simplex (Chan and Pass 2023; docs/consensus.md), as a pure machine.

    PARKED --something to decide, or f+1 weight speaks of this view, or I voted in it--> OPEN
      ^                                                                                    |
      +------------- all that there is to decide is final ---------------------------------+
                                                                                           |
      valid proposal from the leader -> Notarize          a bad one, or a timer -> Nullify |
      notarization of any view w >= mine -> Finalize w if I hold its data ------> view w+1 |
      nullification of any view w >= mine --------------------------------------> view w+1 |
      finalization -> the block and its ancestors are final <------------------------------+

`step(now_ns, event)` returns effects in the order in which they are to be carried out. Signing is
an effect: a vote counts once the host steps the machine with the signed message. What may be signed
is `safety.may_vote`'s alone to say; when to want it is decided here.

Invariants, checked after every step:
  * the current view is above the newest final block, and later than every certified view;
  * nothing at or below the final view is remembered, nor anything more than a window ahead;
  * no slot has both an own Finalize and an own Nullify.
"""

from dataclasses import dataclass
from typing import assert_never

from daa_consensus.bft import effects as do
from daa_consensus.bft import events as on
from daa_consensus.bft.agenda import Agenda
from daa_consensus.bft.chain import Chain, Fit, Place
from daa_consensus.bft.effects import Effect
from daa_consensus.bft.events import Event
from daa_consensus.bft.knowledge import Knowledge
from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload, SetPayload
from daa_consensus.bft.pacemaker import Pacemaker, Timing
from daa_consensus.bft.proofs import Proof
from daa_consensus.bft.proposer import Proposer
from daa_consensus.bft.safety import Record, Rules, may_vote
from daa_consensus.bft.voter import Voter
from daa_consensus.committee import Committee
from daa_consensus.membership import Membership
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag.ids import BlockId, ChainId, NodeId


@dataclass(frozen=True, slots=True)
class Restored:
    """What a machine starts from: a genesis alone, or what the host kept of the run before.

    `record` is the guard's; `own_messages` the signed votes of the record's slot, with `own_block`
    if a Proposal is among them; `kept` is what Keep asked to store, in that order.
    """

    tip: Block
    tip_open: bool = False  # the tip's round has a final set and neither result nor abort
    proof: Proof | None = None  # finalizes the tip: Finalized's certificate and trailing blocks
    kept: tuple[tuple[Certificate, Block | None], ...] = ()
    record: Record = Record(0, 0)
    own_messages: tuple[Signed, ...] = ()
    own_block: Block | None = None
    membership: Membership | None = None  # of what follows the tip; None: the committee, as it is
    executed: int = 0  # the newest round that this node signed Exec for


class Simplex:
    """One validator; an observer with `me` None, and in every epoch of which it is no member.

    `committee` is that of the epoch after `restored.tip`. Step the machine with a Tick first.

    `known` is for reading: the chain, the position, and what answers a peer's questions.
    """

    def __init__(
        self,
        chain_id: ChainId,
        committee: Committee,
        me: NodeId | None,
        timing: Timing,
        epoch_rounds: int,
        restored: Restored,
        rules: Rules = may_vote,
    ) -> None:
        chain = Chain(restored.tip, restored.tip_open, epoch_rounds)
        membership = restored.membership or Membership(committee, chain.epoch)
        assert membership.committee == committee, "the committee follows from the chain"
        self.known = Knowledge(chain_id, membership, chain, restored.proof, timing.delta_ns)
        self._me = me
        self._agenda = Agenda(restored.executed)
        self._pacemaker = Pacemaker(timing)
        self._voter = Voter(self.known, self._agenda, restored.record, rules)
        self._proposer = Proposer(self.known, self._agenda)
        self._restored: Restored | None = restored  # until its newest epoch is reached
        self._resumed_in: int | None = None  # the epoch for which it was taken in last
        self._now_ns = 0
        self._timers_run_ns = 0  # events that change nothing must not hide a timer that passed
        self._verdicts: dict[BlockId, on.Judged | None] = {}  # None: asked
        self._data_held: dict[BlockId, bool] = {}  # False: asked
        self._sent_again: tuple[Signed, ...] = ()  # the last votes, as they were then
        self._certificates_wanted: tuple[NodeId, int] | None = None  # from whom, since which view

    @property
    def deadline_ns(self) -> int | None:
        """When to step with a Tick; None while parked."""
        return self._pacemaker.deadline_ns(self._timers_run_ns)

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        """Take in one event; the effects are to be carried out in order.

        Raises BadMessage or NoQuorum for what no honest node sends; it has changed nothing then.
        """
        self._now_ns = max(now_ns, self._now_ns)
        self._resume()
        slot, tip = self.known.slot, self.known.chain.tip
        if not self._take_in(event):
            return []
        self.known.settle()
        self._resume()
        if self.known.chain.tip is not tip:
            self._forget()
        if self.known.slot != slot:
            self._begin_view()
        self._pacemaker.be_patient(self.known.ballots.fruitless_before(self.known.view))
        self._open_or_park()
        if self._votes:
            self._finalize_newest()
            self._consider_proposal()
            self._propose()
        self._run_timers()
        self._check_invariants()
        effects, self.known.effects = self.known.effects, []
        return effects

    @property
    def _votes(self) -> bool:
        return self._me in self.known.committee.stake_of

    def _resume(self) -> None:
        """Take in what the host kept of each epoch once the chain has led there.

        Whoever came to an epoch by others' certificates has votes in it before it has published
        the rounds below: nobody else may have those votes, and they cannot be given again.
        """
        known = self.known
        while self._restored is not None and self._resumed_in != known.domain.epoch:
            restored, self._resumed_in = self._restored, known.domain.epoch
            for certificate, block in restored.kept:
                known.take_certificate(certificate, block)
            known.settle()
            if restored.record.epoch == known.domain.epoch:
                self._recall(restored)
            epochs = [c.statement.domain.epoch for c, _ in restored.kept]
            if known.domain.epoch >= max([restored.record.epoch, *epochs]):
                self._restored = None

    def _recall(self, restored: Restored) -> None:
        """Stand where the guard does, with our own votes in that view."""
        known = self.known
        known.view = max(known.view, restored.record.view)
        for signed in restored.own_messages:
            if signed.statement.kind != Kind.PROPOSAL:
                known.take_vote(signed)
            elif restored.own_block is not None:
                known.take_proposal(signed, restored.own_block)

    def _take_in(self, event: Event) -> bool:
        """Whether anything may follow from it: of most votes and positions nothing does."""
        match event:
            case on.PeerPosition():
                return self.known.take_position(self._now_ns, event)
            case on.VoteArrived(signed):
                # One that completes nothing can at most open a view that is parked.
                return self.known.take_vote(signed) or not self._pacemaker.running
            case on.ProposalArrived(signed, block):
                self.known.take_proposal(signed, block)
            case on.CertificateArrived(certificate, offered, below):
                self.known.take_certificate(certificate, offered, below)
            case on.BlockArrived(block, ancestors):
                self.known.take_block(block, ancestors)
            case on.Tick():
                pass
            case on.RoundReady(round_):
                self._agenda.window_ended(round_)
            case on.PayloadChosen(view, payload):
                self._proposer.choose(view, payload)
            case on.Judged(block_id):
                if block_id in self._verdicts:
                    self._verdicts[block_id] = event
            case on.DataHeld(block_id):
                if block_id in self._data_held:
                    self._data_held[block_id] = True
            case on.ExecSigned(round_):
                self._agenda.exec_signed(round_)
            case on.ExecCertified():
                self._agenda.exec_certified(event)
            case on.AbortDue(round_):
                self._agenda.abort_due(round_)
            case _:
                assert_never(event)
        return True

    def _forget(self) -> None:
        chain = self.known.chain
        self._verdicts = {b: v for b, v in self._verdicts.items() if chain.get(b)}
        self._data_held = {b: v for b, v in self._data_held.items() if chain.get(b)}

    def _begin_view(self) -> None:
        self._pacemaker.enter_view()
        self._proposer.begin_view()
        self._certificates_wanted = None

    def _open_or_park(self) -> None:
        known = self.known
        undecided = not known.all_final or not self._agenda.nothing_to_decide(known.chain)
        if undecided or self._voter.has_voted or known.spoken_of():
            self._pacemaker.open(self._now_ns)
        else:
            self._pacemaker.park()

    def _finalize_newest(self) -> None:
        """Finalize the newest notarized block if its data and that of its ancestors is held."""
        ballots, chain = self.known.ballots, self.known.chain
        view = ballots.highest_notarized()
        newest = chain.get(ballots.notarized[view])
        height = chain.tip.height if newest is None else newest.height
        wanted, holders = self.known.wanted, ballots.signers(view)
        self.known.effects += wanted.walk(chain, ballots.notarized[view], height, holders)
        decisions = chain.decisions(ballots.notarized[view])
        if newest is None or newest is chain.tip or decisions is None:
            return  # all is final, or is being fetched
        sets = [block for block in decisions if isinstance(block.payload, SetPayload)]
        for block in sets:
            self._ask_data(block)
        if all(self._data_held[block.id] for block in sets):
            self._voter.cast(Kind.FINALIZE, newest)

    def _ask_data(self, block: Block) -> None:
        if block.id not in self._data_held:
            self._data_held[block.id] = False
            self.known.effects.append(do.AskDataHeld(block))

    def _consider_proposal(self) -> None:
        """Notarize the leader's proposal, nullify for a bad one, or wait for what is missing."""
        proposal = self.known.ballots.proposal(self.known.view)
        if proposal is None:
            return
        here = self._voter.here
        if here is None or here.nullified or here.notarized is not None:
            return
        assert isinstance(proposal.statement.value, bytes)
        block = self.known.chain.get(BlockId(proposal.statement.value))
        if block is None:
            return
        place = self._assess(block, proposal.signer)
        if place.fit == Fit.FITS:
            self._voter.cast(Kind.NOTARIZE, block)
        elif place.fit == Fit.REFUSE:
            self._voter.nullify(place.reason)

    def _assess(self, block: Block, leader: NodeId) -> Place:
        # Certificates before ancestors: only what a quorum notarized is worth fetching.
        known, verdict = self.known, self._voter.may(Kind.NOTARIZE, block)
        if not verdict.allowed:
            if verdict.curable:
                self._ask_certificates(leader, block.parent_view)
            return Place(Fit.WAIT if verdict.curable else Fit.REFUSE, verdict.reason)
        place = known.chain.place(block)
        if place.fit == Fit.WAIT:
            holders = (leader, *known.ballots.signers(block.parent_view))
            known.effects += known.wanted.walk(known.chain, block.parent_id, block.height, holders)
        if place.fit != Fit.FITS:
            return place
        match block.payload:
            case AbortPayload(round=round_):
                due = self._agenda.abort_is_due(round_)
                return Place(Fit.FITS if due else Fit.WAIT, "the deadline has not passed")
            case ResultPayload():
                return self._agenda.assess_result(block.payload)
            case SetPayload():
                place = self._judge(block, leader)
                if place.fit == Fit.FITS:
                    self._ask_data(block)  # of anything else a leader may have invented it
                return place
            case _:
                return Place(Fit.FITS)

    def _judge(self, block: Block, leader: NodeId) -> Place:
        if leader == self._me:
            return Place(Fit.FITS)  # our host chose it
        if block.id not in self._verdicts:
            self._verdicts[block.id] = None
            self.known.effects.append(do.Judge(block))
        judged = self._verdicts[block.id]
        if judged is None:
            return Place(Fit.WAIT, "not judged yet")
        return Place(Fit.FITS if judged.ok else Fit.REFUSE, judged.reason)

    def _ask_certificates(self, peer: NodeId, first_view: int) -> None:
        if self._certificates_wanted is None:
            self._certificates_wanted = (peer, first_view)
            epoch, view = self.known.slot
            # An answer has few, the oldest first: none of those that we hold.
            gap = self.known.ballots.first_gap(first_view, view)
            self.known.effects.append(do.FetchCertificates(peer, epoch, gap, view - 1))

    def _propose(self) -> None:
        known = self.known
        if not self._pacemaker.running:
            return
        if known.committee.leader(known.domain, known.view) != self._me:
            return
        if self._voter.here is None or self._voter.has_voted:
            return
        block = self._proposer.block(self._pacemaker.empty_block_due(self._now_ns))
        if block is not None:
            self._voter.cast(Kind.PROPOSAL, block)
        elif known.ballots.parent_for(known.view) is None:
            others = [v.node_id for v in known.committee.validators if v.node_id != self._me]
            if others:
                turn = (known.view + self._now_ns) % len(others)  # another one at every repetition
                self._ask_certificates(others[turn], known.ballots.highest_notarized())

    def _run_timers(self) -> None:
        known = self.known
        self._timers_run_ns = self._now_ns
        late = self._pacemaker.leader_timer_passed(self._now_ns)
        here = self._voter.here if late and self._votes else None  # the other timer is longer
        if here is not None:
            if here.notarized is None:
                self._voter.nullify("no valid proposal within the leader timer")
            if self._pacemaker.advance_timer_passed(self._now_ns):
                self._voter.nullify("no certificate within the advance timer")
        if self._pacemaker.take_beat(self._now_ns):
            known.effects += [*known.wanted.again(), do.TryAgain()]
            self._certificates_wanted = None  # asked for again by the next step
            again = self.last_votes()
            is_news = known.catch_up.take_news() or again.messages != self._sent_again
            if self._pacemaker.take_resend(is_news):
                self._sent_again = again.messages
                known.effects.append(again)

    def last_votes(self) -> do.Resend:
        """Own messages of this view, and the newest Finalize that has not come to anything yet."""
        if self._me is None:
            return do.Resend((), None)
        ballots, view = self.known.ballots, self.known.view
        messages = ballots.mine(self._me, view)
        finalize = ballots.my_finalize(self._me)
        if finalize is not None and finalize not in messages:
            messages.append(finalize)
        proposal = next((m for m in messages if m.statement.kind == Kind.PROPOSAL), None)
        if proposal is None:
            return do.Resend(tuple(messages), None)
        assert isinstance(proposal.statement.value, bytes)
        return do.Resend(tuple(messages), self.known.chain.get(BlockId(proposal.statement.value)))

    def _check_invariants(self) -> None:
        self.known.check_invariants()
        record = self._voter.record
        assert not (record.nullified and record.finalized is not None)
