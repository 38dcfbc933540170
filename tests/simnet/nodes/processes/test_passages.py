"""How a node behind a router got through follows from what its daemon tells."""

import json
from pathlib import Path
from typing import Any

from daa_node.network.addresses import RELAYED_BY
from simnet.nodes.processes.event_logs import EventLogs
from simnet.nodes.processes.passages import lacking, passages
from simnet.world.determinism import Trace
from simnet.world.node_classes import Nat

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
    sets = [{"name": "set_decided", "ours": ours} for ours in (True, False, True)]
    folders = [
        told(tmp_path / "a"),
        told(tmp_path / "b", hidden, reached, joined("aa", "10.86.0.1")),
        told(tmp_path / "c", hidden, joined("aa", "10.86.0.1"), *sets),
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
    assert [row["rounds"] for row in rows] == [0, 2, 0, 0]
    assert rows[2]["relays"] == 0
    assert rows[2]["relayed_with"] == [1, 2]
    assert [row["punched_with"] for row in rows] == [[], [], [], [1]]


def test_what_routers_allow_is_lacking_until_each_has_it(tmp_path: Path) -> None:
    """Of a validator in the cloud, one behind a cone, and trainers behind each kind of router."""
    nats: tuple[Nat | None, ...] = (None, "cone", "cone", "symmetric", "upnp")

    def punched(name: str) -> dict[str, Any]:
        return {"name": "hole_punched", "node_id": name, "peer_id": "p"}

    def found(*events: list[dict[str, Any]]) -> list[str]:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        root.mkdir()
        logs = EventLogs([told(root / str(n), *each) for n, each in enumerate(events)], Trace(), 0)
        logs.read()
        return lacking(logs.of_nodes, nats, list(NAMES), range(5), [0, 1])

    cloud, relayed = joined("aa", "10.86.0.1"), joined("bb", f"{RELAYED_BY}r")
    direct = {"name": "reachability_changed", "reach": "direct"}
    ours = {"name": "set_decided", "ours": True}
    whole = [
        [joined("bb", "10.86.0.2")],
        [ours, cloud],
        [ours, cloud, relayed, punched("bb")],
        [ours, cloud, relayed],
        [ours, cloud, relayed, direct],
    ]
    assert not found(*whole)
    # what two trainers have with each other, and holes where there can be none, are nobody's need
    without = [each[:-1] for each in whole]
    assert found(*without[:1], *whole[1:]) == ["node 0 has not met node 1"]
    assert found(*whole[:2], without[2], *whole[3:]) == ["node 2 has no hole to node 1"]
    assert found(*whole[:3], without[3], *whole[4:]) == ["node 3 has not met node 1"]
    assert found(*whole[:4], without[4]) == ["nobody can dial node 4"]
    idle = [{**ours, "ours": False}, *whole[3][1:]]
    assert found(*whole[:3], idle, whole[4]) == ["node 3 is in no round's set"]
