"""What the parts of a training world share: its nodes, its clock, its books and the open round.

    down --up--> catching up --at the newest height--> open --train, seal--> offered --> waiting
     ^                ^                                                                    |
     +-- kill         +---------- the round ended without us ------------------ closed, merged

Whoever reaches no quorum, or nobody who decides, is astray: it ends what it computes, and is told
where the others stand once it reaches them.

The parts: training_author (a node's own way through a round), training_transfers (updates and
deltas on their way), training_closing (when to stop waiting), training_settle (which set is
decided), training_execution (the next height) and training_failures. Plan, conduct, closing,
lessons and merging are the daemon's own code. Transfers are fluid, votes are waits, a crash loses
the round's steps and whatever is in memory, and who comes back fetches the deltas it missed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from daa_dag.ids import NodeId
from daa_node.agreement.stands import believed
from daa_node.autonomy.loop import WAIT_CHECK_S
from daa_node.autonomy.reason import GRACE_S, RECENT_ROUNDS
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.rounds.config import RoundsConfig
from daa_node.rounds.plan import make_plan
from simnet.determinism import Streams, Trace
from simnet.heap.training_agenda import Agenda
from simnet.heap.training_links import Access, AccessLinks
from simnet.heap.training_member import Member
from simnet.heap.training_reach import Cut, Reach
from simnet.heap.training_round import OpenRound, naive
from simnet.heap.training_votes import Votes
from simnet.links import MS, NS
from simnet.scenario import Scenario
from simnet.training.payloads import Payload
from simnet.training.speeds import Speeds
from simnet.training.tally import Account, Books, Stage

if TYPE_CHECKING:
    from simnet.heap.training_author import Authors
    from simnet.heap.training_closing import Closing
    from simnet.heap.training_execution import Execution
    from simnet.heap.training_settle import Settlement
    from simnet.heap.training_transfers import Transfers


@dataclass(frozen=True, slots=True)
class Parts:
    """Who does what in this world."""

    authors: "Authors"
    transfers: "Transfers"
    closing: "Closing"
    settlement: "Settlement"
    execution: "Execution"


class TrainingWorld:
    """All nodes of one scenario and where they stand."""

    parts: Parts

    def __init__(
        self, scenario: Scenario, payload: Payload, access: list[Access], trace: Trace
    ) -> None:
        streams, nodes = Streams(scenario.seed), range(scenario.node_count)
        self.scenario = scenario
        self.payload = payload
        self.trace = trace
        self.agenda = Agenda()
        self.speeds = Speeds(scenario, streams)
        self.ids = [NodeId(streams.bytes(f"node id {node}")) for node in nodes]
        self.members = [Member(node, node_id, Account()) for node, node_id in enumerate(self.ids)]
        self.books = Books([member.account for member in self.members])
        self.votes = Votes(scenario, streams, self.ids)
        classes = [scenario.group_of(node).name for node in nodes]
        self.links = AccessLinks(access, classes, 2 * self.votes.hop_ns / NS)
        self.stakes = np.array([scenario.group_of(node).stake for node in nodes])
        window_ms = round(scenario.work.window_s * 1000)
        self.rounds = RoundsConfig(
            inner_steps_max=scenario.work.inner_steps_max, window_ms=window_ms, exec_ms=window_ms
        )
        # Sealing reads the model once, and so do merging and stepping, and replaying a delta.
        self.work_ns = round(payload.sizes.parameters / scenario.work.parameters_per_s * NS)
        self.reach = Reach(self.stakes.tolist(), self.votes.committee)
        self._up = set(self.ids)
        self._views: dict[int, set[NodeId]] = {}  # who is seen, by view
        self._postponed: list[Callable[[], None]] = []
        self.recent_sets = deque[set[NodeId]](maxlen=RECENT_ROUNDS)
        self.newest = genesis_vertex(payload.state, self.votes.committee.root)
        self.newest_round = 0  # aborted ones count
        self.loss_nats = payload.loss_nats()
        self.open = self.new_round()

    @property
    def now_ns(self) -> int:
        return self.agenda.now_ns

    def new_round(self) -> OpenRound:
        """The round after the newest one, on the newest certified height."""
        plan = make_plan(
            self.newest,
            self.ids,
            self.rounds,
            self.payload.tokens_per_step,
            self.newest_round,
            self.votes.committee,
        )
        if not self.scenario.work.adaptive:
            plan = naive(plan, self.rounds)
        expected = frozenset(share.author for share in plan.shares)
        self.recent_sets.append({facts.author for facts in self.newest.contributors})
        recent = set[NodeId]().union(*self.recent_sets) or set(expected)
        self.links.new_round()
        seen = self.seen_by(self.reach.widest_view())
        return OpenRound(plan, self.newest, self.now_ns, expected, recent & seen)

    def round_age_ms(self, member: Member) -> int:
        """What the others' newest letters tell it of how long they have been in the round."""
        if not self.scenario.work.adaptive or self.now_ns - self.open.opened_ns <= GRACE_S * NS:
            return 0  # of an age that decides nothing: spares thousands from asking thousands
        said_ns = self.now_ns - self.votes.hop_ns
        ages_ms = {
            other.node_id: (said_ns - other.attempt.began_ns) // MS
            for other in self.members
            if other.attempt is not None
            and other.is_able
            and other is not member
            and self.reach.linked(other.node, member.node)
            and other.attempt.opened_ns < said_ns
        }
        return believed(ages_ms, self.votes.committee) or 0

    def seen_by(self, view: int) -> set[NodeId]:
        """Who has connections with the nodes of this view, see Reach."""
        if self.reach.is_whole:
            return self._up
        if view not in self._views:
            self._views[view] = {
                member.node_id
                for member in self.members
                if member.is_up and self.reach.sees(view, member.node)
            }
        return self._views[view]

    def set_up(self, member: Member, is_up: bool) -> None:
        """Others see it, or see that it is gone."""
        member.is_up = is_up
        (self._up.add if is_up else self._up.discard)(member.node_id)
        self.reach.set_up(member.node, is_up)
        self._views.clear()

    def set_cuts(self, cuts: Sequence[Cut]) -> None:
        """The partitions and holds in force. Transfers are settled already."""
        self.reach.set_cuts(cuts, self.now_ns)
        self._views.clear()
        self.links.set_classes(self.reach.classes)
        # A connection that broke may come back as another process: nobody waits for it.
        self.open.recent &= self.seen_by(self.reach.widest_view())

    def takes_part(self, node: int) -> bool:
        """Whether it acts, and reaches a quorum: else it decides nothing."""
        return self.members[node].is_able and self.reach.decides(node)

    def weight(self, nodes: Iterable[int]) -> int:
        """Of those among them that take part."""
        if self.reach.is_simple:
            able = [node for node in nodes if self.members[node].is_able]
        else:
            able = [node for node in nodes if self.takes_part(node)]
        return int(self.stakes[able].sum())

    def with_quorum(self, call: Callable[[], None]) -> None:
        """Now, or once a quorum can be reached again: last votes are sent again until then."""
        if self.reach.has_quorum:
            call()
        else:
            self._postponed.append(call)

    def go_on(self) -> None:
        """Somebody reaches others again, or no longer: do what waited for that."""
        if not self.reach.has_quorum:
            self.books.hit("nobody reached a quorum")
            return
        postponed, self._postponed = self._postponed, []
        for call in postponed:
            self.agenda.after(self.votes.word_ns, call)
        for member in self.members:
            if member.is_astray and member.is_able and self.reach.is_told(member.node):
                self.parts.authors.enter(member, int(WAIT_CHECK_S * NS))

    def begin(self, member: Member, stage: Stage, lasts_ns: int, then: Callable[[], None]) -> None:
        """The node computes for so long, unless something comes between."""
        until_ns = self.now_ns + lasts_ns
        member.begin(stage, self.now_ns, until_ns, then)
        self.agenda.at(until_ns, partial(self.work_due, member, member.life))

    def work_due(self, member: Member, life: int) -> None:
        """What a node computes is done, unless it was given up, or a pause made it later."""
        work = member.work
        if work is None or member.life != life or not member.is_able:
            return
        if self.now_ns >= work.until_ns:
            member.idle(Stage.WAITING, self.now_ns)
            work.then()
