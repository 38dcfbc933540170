"""Epochs of many rounds, of which everybody keeps one certificate: who comes later follows them.

Whole daemons in virtual time; the run is also checked for the invariants, the node's own verifier
included.
"""

import json
from io import StringIO
from typing import Any

import pytest

from daa_node.checkpoints import epochs, packing, thinning
from daa_node.checkpoints.config import StorageConfig
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.world import run_script
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

MEMBERS, ALL_DELTAS, A_STATE = (0, 1, 2, 3), 4, 5
EPOCH_ROUNDS = 10  # a page has four
LIGHT = 2  # epochs, when the newcomers come


def test_newcomers_follow_pruned_nodes_through_long_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "EPOCHS_AT_ONCE", 1)
    monkeypatch.setattr(packing, "LOOSE_FILES_MAX", 20)
    monkeypatch.setattr(epochs, "FILLED_BYTES", 1)  # so an epoch comes in three parts
    trace = StringIO()

    def told(node: int, name: str) -> list[dict[str, Any]]:
        events = map(json.loads, trace.getvalue().splitlines())
        return [event for event in events if (event.get("node"), event["what"]) == (node, name)]

    async def script(cluster: Cluster) -> None:
        for node in (*MEMBERS, A_STATE):
            kept = StorageConfig(history="pruned", vertices_restorable=6)
            cluster.machines[node].storage = kept
        cluster.start(*MEMBERS)
        assert await cluster.until_height((LIGHT + 2) * EPOCH_ROUNDS + 3, 400, *MEMBERS)
        for node in MEMBERS:
            lit = [event["epochs_light"] for event in told(node, "history_thinned")]
            assert max(lit, default=0) >= LIGHT
        cluster.start(ALL_DELTAS, A_STATE)
        height = cluster.sightings.height(0) + 4
        assert await cluster.until_height(height, 200, ALL_DELTAS, A_STATE)
        for node in (ALL_DELTAS, A_STATE):
            assert told(node, "gap_crossed")[0]["from_height"] == 0

    fields = {
        "name": "long-epochs",
        "duration_s": 900,
        "fidelity": "light",
        "nodes": [
            {"name": "validator", "count": len(MEMBERS)},
            {"name": "late", "count": 2, "role": "observer"},
        ],
        "topology": {"preset": "regional"},
        "work": {
            "rounds": 80,
            "inner_steps_max": 10,
            "epoch_rounds": EPOCH_ROUNDS,
            "snapshot_every": 2,
        },
    }
    outcome = run_script(Scenario.model_validate(fields), Trace(trace), script)
    assert [each for each in outcome.invariants if not each.ok] == []
