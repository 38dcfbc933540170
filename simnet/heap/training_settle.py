"""From closed collections to a decided set: the leader proposes, a quorum votes.

The leader proposes what is eligible when its own collection closes; whoever has closed votes. A
leader that is late or gone costs a view. What is decided ends all training of the round.
"""

from functools import partial

from daa_consensus.bft.messages import SetPayload
from daa_node.rounds.synchronous import Happened
from simnet.heap.training_member import Member
from simnet.heap.training_round import OpenRound
from simnet.heap.training_world import TrainingWorld
from simnet.links import NS


class Settlement:
    """The agreement of a training world on sets; one round after the other."""

    def __init__(self, world: TrainingWorld) -> None:
        self._world = world
        self._updates = world.scenario.work.updates

    def closed(self, member: Member) -> None:
        """A collection closed, or somebody is back: perhaps the leader's, perhaps the quorum's."""
        self._consider()
        self._try_decide(self._world.open)
        self._world.parts.execution.try_execute(member)

    def look_again(self) -> None:
        """Others are reached now than before."""
        opened = self._world.open
        self._consider()
        self._try_decide(opened)
        if opened.decided_ns is not None:
            self._give_up_training(opened)

    def _consider(self) -> None:
        world, opened = self._world, self._world.open
        if opened.proposal is not None:
            return
        leader = world.votes.leader()
        if leader in opened.closed and world.takes_part(leader):
            self._propose(opened)
            return
        ready = world.weight(list(opened.closed)) >= world.votes.committee.quorum
        if ready and opened.timed_view != world.votes.view:
            opened.timed_view = world.votes.view
            expired = partial(self._leader_late, opened, world.votes.view)
            world.agenda.after(world.votes.leader_timer_ns(), expired)

    def _leader_late(self, opened: OpenRound, view: int) -> None:
        world = self._world
        if opened is not world.open or opened.proposal is not None or view != world.votes.view:
            return
        world.books.hit("a view was nullified")
        world.agenda.after(world.votes.give_up(), self._consider)

    def _propose(self, opened: OpenRound) -> None:
        world = self._world
        arrives_ns = world.now_ns + world.votes.word_ns
        f_agg = self._updates.f_agg_among(len(opened.plan.shares))
        opened.propose(self._updates.rule, f_agg, arrives_ns)
        world.agenda.after(world.votes.word_ns, partial(self._arrived, opened))

    def _arrived(self, opened: OpenRound) -> None:
        if opened is not self._world.open:
            return
        self._try_decide(opened)
        for member in self._world.members:
            self._world.parts.execution.try_execute(member)

    def _try_decide(self, opened: OpenRound) -> None:
        world = self._world
        if opened.proposal is None or opened.voting or not opened.is_judged_at(self._world.now_ns):
            return
        if world.weight(list(opened.closed)) >= world.votes.committee.quorum:
            opened.voting = True
            world.agenda.after(2 * world.votes.word_ns, partial(self._voted, opened))

    def _voted(self, opened: OpenRound) -> None:
        """The last votes arrive, unless the quorum fell apart meanwhile."""
        self._world.with_quorum(partial(self._decided, opened))

    def _decided(self, opened: OpenRound) -> None:
        world, decided = self._world, opened.proposal
        assert decided is not None, "what is voted on was proposed"
        opened.decided_ns = world.now_ns
        self._give_up_training(opened)
        self._reflect(opened, decided)
        world.parts.execution.decided(opened, decided)

    def _give_up_training(self, opened: OpenRound) -> None:
        """Whatever still trains is too late."""
        for member in self._world.members:
            if member.attempt is None or member.node in opened.offers or member.work is None:
                continue
            if not self._world.reach.is_told(member.node):
                continue
            self._world.books.hit("training was given up")
            member.attempt.makes_none = True
            member.give_up(self._world.now_ns)

    def _reflect(self, opened: OpenRound, decided: SetPayload) -> None:
        """Everybody's lesson of the round, and the books'."""
        authors = {offer.author for offer in decided.offers}
        left_out = len(opened.offers) - len(authors)
        if left_out:
            self._world.books.hit("a contribution was left out")
        for member in self._world.members:
            offered, attempt = member.node in opened.offers, member.attempt
            if offered and member.node_id not in authors:
                member.account.rounds_late += 1
            if attempt is None or not self._world.reach.is_told(member.node):
                continue
            happened = Happened(opened.plan.round, offered=offered, left_out=left_out)
            happened.own_included = member.node_id in authors
            if attempt.trained_ns is not None:
                happened.trained_s = attempt.trained_ns / NS
            since_ns = self._world.parts.closing.since_ns(member, attempt)
            if attempt.own_ready_ns is not None and since_ns is not None:
                assert opened.newest_eligible_ns is not None, "something began its patience"
                spread_ns = opened.newest_eligible_ns - since_ns
                happened.spread_s = max(0, spread_ns) / NS
            member.reflect(happened)
