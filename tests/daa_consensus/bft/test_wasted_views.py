"""A member that wastes every view it leads: what each of them costs the others.

Nobody can be made to lead well. It says nothing at all, shows its proposal to one member alone, or
so late that some have given up: the timers of the pacemaker end the view, and the next leader's
counts. All other words it says as an honest node does.
"""

import pytest

from daa_consensus.bft import events as on
from daa_consensus.committee import Domain
from daa_dag.ids import NodeId
from tests.daa_consensus.bft.simulation import CHAIN, DELTA_NS, Faults, Node, World, node_id

WASTER = 3
ROUNDS = 25
SEEDS = range(4)
LOST_DELTAS_MAX = 3  # when the advance timer passes; 2.1 to 2.7 on average


class WastedViews(World):
    """`how` the proposals of member WASTER leave it."""

    def __init__(self, seed: int, how: str) -> None:
        super().__init__(seed, [1] * 4, Faults())
        self.how = how

    def send(self, sender: Node, to: NodeId, event: on.Event) -> None:
        if not isinstance(event, on.ProposalArrived) or sender.index != WASTER:
            super().send(sender, to, event)
        elif self.how == "late":
            self.call(2 * DELTA_NS, sender, lambda: World.send(self, sender, to, event))
        elif self.how == "well" or (self.how == "to one" and to == node_id(0)):
            super().send(sender, to, event)


def walked(seed: int, how: str) -> tuple[int, int]:
    """Nanoseconds that so many rounds take, and the views in them that the member led."""
    world = WastedViews(seed, how)
    world.run(10_000 * DELTA_NS, done=lambda: world.final[-1].height >= ROUNDS)
    assert world.final[-1].height >= ROUNDS, f"{world.final[-1].height} rounds"
    root = world.committee.root
    led = [
        entered
        for entered in world.hosts[0].views
        if world.committee.leader(Domain(CHAIN, entered.epoch, root), entered.view)
        == node_id(WASTER)
    ]
    return world.now_ns, len(led)


@pytest.mark.parametrize("how", ["never", "to one", "late"])
def test_a_view_wasted_by_its_leader_costs_the_others_three_delta(how: str) -> None:
    well_ns = sum(walked(seed, "well")[0] for seed in SEEDS)
    wasted = [walked(seed, how) for seed in SEEDS]
    lost_ns, led = sum(ns for ns, _ in wasted) - well_ns, sum(views for _, views in wasted)
    assert led >= len(SEEDS) * ROUNDS // 2, "it led too few views for a figure"
    assert 1.0 < lost_ns / DELTA_NS / led <= LOST_DELTAS_MAX
