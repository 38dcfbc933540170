"""Whole daemons in virtual time: they train, agree, and get over what happens to them.

Every run is also checked for the invariants, the node's own verifier included, by the fixture.
"""

import pytest
import trio

from simnet.nodes.virtual.cluster import Cluster
from simnet.pytest_plugin import RunCluster

ALL_BUT_0 = (1, 2, 3)


@pytest.mark.parametrize("codec", ["int8", "top_k"])
def test_four_daemons_train_and_agree(codec: str, simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_done(timeout_s=60)
        chains = [cluster.chain(node) for node in range(4)]
        assert all(chain == chains[0] for chain in chains)
        assert [vertex.height for vertex in chains[0]] == [0, 1, 2, 3]
        assert {c.author for c in chains[0][3].contributors} == set(cluster.genesis.contributors)
        status = await cluster.ask(2, "status")
        assert status["height"] == 3
        assert status["validators"]["reachable"] == 4

    outcome = simnet_cluster(script, work={"kind": "training", "rounds": 3, "codec": codec})
    assert len(outcome.final_roots) == 1
    losses = outcome.facts["losses"]
    assert losses[0] > losses[1] > losses[2]
    assert outcome.facts["participation"] == 1.0
    tokens = outcome.facts["classes"]["node"]["tokens_certified"]
    assert tokens == outcome.facts["tokens_certified"] > 0
    times_s = [at_s for at_s, _ in outcome.facts["loss_over_time"]]
    assert times_s == sorted(times_s)


@pytest.mark.parametrize("codec", ["int8", "top_k"])
def test_a_killed_node_comes_back_with_its_disk_and_catches_up(
    codec: str, simnet_cluster: RunCluster
) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(1, timeout_s=60)
        cluster.kill(0)
        assert await cluster.until_height(3, 60, *ALL_BUT_0)
        held = len(cluster.chain(0))
        assert held < 4
        cluster.start(0)
        assert await cluster.until_height(3, 60, 0)
        assert cluster.chain(0) == cluster.chain(1)

    outcome = simnet_cluster(script, work={"kind": "training", "rounds": 3, "codec": codec})
    assert {mark.name for mark in outcome.sometimes if mark.hits} >= {"caught up"}


def test_a_machine_that_is_switched_on_and_off_at_once_runs_one_daemon(
    simnet_cluster: RunCluster,
) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(1, timeout_s=60)
        for _ in range(3):
            cluster.kill(0)
            cluster.start(0)
        assert await cluster.until_height(2, timeout_s=60)

    outcome = simnet_cluster(script, fidelity="trio")
    assert [each.detail for each in outcome.invariants if not each.ok] == []


@pytest.mark.long
def test_a_node_that_comes_back_into_a_round_takes_the_steps_that_still_fit(
    simnet_cluster: RunCluster,
) -> None:
    """All train for 40 s. It dies after 10, is back after 15, and is told so by the others."""

    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(1, timeout_s=60)
        await trio.sleep(10)
        cluster.kill(3)
        await trio.sleep(5)
        cluster.start(3)
        await trio.sleep(5)
        decided = (await cluster.ask(3, "status"))["decisions"]
        assert decided[1]["reason"].startswith("round is 1"), decided  # 15 to 19 s old
        assert await cluster.until_height(2, timeout_s=60)
        steps = [c.steps for c in cluster.chain(0)[2].contributors]
        late = cluster.genesis.contributors.index(cluster.machines[3].node_id)
        assert 15 < steps.pop(late) < 30
        assert steps == [40, 40, 40]

    work = {"kind": "training", "inner_steps_max": 40, "step_s": 1.0, "window_s": 100}
    simnet_cluster(script, work=work)


def test_a_node_that_lost_its_disk_votes_again_once_the_others_let_it(
    simnet_cluster: RunCluster,
) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(1, timeout_s=60)
        cluster.wipe(3)
        await trio.sleep(1)
        cluster.start(3)
        assert await cluster.until_height(6, timeout_s=120)

    outcome = simnet_cluster(script, rounds=6)
    assert {mark.name for mark in outcome.sometimes} >= {"quarantined", "rejoined"}


@pytest.mark.long
def test_two_halves_stand_still_and_go_on_when_they_meet_again(
    simnet_cluster: RunCluster,
) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(1, timeout_s=60)
        heal = cluster.links.partition("halves", [0, 1])
        await trio.sleep(10)  # what was under way is over
        stood = [cluster.sightings.height(node) for node in range(4)]
        await trio.sleep(20)
        assert [cluster.sightings.height(node) for node in range(4)] == stood
        heal()
        assert await cluster.until_height(4, timeout_s=60)

    simnet_cluster(script, rounds=8)


def test_three_go_on_without_one_that_is_stopped(simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(1, timeout_s=60)
        cluster.pause(2)
        before = cluster.sightings.height(2)
        assert await cluster.until_height(before + 3, 60, 0, 1, 3)
        assert cluster.sightings.height(2) == before
        cluster.resume(2)
        assert await cluster.until_height(before + 3, 60, 2)

    simnet_cluster(script, rounds=8)


def test_links_are_slow_and_lossy_only_while_they_are_told_to_be(
    simnet_cluster: RunCluster,
) -> None:
    async def script(cluster: Cluster) -> None:
        link = cluster.network.ways.link((0, 1))
        before = link.model
        faster = cluster.links.slow([0], 4)
        better = cluster.links.lose([0, 1], 10)
        assert link.model.latency_ns == 4 * before.latency_ns
        assert (before.loss_ppm, link.model.loss_ppm) == (500, 100_450)  # 1 - 0.9995 x 0.9
        faster()
        assert link.model.latency_ns == before.latency_ns
        better()
        assert link.model == before
        assert cluster.network.ways.link((2, 3)).model != before  # each pair has its own

    simnet_cluster(script)


def test_what_is_said_beside_a_scenario_replaces_its_own(simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        assert cluster.scenario.topology.preset == "wan"

    topology = {"preset": "wan"}
    outcome = simnet_cluster(script, "byzantine", seed=5, topology=topology, checks={})
    assert (outcome.scenario, outcome.seed, outcome.fidelity) == ("byzantine", 5, "trio")
    for wrong in ({"nodes": 3}, {"rounds": 3}):
        with pytest.raises(TypeError, match="its own"):
            simnet_cluster(script, "byzantine", **wrong)


def test_a_failed_assertion_of_the_script_comes_out_as_it_is(simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(99, timeout_s=5), "so high nobody gets"

    with pytest.raises(AssertionError, match="so high nobody gets") as caught:
        simnet_cluster(script, seed=4)
    assert caught.value.__notes__ == ["simnet: scenario test, seed 4"]


def test_a_disk_that_forgets_a_certified_vertex_is_found_out(simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(1, timeout_s=60)
        name = f"chain/vertices/{cluster.chain(1)[1].vertex_id.hex()}"
        cluster.machines[1].disk.remove(name)
        cluster.kill(1)
        await trio.sleep(1)

    with pytest.raises(AssertionError, match="node 1 lost vertex 1 in a crash"):
        simnet_cluster(script)


def test_a_damaged_chain_is_found_out_at_the_end(simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(2, timeout_s=60)
        assert cluster.machines[3].disk.rot("chain") is not None

    with pytest.raises(AssertionError, match="node 3's chain"):
        simnet_cluster(script)


def test_a_bug_in_a_node_ends_the_run_and_is_named(simnet_cluster: RunCluster) -> None:
    class NoClock:
        def wall_ns(self) -> int:
            raise AssertionError("planted")

    async def script(cluster: Cluster) -> None:
        cluster.machines[2].clock = NoClock()  # type: ignore[assignment]
        cluster.start()
        await cluster.until_height(3, timeout_s=60)

    with pytest.raises(AssertionError, match="node 2: AssertionError: planted"):
        simnet_cluster(script)
