"""How each node behind a router got through, by what its daemon told."""

from collections.abc import Mapping, Sequence
from typing import Any

from simnet.nodes.processes.event_logs import EventLog
from simnet.world.node_classes import Nat


def passages(
    logs: Sequence[EventLog], nats: Sequence[Nat | None], numbers: Mapping[str, int]
) -> list[dict[str, Any]]:
    """A row for each such node; `numbers` are those of nodes, by node id in hex."""
    return [
        {
            "node": node,
            "nat": nat,
            "passage": _passage(log),
            "relays": len(log.relays),
            "relayed_with": sorted(numbers[name] for name in log.relayed),
            "punched_with": sorted(numbers[name] for name in log.punched),
        }
        for node, (log, nat) in enumerate(zip(logs, nats, strict=True))
        if nat is not None
    ]


def _passage(log: EventLog) -> str:
    if log.reach == "direct":
        return "direct"
    if log.punched:
        return "punched"
    return "relayed" if log.relays or log.relayed else "dials out"
