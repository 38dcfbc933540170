"""What a node keeps for a restart goes from its disk, if not in the instant that a run ends."""

import pytest
import trio

from daa_node.agreement.recovery import BLOCKS
from simnet.nodes.virtual.cluster import Cluster
from simnet.pytest_plugin import RunCluster

KEPT = f"work/{BLOCKS}/"
COPIES = 400


async def pile_up(cluster: Cluster) -> None:
    """Beside a killed node's kept block lie copies of it, as if it had kept hundreds."""
    cluster.start()
    assert await cluster.until_height(2, 60)
    disk = cluster.machines[3].disk
    while not any(path.startswith(KEPT) for path in disk.files):
        await trio.sleep(0.001)
    kept = next(path for path in sorted(disk.files) if path.startswith(KEPT))
    content = disk.files[kept]  # what was not synced yet goes with the process
    cluster.kill(3)
    for copy in range(COPIES):
        disk.put(f"{kept}-{copy}", content, sync=True)


def test_a_run_waits_while_a_node_prunes(simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        await pile_up(cluster)
        cluster.start(3)
        assert cluster.sightings.excess() is not None

    simnet_cluster(script)


def test_a_node_that_never_prunes_is_found(simnet_cluster: RunCluster) -> None:
    with pytest.raises(AssertionError, match=r"node 3 has \d+ kept statements and blocks, at most"):
        simnet_cluster(pile_up)
