"""What the parts of a training world share: its nodes, its clock, its books and the open round.

    down --up--> catching up --at the newest height--> open --train, seal--> offered --> waiting
     ^                ^                                                                    |
     +-- kill         +---------- the round ended without us ------------------ closed, merged

The parts: training_author (a node's own way through a round), training_transfers (updates and
deltas on their way), training_closing (when to stop waiting), training_settle (which set is
decided), training_execution (the next height) and training_failures. Plan, conduct, closing,
lessons and merging are the daemon's own code. Transfers are fluid, votes are waits, a crash loses
the round's steps and whatever is in memory, and who comes back fetches the deltas it missed.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from daa_dag.ids import NodeId
from daa_node.agreement.stands import believed
from daa_node.autonomy.presence import RECENT_ROUNDS
from daa_node.autonomy.reason import GRACE_S
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.rounds.config import RoundsConfig
from simnet.determinism import Streams, Trace
from simnet.heap.training_agenda import Agenda
from simnet.heap.training_links import Access, AccessLinks
from simnet.heap.training_member import Member
from simnet.heap.training_round import OpenRound, naive, plan_round
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
        self.stakes = [scenario.group_of(node).stake for node in nodes]
        window_ms = round(scenario.work.window_s * 1000)
        self.rounds = RoundsConfig(
            inner_steps_max=scenario.work.inner_steps_max, window_ms=window_ms, exec_ms=window_ms
        )
        # Sealing reads the model once, and so do merging and stepping, and replaying a delta.
        self.work_ns = round(payload.sizes.parameters / scenario.work.parameters_per_s * NS)
        self.reachable = set(self.ids)
        self.reachable_weight = sum(self.stakes)
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
        plan = plan_round(
            self.newest, self.ids, self.rounds, self.payload.tokens_per_step, self.newest_round
        )
        if not self.scenario.work.adaptive:
            plan = naive(plan, self.rounds)
        expected = frozenset(share.author for share in plan.shares)
        self.recent_sets.append({facts.author for facts in self.newest.contributors})
        recent = set[NodeId]().union(*self.recent_sets) or set(expected)
        self.links.new_round()
        return OpenRound(plan, self.newest, self.now_ns, expected, recent & self.reachable)

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
            and other.attempt.opened_ns < said_ns
        }
        return believed(ages_ms, self.votes.committee) or 0

    def set_reachable(self, member: Member, is_reachable: bool) -> None:
        """Others see it, or see that it is gone."""
        change = self.reachable.add if is_reachable else self.reachable.discard
        change(member.node_id)
        self.reachable_weight += self.stakes[member.node] * (1 if is_reachable else -1)

    def weight(self, nodes: list[int]) -> int:
        """Of those among them that act."""
        return sum(self.stakes[node] for node in nodes if self.members[node].is_able)

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
