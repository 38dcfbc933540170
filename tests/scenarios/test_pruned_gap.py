"""A daemon that was away for longer than the others keep deltas comes back with a whole chain."""

import signal
from pathlib import Path

import pytest

from daa_node.checkpoints.config import CheckpointsConfig
from tests.scenarios.little_cluster import (
    TINY,
    LittleCluster,
    assert_verified,
    height,
    named,
    published,
    until,
)

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("warm")]

KEPT = 1  # restorable vertices; with a snapshot of every vertex there is never more than one delta
AWAY_ROUNDS = 3
JOB = TINY.model_copy(update={"checkpoints": CheckpointsConfig(snapshot_every=1)})


def test_a_daemon_leaps_over_what_all_others_have_pruned_and_contributes_again(
    tmp_path: Path,
) -> None:
    cluster = LittleCluster(tmp_path / "cluster", JOB)
    for node in cluster.nodes:
        with (node.directory / "config.yaml").open("a") as file:
            file.write(f"storage:\n  vertices_restorable: {KEPT}\n")
    victim, others = cluster.nodes[-1], cluster.nodes[:-1]
    try:
        cluster.start()
        until("a first vertex", lambda: all(height(n) >= 1 for n in cluster.nodes), cluster.nodes)
        victim.kill()
        left_at = height(victim)
        until(
            "the others prune what it lacks",
            lambda: all(
                height(node) >= left_at + AWAY_ROUNDS and node.events.count("data_pruned")
                for node in others
            ),
            others,
        )
        mark = victim.events.mark()
        victim.start()
        crossed = victim.wait_event(named("gap_crossed"), mark, "a state sync")
        assert crossed["from_height"] <= left_at + 1  # its last words may be missing in the log
        assert crossed["height"] > left_at + 1
        until(
            "it contributes again",
            lambda: any(
                event["contributors"] == len(cluster.nodes) and event["height"] > crossed["height"]
                for event in published(others[0])
            ),
            cluster.nodes,
        )
        for node in cluster.nodes:
            node.running.send_signal(signal.SIGTERM)
        assert [node.gone() for node in cluster.nodes] == [0] * len(cluster.nodes)
        assert_verified(cluster.nodes)
    finally:
        cluster.close()
