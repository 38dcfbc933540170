"""Who only trains costs next to nothing, in a simulation as on a host."""

import trio

from simnet.nodes.virtual.cluster import Cluster
from simnet.pytest_plugin import RunCluster

NODES, WATCHED_S = 7, 120


class Steps(trio.abc.Instrument):
    """How often tasks were run on, all together."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


def test_nodes_that_only_train_are_woken_a_few_times_a_second(simnet_cluster: RunCluster) -> None:
    steps = Steps()

    async def script(cluster: Cluster) -> None:
        cluster.start()
        await trio.sleep(60)
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(WATCHED_S)
        trio.lowlevel.remove_instrument(steps)
        assert all(len(cluster.chain(node)) == 1 for node in range(NODES))  # the round goes on
        assert await cluster.until_done(timeout_s=1000)

    simnet_cluster(
        script,
        nodes=NODES,
        fidelity="light",
        work={
            "kind": "training",
            "model": "virtual",
            "parameters": 100_000_000,
            "rounds": 1,
            "step_s": 1,
            "inner_steps_max": 600,
            "window_s": 900,
        },
        duration_s=2000,
    )
    assert steps.count / NODES / WATCHED_S < 8
