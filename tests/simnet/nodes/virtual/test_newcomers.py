"""Trainers that the genesis does not name, whole daemons in virtual time: they enroll.

Every run is also checked for the invariants, the node's own verifier included.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from daa_node.errors import UserError
from daa_node.seams import StateRef
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.inline_trainer import InlineTrainer
from simnet.pytest_plugin import RunCluster
from simnet.world.scenario import Scenario

MEMBERS = (0, 1, 2, 3)
NEW = 4  # the first newcomer
LOOK_S = 10.0
STEP_S = 30.0


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


def sets_with(cluster: Cluster, node: int) -> list[int]:
    """The rounds whose sets have its contribution."""
    name = cluster.machines[node].node_id
    return sorted(
        v.training_round for v in cluster.chain(0) for c in v.contributors if c.author == name
    )


def first_set(cluster: Cluster, node: int) -> int | None:
    return next(iter(sets_with(cluster, node)), None)


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


def test_a_host_that_looks_at_its_loss_for_longer_than_rounds_take_contributes(
    simnet_cluster: RunCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks when nothing is to be followed, and for a tenth of its time."""
    evaluate, looks_at_s = InlineTrainer.evaluate, list[float]()

    async def noted(trainer: InlineTrainer, state: StateRef) -> float:
        loss_nats = await evaluate(trainer, state)
        if trainer._pace.evaluate_s == LOOK_S:
            looks_at_s.append(trio.current_time())
        return loss_nats

    monkeypatch.setattr(InlineTrainer, "evaluate", noted)

    async def script(cluster: Cluster) -> None:
        slow = cluster.machines[NEW]
        slow.pace = replace(slow.pace, evaluate_s=LOOK_S)
        for node in MEMBERS:
            cluster.start(node)
        assert await cluster.until_height(3, 120, *MEMBERS)
        cluster.start(NEW)
        began = cluster.sightings.height(0)
        assert await asked_until(cluster, 0, "vouch", {"trainer": slow.node_id.hex()})
        assert await cluster.until_height(began + 20, 240, *MEMBERS)
        rounds = sets_with(cluster, NEW)
        assert rounds[0] <= began + 1 + 3
        assert len(rounds) >= 10
        assert len(looks_at_s) == 1  # once it had contributed

    run(simnet_cluster, script, 1, 60, {"admission": "vouched"})


def test_a_trainer_too_slow_for_the_rounds_hardly_lengthens_them(
    simnet_cluster: RunCluster,
) -> None:
    """It idles after 16 rounds and enrolls again; of these it is waited for in one."""

    async def round_s(cluster: Cluster, rounds: int) -> float:
        began_s, height = trio.current_time(), cluster.sightings.height(0)
        assert await cluster.until_height(height + rounds, 120, *MEMBERS)
        return (trio.current_time() - began_s) / rounds

    async def script(cluster: Cluster) -> None:
        slow = cluster.machines[NEW]
        slow.pace = replace(slow.pace, step_s=lambda _round: STEP_S)
        for node in MEMBERS:
            cluster.start(node)
        assert await cluster.until_height(3, 120, *MEMBERS)
        alone_s = await round_s(cluster, 8)
        cluster.start(NEW)
        assert await asked_until(cluster, 0, "vouch", {"trainer": slow.node_id.hex()})
        await round_s(cluster, 12)  # it has been missed often enough
        beside_s = await round_s(cluster, 32)
        assert sets_with(cluster, NEW) == []
        assert 1.02 * alone_s < beside_s < 1.1 * alone_s

    run(simnet_cluster, script, 1, 80, {"admission": "vouched"})


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


@pytest.mark.long
def test_eight_that_come_at_once_and_are_vouched_for_all_train(
    simnet_cluster: RunCluster,
) -> None:
    """Words are given one after another here, so the last one is later than the first."""

    async def script(cluster: Cluster) -> None:
        for node in MEMBERS:
            cluster.start(node)
        assert await cluster.until_height(3, 120, *MEMBERS)
        coming = range(NEW, NEW + 8)
        for node in coming:
            cluster.start(node)
        began = cluster.sightings.height(0)
        for node in coming:
            words = {"trainer": cluster.machines[node].node_id.hex()}
            assert await asked_until(cluster, node % len(MEMBERS), "vouch", words)
        assert await cluster.until_height(began + 8, 240, *MEMBERS)
        firsts = [first_set(cluster, node) for node in coming]
        assert all(first is not None and first <= began + 7 for first in firsts)
        assert max(vertex.f_agg for vertex in cluster.chain(0)) == 3  # one, and its two trainers

    run(simnet_cluster, script, 8, 60, {"admission": "vouched", "per_voucher": 2})


def test_who_retires_stays_off_the_roll_over_a_restart_and_comes_back_once_it_is_asked(
    simnet_cluster: RunCluster,
) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(1, 120, *MEMBERS, NEW)
        seen = cluster.sightings

        async def on_roll(count: int) -> bool:
            for _ in range(60):
                if len((await cluster.ask(0, "trainers"))["trainers"]) == count:
                    return True
                await cluster.until_height(seen.height(0) + 1, 60, 0)
            return False

        assert await on_roll(1)
        assert await cluster.until_height(seen.height(0) + 3, 60, NEW)
        await cluster.ask(NEW, "retire", trainer=cluster.machines[NEW].node_id.hex())
        assert await on_roll(0)
        cluster.kill(NEW)
        cluster.start(NEW)
        # where it would have enrolled by itself: it looks each second, and follows the members
        assert await cluster.until_height(seen.height(0) + 8, 120, NEW)
        assert not (await cluster.ask(0, "trainers"))["trainers"]
        assert (await cluster.ask(NEW, "status"))["retired"]
        await cluster.ask(NEW, "enroll")
        assert await on_roll(1)
        assert not (await cluster.ask(NEW, "status"))["retired"]

    run(simnet_cluster, script, 1, 400, {"admission": "open"})


@pytest.mark.long
def test_in_an_open_network_whoever_asks_trains_and_more_than_fit_take_turns(
    simnet_cluster: RunCluster,
) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(16, 240, *MEMBERS)
        names = [cluster.machines[node].node_id for node in range(NEW, NEW + 3)]
        sets = [{c.author for c in vertex.contributors} for vertex in cluster.chain(0)[1:]]
        assert all(len(authors.intersection(names)) <= 1 for authors in sets)
        assert all(any(name in authors for authors in sets) for name in names)

    rules = {"admission": "open", "contributors_max": 5, "max": 8}
    run(simnet_cluster, script, 3, 60, rules)
