"""Caps and a day's data of whole daemons in virtual time, where small blobs stand for large ones.

Bytes are those that the large model would have, as the access links carry them.
"""

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from daa_node.network.blob_source import SPREAD_BATCH_MAX
from daa_node.network.link_limits import BURST_S, GB_BYTES, MBIT_BYTES
from daa_node.training.config import TrainingJob
from daa_node.updates.compression.codec import sizes_of
from simnet.nodes.virtual.cluster import Cluster
from simnet.pytest_plugin import RunCluster
from simnet.world.job import job_of
from simnet.world.links import NS
from simnet.world.node_classes import LimitsConfig
from simnet.world.nominal_models import Nominal
from simnet.world.scenario import Scenario

NODES, LIMITED = 4, 3
LINK_MBIT_S = 1000
CAP_MBIT_S, RAISED_MBIT_S = 20.0, 50.0
WINDOW_S, WATCHED_S = 30, 45
MIDNIGHT_S, LATER_S = 3000.0, 3400.0  # of virtual time: a run begins at 22:13:20 UTC, and later


def scenario(limits: Mapping[str, float], **work: Any) -> Scenario:
    link = {"up_mbit_s": LINK_MBIT_S, "down_mbit_s": LINK_MBIT_S}
    limited = {"name": "limited", "count": 1, "limits": limits}
    model = {"kind": "training", "model": "virtual", "inner_steps_max": 20}
    return Scenario.model_validate(
        {
            "name": "limits",
            "fidelity": "light",
            "duration_s": 20_000,
            "nodes": [{"count": NODES - 1, **link}, {**limited, **link}],
            "topology": {"preset": "regional", "mbit_s": LINK_MBIT_S},
            "work": {**model, **work},
        }
    )


@pytest.mark.parametrize(
    ("way", "parameters"),
    [("up", 10**9), pytest.param("down", 5 * 10**8, marks=pytest.mark.long)],
)
def test_a_cap_holds_in_any_half_minute_and_is_raised_while_the_daemon_runs(
    simnet_cluster: RunCluster, way: str, parameters: int
) -> None:
    """But for what was let go at once: a quarter of a second's worth, and an answer a session.

    A session serves one blob, so there are at most as many as others, times as many updates.

    The link itself would carry twenty times as much, and what is left of the cap is used.
    """
    key = f"{way}load_mbit_s"
    sparse = {"codec": "top_k", "train_on": True, "step_s": 0.5, "parameters_per_s": 1e10}
    world = scenario({key: CAP_MBIT_S}, rounds=40, parameters=parameters, **sparse)

    async def script(cluster: Cluster) -> None:
        freight = cluster.freight
        assert freight is not None
        counted = freight.sent_bytes if way == "up" else freight.received_bytes
        answers_bytes = (NODES - 1) ** 2 * answer_bytes(world)

        async def busiest() -> float:
            """Bytes in the busiest window of the next minute."""
            before = [counted[LIMITED]]
            for _ in range(WATCHED_S):
                await trio.sleep(1)
                before.append(counted[LIMITED])
            return max(b - a for a, b in zip(before, before[WINDOW_S:], strict=False))

        def most(mbit_s: float) -> float:
            return (WINDOW_S + BURST_S) * mbit_s * MBIT_BYTES + answers_bytes

        cluster.start()
        assert await cluster.until_height(1, 120)
        allowed = WINDOW_S * CAP_MBIT_S * MBIT_BYTES
        assert 0.8 * allowed < await busiest() < most(CAP_MBIT_S)
        cluster.machines[LIMITED].limits = LimitsConfig.model_validate({key: RAISED_MBIT_S})
        assert 1.5 * allowed < await busiest() < most(RAISED_MBIT_S)
        assert (await cluster.ask(LIMITED, "status"))["link"][key] == RAISED_MBIT_S
        assert (await cluster.ask(0, "status"))["link"] is None

    simnet_cluster(script, world)


def answer_bytes(world: Scenario) -> int:
    """Of chunks, at most: what they stand for."""
    job = job_of(world)
    training = TrainingJob(model=job.model, data=job.data, updates=job.updates)
    nominal = Nominal.of(training, world.work.parameters)
    return SPREAD_BATCH_MAX * nominal.weigh_part(job.updates.chunk_bytes)


@pytest.mark.long
def test_spent_data_stop_blobs_and_no_votes_until_there_is_more_or_midnight(
    simnet_cluster: RunCluster,
) -> None:
    """Three of four go on. A round costs the fourth six updates, three each way."""
    update_bytes = sizes_of(("int8",), 10**8)["int8"]
    gigabytes = 2.5 * 6 * update_bytes / GB_BYTES
    sized = {"parameters": 10**8, "parameters_per_s": 1e8, "rounds": 12, "delta_ms": 1000}

    async def script(cluster: Cluster) -> None:
        async def standing() -> Mapping[str, Any]:
            status: Mapping[str, Any] = await cluster.ask(LIMITED, "status")
            return status

        async def until_spent() -> None:
            while (await standing())["link"]["budget"] != "spent":
                await trio.sleep(10)

        for machine in cluster.machines:
            machine.clock.go_wrong(int(LATER_S * NS), 0.0)
        cluster.start()
        assert await cluster.until_height(1, 1200)
        with trio.fail_after(3000):
            await until_spent()
        await trio.sleep(100)  # what was under way comes to its end
        stood = cluster.sightings.height(LIMITED)
        assert stood == 3
        ended = (await standing())["link"]["spent_bytes_today"]
        assert 1 < ended / (gigabytes * GB_BYTES) < 1 + 6 * update_bytes / (gigabytes * GB_BYTES)
        voted = cluster.sightings.shelves.words(LIMITED)["notarize"]
        assert await cluster.until_height(stood + 2, 3000, 0, 1, 2)
        status = await standing()
        assert cluster.sightings.height(LIMITED) == stood
        assert 0 < status["link"]["spent_bytes_today"] - ended < 0.05 * update_bytes  # letters
        assert cluster.sightings.shelves.words(LIMITED)["notarize"] > voted
        assert "data_gb_a_day" in status["decisions"][0]["reason"]

        cluster.machines[LIMITED].limits = LimitsConfig(data_gb_a_day=gigabytes + 1)
        with trio.fail_after(600):
            await until_spent()
        caught_up = cluster.sightings.height(LIMITED)
        assert caught_up >= stood + 2
        assert trio.current_time() < MIDNIGHT_S

        await trio.sleep_until(MIDNIGHT_S + 450)
        assert cluster.sightings.height(LIMITED) == cluster.sightings.height(0) > caught_up + 1
        assert LIMITED in authors(cluster)[-1]
        assert LIMITED not in authors(cluster)[caught_up + 1]

    limits = {"data_gb_a_day": gigabytes}
    simnet_cluster(script, scenario(limits, step_s=20.0, window_s=1000, **sized))


def authors(cluster: Cluster) -> list[list[int]]:
    """Whose updates each vertex holds, by height."""
    numbers = {machine.node_id: n for n, machine in enumerate(cluster.machines)}
    return [[numbers[facts.author] for facts in v.contributors] for v in cluster.chain(0)]
