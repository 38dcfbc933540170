"""Trainers beside validators, whole daemons in virtual time: they contribute and do not vote.

Every run is also checked for the invariants, the node's own verifier included.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from daa_dag.checkpoint import Vertex
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.world import run_virtual
from simnet.pytest_plugin import RunCluster
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

MEMBERS = (0, 1, 2, 3)
LOOKER_ON = 7


def run(
    simnet_cluster: RunCluster,
    script: Callable[[Cluster], Awaitable[None]],
    trainers: int,
    rounds: int,
    **fields: Any,
) -> Outcome:
    beside = {"name": "trainer", "count": trainers, "role": "trainer"}
    named = {
        "name": "trainers",
        "duration_s": 600,
        "nodes": [{"name": "validator", "count": len(MEMBERS)}, beside],
        "topology": {"preset": "regional"},
        "work": {"rounds": rounds, "inner_steps_max": 10, "epoch_rounds": 4},
    }
    scenario = Scenario.model_validate({**named, **fields})
    return simnet_cluster(script, scenario, fidelity="light")


def merged(cluster: Cluster, vertex: Vertex) -> list[int]:
    """Whose contributions, by their numbers."""
    numbers = {machine.node_id: n for n, machine in enumerate(cluster.machines)}
    return sorted(numbers[facts.author] for facts in vertex.contributors if facts.weight)


def test_trainers_are_certified_in_the_first_round_and_need_no_vote(
    simnet_cluster: RunCluster,
) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_done(timeout_s=120)
        assert await cluster.until_height(3, 60, LOOKER_ON)
        chains = [cluster.chain(node) for node in range(8)]
        assert all(chain == chains[0] for chain in chains)
        assert [merged(cluster, vertex) for vertex in chains[0][1:]] == [[*range(7)]] * 3
        # one of four members, and one of three trainers
        assert [vertex.f_agg for vertex in chains[0][1:]] == [2, 2, 2]
        status = await cluster.ask(5, "status")
        assert (status["part"], status["height"]) == ("trainer", 3)
        assert status["trainers"] == {"reachable": 3, "total": 3}
        assert status["validators"]["total"] == 4
        parts = [peer["part"] for peer in (await cluster.ask(0, "peers"))["peers"]]
        assert sorted(parts) == ["observer", *["trainer"] * 3, *["validator"] * 3]
        signed = [{*cluster.sightings.shelves.words(node)} for node in range(8)]
        assert all({"exec", "notarize", "offer"} <= signed[member] for member in MEMBERS)
        assert signed[len(MEMBERS) :] == [{"offer"}] * 3 + [set()]

    beside = [{"name": "trainer", "count": 3, "role": "trainer"}]
    beside.append({"name": "outside", "count": 1, "role": "observer"})
    nodes = [{"name": "validator", "count": len(MEMBERS)}, *beside]
    outcome = run(simnet_cluster, script, trainers=3, rounds=3, nodes=nodes)
    assert outcome.facts["participation"] == 1.0


def test_trainers_that_are_away_stop_nobody_and_contribute_again_when_they_are_back(
    simnet_cluster: RunCluster,
) -> None:
    """One crashes, one loses its disk, and links part the third: members go on alone."""

    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(1, timeout_s=60)
        cluster.kill(4)
        cluster.wipe(5)
        heal = cluster.links.partition("isolate", [6])
        before = cluster.sightings.height(0)
        assert await cluster.until_height(before + 4, 120, *MEMBERS)
        alone = cluster.chain(0)[-1]
        assert merged(cluster, alone) == [*MEMBERS]
        assert alone.f_agg == 1  # of members alone, as without trainers
        heal()
        cluster.start(4)
        cluster.start(5)
        again = cluster.sightings.height(0) + 12
        assert await cluster.until_height(again, 240)
        assert merged(cluster, cluster.chain(0)[again]) == [*range(7)]

    outcome = run(simnet_cluster, script, trainers=3, rounds=60)
    # whose disk is lost may have offered before: a set has to carry its Rejoin first
    assert {mark.name for mark in outcome.sometimes} >= {"quarantined", "rejoined"}


def test_a_trainer_that_offers_two_updates_in_one_round_contributes_no_more(
    simnet_cluster: RunCluster,
) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(10, 240, *MEMBERS)
        liar = cluster.machines[4].node_id
        chain = cluster.chain(0)
        convicted = [vertex.height for vertex in chain if liar in vertex.excluded]
        assert convicted, "no set convicts it"
        after = [vertex for vertex in chain if vertex.height > convicted[0]]
        assert after
        assert all(facts.author != liar for v in after for facts in v.contributors)
        while 4 in (peers := await trainers_of(cluster)):
            assert peers
            await trio.sleep(1)  # until its epoch ends

    async def trainers_of(cluster: Cluster) -> set[int]:
        peers = (await cluster.ask(0, "peers"))["peers"]
        names = {machine.node_id.hex(): n for n, machine in enumerate(cluster.machines)}
        return {names[p["node_id"]] for p in peers if p["part"] == "trainer"}

    liar = {"kind": "double_offerer", "nodes": [4]}
    run(simnet_cluster, script, trainers=2, rounds=60, adversaries=[liar])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["cheat", "framer"])
def test_a_trainer_that_has_not_trained_or_accuses_falsely_is_convicted(kind: str) -> None:
    """Those who check it are trainers, too: their verdicts bring the charge, and weigh nothing."""
    scenario = Scenario.model_validate(
        {
            "name": "cheating-trainer",
            "fidelity": "light",
            "duration_s": 60,
            "nodes": [{"count": 4}, {"name": "trainer", "count": 3, "role": "trainer"}],
            "topology": {"preset": "regional"},
            "work": {"rounds": 20, "inner_steps_max": 8, "spot_checks": {"share": [1, 1]}},
            "adversaries": [{"kind": kind, "nodes": [4]}],
        }
    )
    outcome = run_virtual(scenario, Trace())
    assert [each.name for each in outcome.invariants if not each.ok] == []
    assert [liar["node"] for liar in outcome.facts["liars"] if liar["excluded"]] == [4]
