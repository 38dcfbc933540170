"""A daemon's own events, by the names that a trace has for them: so one report reads them all."""

from typing import Any

from daa_node.observability import events as names
from simnet.world.determinism import FINAL, ROUND, UP, VIEW, VOTE

Event = dict[str, Any]
_PAYLOADS = {
    "SetPayload": "set",
    "ResultPayload": "result",
    "AbortPayload": "abort",
    "EmptyPayload": "empty",
}


def retold(event: Event) -> tuple[str, Event]:
    """What a trace calls a line of a daemon's log, and its fields; most keep their own name."""
    fields = {key: value for key, value in event.items() if key not in ("name", "ts")}
    match event["name"]:
        case names.NODE_STARTED:
            return UP, fields
        case names.VIEW_ENTERED:
            return VIEW, fields
        case names.STATEMENT_SENT if event["view"]:
            return VOTE, {**fields, "kind": str(event["kind"])}
        case names.BLOCK_FINALIZED:
            return FINAL, {**fields, "payload": _PAYLOADS[event["payload"]]}
        case names.ROUND_FINALIZED:
            return ROUND, {**fields, "vertex": event["vertex_id"]}
        case name:
            return str(name), fields
