"""A whole daemon keeps no more in memory after many rounds than it did before."""

import gc

import pytest

from daa_node.adapters.open_packs import OpenPacks
from daa_node.observability.events import EventLog
from daa_node.rounds.history import ROUNDS_LISTED_MAX
from simnet.nodes.virtual.cluster import Cluster
from simnet.pytest_plugin import RunCluster
from tests.reachable import reachable

SETTLED = ROUNDS_LISTED_MAX + 100  # whatever is bounded by a number of rounds is full then
MORE = 200
# Both are bounded, and what they hold is not the same each time.
APART = (OpenPacks, EventLog)


@pytest.mark.long
def test_a_daemon_keeps_nothing_of_each_round(simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        (machine,) = cluster.machines
        counts = list[int]()
        for height in (SETTLED, SETTLED + MORE):
            assert await cluster.until_height(height, 100_000)
            gc.collect()
            found = reachable([machine.desk.handlers], APART, ("simnet", "trio"))
            # of numbers small ones are the same object wherever they stand
            counts.append(sum(1 for each in found if not isinstance(each, int)))
        assert counts[0] > 5_000, "the daemon was to be seen"
        assert counts[1] - counts[0] < MORE // 10

    simnet_cluster(
        script, nodes=1, work={"kind": "training", "rounds": SETTLED + MORE, "inner_steps_max": 1}
    )
