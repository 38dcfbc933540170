"""Trainers that the genesis does not name, whole daemons in virtual time: they enroll.

Every run is also checked for the invariants, the node's own verifier included.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from daa_node.errors import UserError
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.cluster import Cluster
from simnet.pytest_plugin import RunCluster
from simnet.world.scenario import Scenario

MEMBERS = (0, 1, 2, 3)
NEW = 4  # the first newcomer


def run(
    simnet_cluster: RunCluster,
    script: Callable[[Cluster], Awaitable[None]],
    newcomers: int,
    rounds: int,
    trainers: dict[str, Any],
    **fields: Any,
) -> Outcome:
    coming = {"name": "newcomer", "count": newcomers, "role": "newcomer"}
    named = {
        "name": "newcomers",
        "duration_s": 600,
        "nodes": [{"name": "validator", "count": len(MEMBERS)}, coming],
        "topology": {"preset": "regional"},
        "work": {
            "rounds": rounds,
            "inner_steps_max": 10,
            "epoch_rounds": 4,
            "trainers": trainers,
        },
    }
    return simnet_cluster(script, Scenario.model_validate({**named, **fields}), fidelity="light")


def first_set(cluster: Cluster, node: int) -> int | None:
    """The round of the first set that has its contribution."""
    name = cluster.machines[node].node_id
    rounds = [
        v.training_round for v in cluster.chain(0) for c in v.contributors if c.author == name
    ]
    return min(rounds, default=None)


def test_a_trainer_enrolls_is_vouched_for_and_is_in_a_set_within_three_rounds(
    simnet_cluster: RunCluster,
) -> None:
    async def script(cluster: Cluster) -> None:
        for node in MEMBERS:
            cluster.start(node)
        assert await cluster.until_height(3, 120, *MEMBERS)
        cluster.start(NEW)
        began = cluster.sightings.height(0)
        words = {"trainer": cluster.machines[NEW].node_id.hex()}
        assert await asked_until(cluster, 0, "vouch", words)
        assert await cluster.until_height(began + 6, 120)
        first = first_set(cluster, NEW)
        assert first is not None
        assert first <= began + 1 + 3
        told = await cluster.ask(1, "trainers")
        row = told["trainers"][0]
        assert (row["node_id"], row["voucher"]) == (
            words["trainer"],
            cluster.machines[0].node_id.hex(),
        )
        assert (row["idle"], row["until"]) == (False, None)
        roots = {vertex.roll_root for vertex in cluster.chain(NEW)}
        assert len(roots) > 3  # each set says who was seen in it

    run(simnet_cluster, script, 1, 60, {"admission": "vouched"})


async def asked_until(cluster: Cluster, node: int, command: str, words: dict[str, str]) -> bool:
    """Ask as often as it takes: who is vouched for must have been heard of."""
    for _ in range(100):
        try:
            await cluster.ask(node, command, **words)
        except UserError:
            await trio.sleep(0.2)
        else:
            return True
    return False
