"""Validators that never train, whole daemons in virtual time: some of them, all, and then fewer."""

from collections.abc import Awaitable, Callable

import trio

from daa_dag.checkpoint import Vertex
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.cluster import Cluster
from simnet.pytest_plugin import RunCluster
from simnet.world.scenario import Scenario

WINDOW_S = 6.0


def run(
    simnet_cluster: RunCluster,
    script: Callable[[Cluster], Awaitable[None]],
    rounds: int,
    lights: int = 0,
) -> Outcome:
    """`lights`: the first of the four, who never train."""
    groups = [
        {"name": "light", "count": lights, "trainer": {"contribute": False}},
        {"name": "validator", "count": 4 - lights},
    ]
    scenario = Scenario.model_validate(
        {
            "name": "never-train",
            "duration_s": 600,
            "nodes": [group for group in groups if group["count"]],
            "topology": {"preset": "regional"},
            "work": {"rounds": rounds, "inner_steps_max": 10, "window_s": WINDOW_S},
        }
    )
    return simnet_cluster(script, scenario, fidelity="light")


def merged(cluster: Cluster, vertex: Vertex) -> list[int]:
    """Whose contributions, by their numbers."""
    numbers = {machine.node_id: n for n, machine in enumerate(cluster.machines)}
    return sorted(numbers[facts.author] for facts in vertex.contributors)


def test_one_that_never_trains_certifies_is_not_waited_for_and_catches_up(
    simnet_cluster: RunCluster,
) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(2, 60)
        cluster.kill(0)
        assert await cluster.until_height(5, 60, 1, 2, 3)
        cluster.start(0)
        assert await cluster.until_done(120)
        chains = [cluster.chain(node) for node in range(4)]
        assert all(chain == chains[0] for chain in chains)
        assert [merged(cluster, vertex) for vertex in chains[0][1:]] == [[1, 2, 3]] * 10
        told = await cluster.ask(0, "status")
        assert (told["never_trains"], told["loss_nats"], told["alarm"]) == (True, None, None)
        losses = [line["loss_nats"] for line in (await cluster.ask(0, "rounds"))["rounds"]]
        assert losses[-1] is None
        assert all(loss > 0 for loss in losses[:-1])
        (light,) = [p for p in (await cluster.ask(1, "peers"))["peers"] if p["never_trains"]]
        assert light["node_id"] == cluster.machines[0].node_id.hex()
        assert light["health"]["level"] != "low"

    run(simnet_cluster, script, rounds=10, lights=1)


def test_where_nobody_trains_rounds_are_aborted_until_enough_do(
    simnet_cluster: RunCluster,
) -> None:
    async def script(cluster: Cluster) -> None:
        for machine in cluster.machines:
            machine.trains = False
        cluster.start()
        await trio.sleep(5 * WINDOW_S)
        told = await cluster.ask(0, "status")
        assert told["height"] == 0
        assert 1 <= told["round"] <= 6  # none is over before its window
        for count in (2, 3):  # the rule merges three
            cluster.kill(count)
            cluster.machines[count].trains = True
            cluster.start(count)
        before = (await cluster.ask(0, "status"))["round"]
        await trio.sleep(5 * WINDOW_S)
        told = await cluster.ask(0, "status")
        assert told["height"] == 0
        assert 1 <= told["round"] - before <= 6
        cluster.kill(1)
        cluster.machines[1].trains = True
        cluster.start(1)
        assert await cluster.until_height(3, 120)
        assert merged(cluster, cluster.chain(0)[3]) == [1, 2, 3]

    run(simnet_cluster, script, rounds=3)
