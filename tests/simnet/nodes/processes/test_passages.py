"""How a node behind a router got through follows from what its daemon tells."""

import json
from pathlib import Path
from typing import Any

from daa_node.network.addresses import RELAYED_BY
from simnet.nodes.processes.event_logs import EventLogs
from simnet.nodes.processes.passages import passages
from simnet.world.determinism import Trace

NAMES = {"aa": 0, "bb": 1, "cc": 2, "dd": 3, "ee": 4}


def joined(name: str, network: str) -> dict[str, Any]:
    return {"name": "peer_joined", "node_id": name, "network": network}


def told(root: Path, *events: dict[str, Any]) -> Path:
    root.mkdir()
    lines = [json.dumps({"ts": at, **event}) for at, event in enumerate(events)]
    (root / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return root


def test_each_node_behind_a_router_has_its_passage(tmp_path: Path) -> None:
    reached = {"name": "reachability_changed", "reach": "direct"}
    hidden = {"name": "reachability_changed", "reach": "unreachable"}
    folders = [
        told(tmp_path / "a"),
        told(tmp_path / "b", hidden, reached, joined("aa", "10.86.0.1")),
        told(tmp_path / "c", hidden, joined("aa", "10.86.0.1")),
        told(
            tmp_path / "d",
            hidden,
            {"name": "relay_reserved", "relay": "r"},
            joined("cc", f"{RELAYED_BY}r"),
            joined("bb", f"{RELAYED_BY}r"),
            {"name": "relay_lost", "relay": "r"},
        ),
        told(
            tmp_path / "e",
            hidden,
            joined("bb", f"{RELAYED_BY}r"),
            {"name": "hole_punched", "node_id": "bb", "peer_id": "p"},
        ),
    ]
    logs = EventLogs(folders, Trace(), 0)
    logs.read()
    rows = passages(logs.of_nodes, (None, "cone", "cgnat", "symmetric", "cone"), NAMES)
    assert [(row["node"], row["nat"], row["passage"]) for row in rows] == [
        (1, "cone", "direct"),
        (2, "cgnat", "dials out"),
        (3, "symmetric", "relayed"),
        (4, "cone", "punched"),
    ]
    assert rows[2]["relays"] == 0
    assert rows[2]["relayed_with"] == [1, 2]
    assert [row["punched_with"] for row in rows] == [[], [], [], [1]]
