"""How each node behind a router got through, by what its daemon told."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from simnet.nodes.processes.event_logs import EventLog
from simnet.world.node_classes import Nat

LET_HOLES: frozenset[Nat | None] = frozenset(("cone", "cgnat"))  # punched by two behind such


def passages(
    logs: Sequence[EventLog], nats: Sequence[Nat | None], numbers: Mapping[str, int]
) -> list[dict[str, Any]]:
    """A row for each such node; `numbers` are those of nodes, by node id in hex."""
    return [
        {
            "node": node,
            "nat": nat,
            "passage": _passage(log),
            "rounds": log.contributed,
            "relays": len(log.relays),
            "relayed_with": sorted(numbers[name] for name in log.relayed),
            "punched_with": sorted(numbers[name] for name in log.punched),
        }
        for node, (log, nat) in enumerate(zip(logs, nats, strict=True))
        if nat is not None
    ]


def lacking(
    logs: Sequence[EventLog],
    nats: Sequence[Nat | None],
    names: Sequence[str],
    staying: Collection[int],
    validators: Collection[int],
) -> list[str]:
    """What keeps those that stay from taking part, and from the best ways to validators among them.

    `names` are node ids in hex.
    """
    found = [
        f"nobody can dial node {node}"
        for node in staying
        if nats[node] == "upnp" and logs[node].reach != "direct"
    ]
    found += [
        f"node {node} is in no round's set"
        for node in staying
        if nats[node] is not None and not logs[node].contributed
    ]
    for node in staying:
        for other in set(validators) & set(staying) - {node}:
            if names[other] not in logs[node].met:
                found.append(f"node {node} has not met node {other}")
            elif {nats[node], nats[other]} <= LET_HOLES and names[other] not in logs[node].punched:
                found.append(f"node {node} has no hole to node {other}")
    return found


def _passage(log: EventLog) -> str:
    if log.reach == "direct":
        return "direct"
    if log.punched:
        return "punched"
    return "relayed" if log.relays or log.relayed else "dials out"
