"""What `join` says that joining costs, beside what a whole daemon then fetches and keeps."""

import trio

from daa_dag.retention import Retention
from daa_node.cli.join_costs import Costs, Others, costs_of
from simnet.nodes.virtual.cluster import Cluster
from simnet.pytest_plugin import RunCluster
from simnet.world.scenario import Scenario

MEMBERS = (0, 1, 2, 3)
NEW = 4
PAST, LATER = 40, 8  # rounds before anybody joins, and those that are measured afterwards
RESTORABLE = 8
KEPT = ("chain/", "work/")
# What is told is no less than what comes, and no more than so many times as much.
FACTOR = 1.25
ROUND_FACTOR = 1.5  # who catches up still hears others twice, or not at all

SCENARIO = {
    "name": "join-costs",
    "duration_s": 1200,
    "nodes": [
        {"name": "validator", "count": len(MEMBERS)},
        {"name": "newcomer", "count": 1, "role": "newcomer"},
    ],
    "topology": {"preset": "regional"},
    "work": {
        "rounds": 500,
        "inner_steps_max": 10,
        "epoch_rounds": 4,
        "vertices_restorable": RESTORABLE,
        "trainers": {"admission": "open"},
        "spot_checks": {"share": [0, 1]},  # a lot decides how many a few rounds have
    },
}


class Scales:
    """What lies on the newcomer's disk, and the most that ever did."""

    def __init__(self, cluster: Cluster) -> None:
        self._disk = cluster.machines[NEW].disk
        self.most_bytes = 0

    def weigh(self, *under: str) -> int:
        return sum(len(file) for path, file in self._disk.files.items() if path.startswith(under))

    async def watch(self) -> None:
        while True:
            self.most_bytes = max(self.most_bytes, self.weigh(*KEPT))
            await trio.sleep(0.0005)


def test_joining_and_each_round_cost_what_join_says(simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start(*MEMBERS)
        assert await cluster.until_height(PAST, 600, *MEMBERS)
        scales = Scales(cluster)
        cluster.start(NEW)
        cluster.start_soon(scales.watch)
        assert await cluster.until_height(PAST, 300, NEW)
        landed, proofs = cluster.sightings.height(NEW), scales.weigh("chain/packs/")
        told = told_at(cluster, landed)
        assert "the newest whole state" in told.parts
        assert proofs < told.parts["proofs"] < FACTOR * proofs
        assert scales.most_bytes < told.disk_bytes < FACTOR * scales.most_bytes
        assert await cluster.until_height(landed + 2, 300, NEW)
        before = (await cluster.ask(NEW, "status"))["bytes_received"]
        began = cluster.sightings.height(NEW)
        assert await cluster.until_height(began + LATER, 300, NEW)
        came = (await cluster.ask(NEW, "status"))["bytes_received"] - before
        rounds = cluster.sightings.height(NEW) - began
        assert came / rounds < told.round_bytes < ROUND_FACTOR * came / rounds

    simnet_cluster(script, Scenario.model_validate(SCENARIO), fidelity="light")


def told_at(cluster: Cluster, height: int) -> Costs:
    others = Others(len(MEMBERS), 0)
    return costs_of(cluster.genesis, Retention(RESTORABLE), height + 1, others)
