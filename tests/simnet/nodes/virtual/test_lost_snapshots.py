"""Members that lose their newest whole states have copies of them again, without a coordinator."""

import trio

from daa_node.checkpoints.replication import COPIES, LOOK_EVERY_S
from simnet.nodes.virtual.cluster import Cluster
from simnet.pytest_plugin import RunCluster

LOST = (1, 2, 3)
EVERY = 2  # vertices from one whole state to the next
ROUNDS = 5


def states_of(cluster: Cluster, node: int) -> set[str]:
    files = cluster.machines[node].disk.files
    return {path for path in files if path.startswith(("chain/chunks/", "chain/manifests/"))}


def test_states_that_three_of_four_have_lost_are_copied_again(simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_done(timeout_s=120)
        newest = cluster.chain(0)[ROUNDS - 1]  # the newest whole state is at height 4
        manifests = {
            f"chain/manifests/{root.hex()}" for root in (newest.model_root, newest.outer_state_root)
        }
        whole = states_of(cluster, 0)
        assert manifests <= whole
        deltas = {f"chain/manifests/{vertex.delta_root.hex()}" for vertex in cluster.chain(0)}
        for node in LOST:
            for path in states_of(cluster, node) - deltas:
                cluster.machines[node].disk.remove(path)
            assert not manifests & states_of(cluster, node)
        await trio.sleep(2 * LOOK_EVERY_S)
        holders = [node for node in range(4) if manifests <= states_of(cluster, node)]
        assert 0 in holders
        assert len(holders) == COPIES

    outcome = simnet_cluster(
        script,
        duration_s=4 * int(LOOK_EVERY_S),
        work={"kind": "training", "rounds": ROUNDS, "inner_steps_max": 10, "snapshot_every": EVERY},
    )
    assert len(outcome.final_roots) == 1
