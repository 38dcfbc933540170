"""One validator in whole rounds: it gathers contributions, closes, and settles with the others.

    GATHERING --stop_waiting says so--> CLOSED --quorum bound to one set--> DECIDED --merged,
    and a quorum says that it has, too--> over: the next round begins

What is gathered, what counts and when to wait no longer are the daemon's own rules (Collection,
Presence, stop_waiting, adapt). Agreement is a model of it: in a view its leader proposes a set, a
quorum votes, then a quorum is bound; who is bound votes for nothing else in that round. It takes
the messages and the waits of the real one, without blocks, certificates and signatures.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import ContributionRoot, NodeId
from daa_node.autonomy.adapt import LESSONS_LOOKED_AT, Lesson, Lessons, adapt
from daa_node.autonomy.policy import Policy
from daa_node.autonomy.reason import Gathering, Presence, stop_waiting
from daa_node.rounds.collect import Collection
from daa_node.rounds.plan import Plan
from simnet.nodes.heap.round_chain import Chain
from simnet.nodes.heap.round_messages import (
    Acked,
    Asked,
    Executed,
    Message,
    Offered,
    Proposed,
    Voted,
)
from simnet.nodes.heap.round_requests import Pool
from simnet.world.links import NS

VIEW_DELTAS = 6  # of the first view; each of the next ones may take twice as long
VIEW_DOUBLINGS_MAX = 4
EARLY_EACH_MAX = 8  # messages of the next round that are kept, of each validator and contributor
AGAIN_NS = 4 * NS  # after which what was said of the round is said again
NOTES, BINDS, GIVES_UP = 0, 1, 2  # phases: for a set, for being bound to it, for another view
NO_SIGNATURE = b"-"  # nobody checks one here


@dataclass(frozen=True, slots=True)
class Host:
    """What a seat asks of the world."""

    now_ns: Callable[[], int]
    tell: Callable[[Message], None]  # all other validators
    reachable: Callable[[], Set[NodeId]]  # who is up, ourselves included
    newest_sets: Callable[[], Sequence[Set[NodeId]]]  # authors of the newest sets
    fetch: Callable[[int], None]  # a contribution's blob
    merge: Callable[[], None]  # begin to; `executed` is called when it is done
    decide: Callable[[Proposed], None]  # a quorum is bound to it
    over: Callable[[], None]  # a quorum has merged the round's set


@dataclass(slots=True)
class Bound:
    """What must survive a restart: to which set of which round it is bound, and its votes."""

    round: int = 0
    what: int | None = None
    views: set[int] = field(default_factory=set)  # voted in


class Seat:
    """One life of one validator, in one round after the other."""

    def __init__(self, name: NodeId, chain: Chain, host: Host, bound: Bound, delta_ns: int) -> None:
        self.name = name
        self.round = 0  # none yet
        self.collection: Collection | None = None
        self.offered: dict[ContributionRoot, Offered] = {}
        self.pool = Pool(name, chain)
        self.is_decided = False
        self._chain = chain
        self._host = host
        self._bound = bound
        self._delta_ns = delta_ns
        self._policy = Policy()
        self._lessons = Lessons()
        self._early: list[tuple[NodeId, Message]] = []

    def begin(self, plan: Plan) -> None:
        """The next round: what came early for it is heard now."""
        chain, now_ns = self._chain, self._host.now_ns()
        self.round, self.offered, self.is_decided = plan.round, {}, False
        sizes = chain.rules.codec_sizes.get
        self.collection = Collection(plan, chain.committee, sizes)
        self._plan, self._began_ns = plan, now_ns
        self._presence = Presence(self._host.reachable(), self._host.newest_sets())
        self._own_ready_ns: int | None = None
        self._eligible_ns: dict[ContributionRoot, int] = {}
        self._acked = 0
        self._closed_ns: int | None = None
        self._view, self._view_ns = 0, now_ns
        self._proposals: dict[int, Proposed] = {}  # by their key
        self._votes: dict[tuple[int, int, int], set[NodeId]] = {}
        self._executed: set[NodeId] = set()
        self._is_over = False
        self._ack: Acked | None = None
        self._told_ns = now_ns
        if self._bound.round != plan.round:
            self._bound.round, self._bound.what = plan.round, None
            self._bound.views.clear()
        gone = self.pool.tidy()
        if gone is not None:
            self._host.tell(Asked(self.pool.add([gone], is_first_hand=True), False))
        early, self._early = self._early, []
        for sender, message in early:
            self.hear(sender, message)

    def hear(self, sender: NodeId, message: Message) -> None:
        """What another validator, or an author, says of the round; of others it is too late."""
        about = message.body.round if isinstance(message, Offered) else _round_of(message)
        if about is None:
            return
        if about > self.round:
            shares = self._chain.plan.shares
            if len(self._early) < EARLY_EACH_MAX * len(shares):
                self._early.append((sender, message))
            return
        if about < self.round or self.collection is None:
            return
        match message:
            case Offered():
                self._take(message)
            case Acked(signed=signed):
                self.collection.ack(signed)
                self._note_eligible()
            case Proposed():
                self._proposals[message.key] = message
                self._consider()
            case Voted(view=view, phase=phase, proposal=key):
                self._votes.setdefault((view, phase, key), set()).add(sender)
                self._count()
            case Executed():
                self.executed(sender)

    def own_ready(self, offered: Offered) -> None:
        """Our own contribution is there, and held."""
        assert self.collection is not None
        if offered.body.round == self.round:
            self._take(offered)
            self.held(offered.body.root)
            self._own_ready_ns = self._host.now_ns()

    def held(self, root: ContributionRoot) -> None:
        """Its blob is whole here, and checked."""
        if self.collection is not None and root in self.offered:
            self.collection.held(root)

    def look(self) -> None:
        """What time brings: an Ack of what is new, the end of waiting, the next view."""
        assert self.collection is not None
        self._presence.look(self._host.reachable())
        self._acknowledge()
        if self._host.now_ns() - self._told_ns > AGAIN_NS:
            self._told_ns = self._host.now_ns()
            for message in self._said():
                self._host.tell(message)
        if self._closed_ns is None:
            self._may_close()
        if self._closed_ns is None or self.is_decided:
            return
        timeout_ns = VIEW_DELTAS * self._delta_ns << min(self._view, VIEW_DOUBLINGS_MAX)
        if self._host.now_ns() - max(self._view_ns, self._closed_ns) > timeout_ns:
            self._vote(self._view, GIVES_UP, 0)
        self._consider()

    def executed(self, validator: NodeId) -> None:
        """It, or we ourselves, have merged the set."""
        if validator == self.name:
            self._host.tell(Executed(self.round))
        committee, before = self._chain.committee, len(self._executed)
        self._executed.add(validator)
        weight = committee.weight(self._executed)
        if len(self._executed) > before and weight >= committee.quorum and not self._is_over:
            self._is_over = True
            self._host.over()

    def recall(self, with_offers: bool) -> list[Message]:
        """What one has missed who was away: contributions that are known, and our own words."""
        if self.collection is None:
            return []
        offers = list(self.offered.values()) if with_offers else []
        return [*offers, *self._proposals.values(), *self._said()]

    def learn(self, authors: Set[NodeId]) -> None:
        """The round is over, with these in its set: what that teaches of waiting."""
        assert self.collection is not None
        most_ns = self._chain.most_since_ns(self._plan, self._eligible_ns.values())
        newest_ns = max(self._eligible_ns.values(), default=None)
        spread_s = None
        if self._own_ready_ns is not None and most_ns is not None and newest_ns is not None:
            spread_s = max(0, newest_ns - max(self._own_ready_ns, most_ns)) / NS
        left_out = len(self.collection.authors() - authors)
        in_time = self.name in authors if self._own_ready_ns is not None else None
        self._lessons.add(Lesson(self.round, None, None, spread_s, left_out, in_time))
        self._policy, _ = adapt(self._policy, self._lessons.newest(LESSONS_LOOKED_AT))

    @property
    def kept(self) -> int:
        """Entries of everything that it keeps."""
        held = len(self.offered) + len(self.pool) + len(self._early)
        return held if self.collection is None else held + len(self._votes) + len(self._proposals)

    def _said(self) -> list[Message]:
        """Our own words in this view, which a cut may have swallowed."""
        votes = [
            Voted(self.round, view, phase, key)
            for (view, phase, key), voters in self._votes.items()
            if view == self._view and self.name in voters
        ]
        own = [p for p in self._proposals.values() if p.view == self._view]
        proposals = own if self._chain.leader(self.round, self._view) == self.name else []
        acks = [] if self._ack is None else [self._ack]
        executed = [Executed(self.round)] if self.name in self._executed else []
        return [*acks, *proposals, *votes, *executed]

    def _take(self, offered: Offered) -> None:
        assert self.collection is not None
        if self.collection.offer(offered.body) is not None:
            self.offered[offered.body.root] = offered
            self._host.fetch(offered.blob)
            self._note_eligible()

    def _acknowledge(self) -> None:
        assert self.collection is not None
        roots = self.collection.held_roots()
        if len(roots) == self._acked:
            return
        self._acked = len(roots)
        value: list[bytes] = list(roots)
        statement = Statement(self._chain.domain, Kind.ACK, 0, self.round, [*value])
        signed = Signed(statement, self.name, NO_SIGNATURE)
        self.collection.ack(signed)
        self._note_eligible()
        self._ack = Acked(self.round, signed, len(roots))
        self._host.tell(self._ack)

    def _note_eligible(self) -> None:
        assert self.collection is not None
        now_ns = self._host.now_ns()
        for offer in self.collection.eligible():
            self._eligible_ns.setdefault(offer.root, now_ns)

    def _may_close(self) -> None:
        assert self.collection is not None
        now_ns, plan = self._host.now_ns(), self._plan
        expected = {share.author for share in plan.shares}
        eligible = {offer.author for offer in self.collection.eligible()}
        since_ns = self._chain.most_since_ns(self._plan, self._eligible_ns.values())
        waiting_s = None
        if since_ns is not None:
            waiting_s = (now_ns - max(self._own_ready_ns or 0, since_ns)) / NS
        decision = stop_waiting(
            Gathering(
                elapsed_s=(now_ns - self._began_ns) / NS,
                waiting_s=waiting_s,
                window_s=self._chain.rules.rounds.window_s,
                expected=expected,
                eligible=eligible,
                reachable=self._host.reachable(),
                recent=self._presence.awaited(expected),
                are_enough=self._chain.may_merge(eligible),
            ),
            self._policy,
        )
        if decision is not None:
            self._closed_ns = now_ns

    def _consider(self) -> None:
        """Propose if it is our turn, and vote for what we may vote for."""
        if self._closed_ns is None or self.is_decided:
            return
        if (
            self._chain.leader(self.round, self._view) == self.name
            and self._view not in self._bound.views
        ):
            proposal = self._own_proposal()
            self._proposals[proposal.key] = proposal
            self._host.tell(proposal)
        for proposal in list(self._proposals.values()):
            if proposal.view >= self._view and self._may_vote(proposal):
                self._view, self._view_ns = proposal.view, self._host.now_ns()
                self._bound.views.add(proposal.view)
                self._vote(proposal.view, NOTES, proposal.key)
        self._count()

    def _own_proposal(self) -> Proposed:
        assert self.collection is not None
        for known in self._proposals.values():
            if known.what == self._bound.what:
                return Proposed(self.round, self._view, known.roots, known.requests)
        eligible = self.collection.eligible()
        enough = self._chain.may_merge([offer.author for offer in eligible])
        roots = frozenset(offer.root for offer in eligible) if enough else frozenset()
        return Proposed(self.round, self._view, roots, self.pool.chosen())

    def _may_vote(self, proposal: Proposed) -> bool:
        if proposal.view in self._bound.views:
            return False
        if self._bound.what is not None:
            return proposal.what == self._bound.what
        assert self.collection is not None
        if not proposal.roots:
            return not self._chain.may_merge([o.author for o in self.collection.eligible()])
        # Every set must list what was eligible before we closed, and for a delta by now.
        assert self._closed_ns is not None
        before_ns = min(self._closed_ns, self._host.now_ns() - self._delta_ns)
        owed = {root for root, since_ns in self._eligible_ns.items() if since_ns < before_ns}
        return not self.collection.lacks(proposal.roots) and owed <= proposal.roots

    def _vote(self, view: int, phase: int, proposal: int) -> None:
        voters = self._votes.setdefault((view, phase, proposal), set())
        if self.name not in voters:
            voters.add(self.name)
            self._host.tell(Voted(self.round, view, phase, proposal))

    def _count(self) -> None:
        """Be bound by what a quorum votes for; decided is what a quorum is bound to.

        A view is over when a quorum gives it up. Where a blocking weight is, an honest one is.
        """
        committee = self._chain.committee
        for (view, phase, key), voters in list(self._votes.items()):
            weight, proposal = committee.weight(voters), self._proposals.get(key)
            if view > self._view and weight >= committee.blocking:
                self._view, self._view_ns = view, self._host.now_ns()
            if weight < committee.quorum:
                continue
            if phase == GIVES_UP and view >= self._view:
                self._view, self._view_ns = view + 1, self._host.now_ns()
            elif proposal is None or self.is_decided:
                continue
            elif phase == NOTES and self._bound.what in (None, proposal.what):
                self._bound.what = proposal.what
                self._vote(view, BINDS, key)
            elif phase == BINDS:
                self.is_decided = True
                self._host.decide(proposal)
                self._host.merge()


def _round_of(message: Message) -> int | None:
    match message:
        case Acked() | Proposed() | Voted() | Executed():
            return message.round
        case _:
            return None
