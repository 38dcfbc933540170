"""How long the committee takes to decide something, modelled: votes are small, links are not idle.

One hop is what a quorum of messages from all over the committee takes: the latency at the quorum's
place among pairs of nodes drawn by the seed, half of the jitter on top. A block is final after
three hops (proposal, notarizations, finalizations). A leader that is down costs a view: its timer
of two deltas, doubled over consecutive nullified views, and a hop of nullifications. Loss, and the
time to sign and to verify, are not modelled.
"""

from collections.abc import Callable

from daa_consensus.bft.pacemaker import LEADER_DELTAS
from daa_consensus.committee import Committee, Domain, Validator
from daa_dag.ids import ChainId, NodeId
from daa_node.agreement.config import AgreementConfig
from simnet.determinism import Streams
from simnet.links import MS
from simnet.scenario import Scenario
from simnet.topology import Topology

PAIRS_DRAWN = 256
DISK_NS = 3_200_000  # one synced word in the log, median measured on our disks
FINAL_HOPS = 3  # proposal, notarizations, finalizations


class Votes:
    """The committee's pace, and who leads."""

    def __init__(self, scenario: Scenario, streams: Streams, ids: list[NodeId]) -> None:
        stakes = [scenario.group_of(node).stake for node in range(scenario.node_count)]
        members = sorted(
            (Validator(node_id, stake) for node_id, stake in zip(ids, stakes, strict=True)),
        )
        self.committee = Committee(tuple(members))
        self.hop_ns = _hop_ns(scenario, streams)
        self.delta_ns = scenario.work.delta_ms * MS
        cap_ms = max(AgreementConfig().view_timeout_cap_ms, 3 * scenario.work.delta_ms)
        timing = AgreementConfig(
            delta_ms=min(max(scenario.work.delta_ms, 10), 60_000), view_timeout_cap_ms=cap_ms
        )
        self._doublings_max = timing.doublings_max
        self._domain = Domain(ChainId(streams.bytes("chain id")), 0, self.committee.root)
        self._node_of = {node_id: node for node, node_id in enumerate(ids)}
        self.view = 1
        self.nullified = 0
        self._in_a_row = 0

    @property
    def word_ns(self) -> int:
        """From deciding to say something to a quorum having heard it: the disk, then a hop."""
        return DISK_NS + self.hop_ns

    def leader(self) -> int:
        return self._node_of[self.committee.leader(self._domain, self.view)]

    def leader_timer_ns(self) -> int:
        """How long the committee waits for this view's leader."""
        return LEADER_DELTAS * self.delta_ns << min(self._in_a_row, self._doublings_max)

    def give_up(self) -> int:
        """Nullify the view; how long that takes once the timer has passed."""
        self.view += 1
        self.nullified += 1
        self._in_a_row += 1
        return self.word_ns

    def finalized(self) -> None:
        """The view's block is final: the next view begins."""
        self.view += 1
        self._in_a_row = 0

    def block_ns(self, is_able: Callable[[int], bool]) -> int:
        """How long one more block takes that every leader can propose at once, from now.

        Leaders that are not able now cost a view each.
        """
        spent_ns = 0
        for _ in range(len(self.committee.validators)):
            if is_able(self.leader()):
                break
            spent_ns += self.leader_timer_ns() + self.give_up()
        self.finalized()
        return spent_ns + FINAL_HOPS * self.word_ns


def _hop_ns(scenario: Scenario, streams: Streams) -> int:
    topology, count = Topology(scenario, streams), scenario.node_count
    chance = streams.random("pairs of a hop")
    found = []
    for _ in range(PAIRS_DRAWN if count > 1 else 0):
        one, other = chance.sample(range(count), 2)
        link = topology.link(one, other)
        found.append(link.latency_ns + link.jitter_ns // 2)
    return sorted(found)[2 * len(found) // 3] if found else 0
