"""A network goes on to the next protocol version: together, once a quorum of it has said so."""

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import NodeId
from daa_node import wiring
from daa_node.agreement.signer import Signer
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.mishaps import Mishaps
from simnet.nodes.virtual.world import run_script
from simnet.pytest_plugin import RunCluster
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

NEXT = [1, 2]
SIGNED: list[tuple[float, NodeId, int]] = []  # when, by whom, and in which epoch


class Overheard(Signer):
    """Notes what it signs."""

    async def sign(self, statement: Statement, abort_round: int | None = None) -> Signed:
        signed = await super().sign(statement, abort_round)
        if statement.kind is not Kind.MEMBERSHIP:
            SIGNED.append((trio.current_time(), signed.signer, statement.domain.epoch))
        return signed


LATE_S = 16.0  # when the last one is upgraded


def scenario(*nodes: dict[str, Any], rounds: int = 200) -> Scenario:
    work = {"kind": "training", "rounds": rounds, "window_s": 0.3, "step_s": 0.1, "epoch_rounds": 2}
    return Scenario.model_validate(
        {"name": "switch", "fidelity": "light", "duration_s": 600, "nodes": nodes, "work": work}
    )


def upgraded(at_s: float, every_s: float = 1.5) -> dict[str, Any]:
    return {"speaks": NEXT, "at_s": at_s, "every_s": every_s, "away_s": 0.3}


def versions(cluster: Cluster) -> list[int]:
    """Of each epoch that has begun, as the one final chain has it."""
    return [begun.committee.version for begun in cluster.sightings.watch.audit.epochs]


async def protocol(cluster: Cluster, node: int) -> Mapping[str, Any]:
    told = (await cluster.ask(node, "status"))["protocol"]
    assert isinstance(told, dict)
    return told


def test_all_switch_at_one_round_once_a_quorum_is_upgraded_and_who_is_not_stops_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of four neither forces it, while it is the only new one, nor keeps the others from it."""
    world = scenario(
        {"name": "first", "count": 1, "speaks": NEXT},
        {"name": "soon", "count": 2, "upgrade": upgraded(4.0)},
        {"name": "late", "count": 1, "upgrade": upgraded(LATE_S)},
    )
    told: dict[str, Any] = {}
    SIGNED.clear()
    monkeypatch.setattr(wiring, "Signer", Overheard)

    async def script(cluster: Cluster) -> None:
        cluster.start()
        cluster.start_soon(Mishaps(cluster).run)
        await trio.sleep_until(4.0)
        told["alone"] = versions(cluster)
        with trio.fail_after(10):
            while (await protocol(cluster, 3))["next_from_round"] is None:
                await cluster.sightings.changed.wait()
        told["announced"] = await protocol(cluster, 3)
        assert await cluster.until(lambda: 2 in versions(cluster), 10)
        await trio.sleep_until(LATE_S)
        told["behind"] = [cluster.sightings.height(node) for node in (0, 3)]
        height = cluster.sightings.height(0)
        assert await cluster.until_height(height + 2, 30)
        told["name"] = cluster.machines[3].node_id
        told["then"] = [await protocol(cluster, node) for node in range(4)]
        told["versions"] = versions(cluster)

    kept = io.StringIO()
    outcome = run_script(world, Trace(kept), script)
    assert [each.name for each in outcome.invariants if not each.ok] == []
    assert set(told["alone"]) == {1}
    assert len(told["alone"]) > 2
    switch = told["versions"].index(2)
    assert told["versions"] == [1] * switch + [2] * (len(told["versions"]) - switch)
    last_round = 2 * switch
    assert told["announced"] == {
        "in_use": 1,
        "next_from_round": last_round + 1,
        "speaks_next": False,
    }
    assert told["then"] == [{"in_use": 2, "next_from_round": None, "speaks_next": False}] * 4
    ahead, behind = told["behind"]
    assert behind <= last_round < ahead
    entries = [json.loads(line) for line in kept.getvalue().splitlines()]
    fallen = [entry for entry in entries if entry["what"] == "daemon_fell"]
    assert {entry["node"] for entry in fallen} == {3}
    for entry in fallen:
        assert (
            f"from round {last_round + 1} on this network uses protocol 2, and this release "
            "speaks 1: install a newer release" in entry["why"]
        )
    of_last = [epoch for at_s, name, epoch in SIGNED if name == told["name"] and at_s < LATE_S]
    assert max(of_last) == switch - 1, "it says nothing in an epoch of a version it does not speak"
    assert max(epoch for at_s, _, epoch in SIGNED if at_s < LATE_S) > switch


async def one_short(cluster: Cluster) -> None:
    """Two of four are upgraded, a third of the way more is never enough."""
    cluster.start()
    cluster.start_soon(Mishaps(cluster).run)
    assert await cluster.until_height(12, 30)
    assert set(versions(cluster)) == {1}
    for node in range(4):
        assert (await protocol(cluster, node))["next_from_round"] is None


def test_half_of_four_go_on_together_with_the_others_in_the_version_that_all_speak(
    simnet_cluster: RunCluster,
) -> None:
    world = scenario({"name": "old", "count": 2}, {"name": "new", "count": 2, "speaks": NEXT})
    simnet_cluster(one_short, world, fidelity="light")
