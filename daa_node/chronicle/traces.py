"""One trace an outer round, made of a node's own events, as OpenTelemetry takes it. Pure.

    round --+-- train, seal      up to its update
            +-- collect          others' contributions, until the collection is closed
            +-- decide           until a set is final
            +-- execute          each time that it was
            +-- certify          until a quorum says the same of the outcome
            +-- fetch, publish   blobs of others, files of the checkpoint

Every node that takes part makes one `round` of the same trace, as the trace's id follows from the
chain and the round: nothing is added to what nodes send to each other. Where nodes' clocks differ,
their spans are moved against each other by as much.
Source: OpenTelemetry protocol 1.x, JSON Protobuf encoding (opentelemetry.io/docs/specs/otlp).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from daa_dag.ids import NodeId, tagged_digest
from daa_node.observability import events as names
from daa_node.observability.events import Event

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
SPANS_MAX = 512  # of one round: fetches of a round of hundreds
MARKS_MAX = 512  # moments in a span: each author's Ack, and when a quorum had it
INTERNAL, ERROR = 1, 2  # SPAN_KIND_INTERNAL, STATUS_CODE_ERROR
NS = 1_000_000_000


@dataclass(slots=True)
class _Span:
    """Times in nanoseconds of this node's clock."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, object] = field(default_factory=dict)
    marks: list[tuple[int, str, Mapping[str, object]]] = field(default_factory=list)


@dataclass(slots=True)
class _Round:
    """The one under way."""

    number: int
    began_ns: int
    spans: list[_Span] = field(default_factory=list)
    marks: list[tuple[int, str, Mapping[str, object]]] = field(default_factory=list)
    closed_ns: int | None = None
    decided_ns: int | None = None

    def add(self, name: str, start_ns: int, end_ns: int, **attributes: object) -> None:
        if len(self.spans) < SPANS_MAX:
            start_ns = max(self.began_ns, min(start_ns, end_ns))
            self.spans.append(_Span(name, start_ns, end_ns, attributes))

    def mark(self, at_ns: int, name: str, author: object) -> None:
        if len(self.marks) < MARKS_MAX:
            self.marks.append((at_ns, name, {"daa.author": author}))


class Tracer:
    """Of one node; a round that it did not walk has no trace from it."""

    def __init__(self, chain_id: bytes, me: NodeId) -> None:
        self._chain_id = chain_id
        self._me = me
        self._round: _Round | None = None

    def note(self, event: Event) -> dict[str, Any] | None:
        """What to export, as JSON has it, when this event ends a round."""
        at_ns = round(event["ts"] * NS)
        if event["name"] == names.ROUND_STARTED:
            self._round = _Round(event["round"], at_ns)
            return None
        now = self._round
        if now is None or event.get("round", now.number) != now.number:
            return None
        match event["name"]:
            case names.ROUND_FINALIZED:
                keys = ("height", "vertex_id", "loss_nats", "contributors", "bytes_sent")
                return self._ended(now, at_ns, {f"daa.{key}": event[key] for key in keys}, None)
            case names.ROUND_ABORTED:
                return self._ended(now, at_ns, {}, "the round changed nothing")
            case _:
                _add(now, event, at_ns)
                return None

    def _ended(
        self, ended: _Round, at_ns: int, more: Mapping[str, object], error: str | None
    ) -> dict[str, Any]:
        self._round = None
        trace = trace_id(self._chain_id, ended.number)
        whole = self._span_id(ended.number, 0)
        attributes = {"daa.round": ended.number, **more}
        root = _Span("round", ended.began_ns, at_ns, attributes, ended.marks)
        spans = [_as_told(root, trace, whole, None)]
        if error is not None:
            spans[0]["status"] = {"code": ERROR, "message": error}
        for place, span in enumerate(ended.spans, 1):
            own = self._span_id(ended.number, place)
            spans.append(_as_told(span, trace, own, whole))
        resource = {
            "service.name": "daa-node",
            "service.instance.id": self._me.hex(),
            "daa.chain_id": self._chain_id.hex(),
        }
        scope = {"scope": {"name": "daa-node"}, "spans": spans}
        return {
            "resourceSpans": [
                {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}
            ]
        }

    def _span_id(self, number: int, place: int) -> bytes:
        digest = tagged_digest("span", [self._chain_id, number, self._me, place])
        return digest[:SPAN_ID_BYTES]


def trace_id(chain_id: bytes, number: int) -> bytes:
    """The same on every node."""
    return tagged_digest("trace", [chain_id, number])[:TRACE_ID_BYTES]


def _add(now: _Round, event: Event, at_ns: int) -> None:
    match event["name"]:
        case names.UPDATE_SEALED:
            sealing_ns = at_ns - round(event["seal_s"] * NS)
            counts = {f"daa.{key}": event[key] for key in ("steps", "tokens", "loss_nats")}
            now.add("train", now.began_ns, sealing_ns, **counts)
            now.add("seal", sealing_ns, at_ns, **{"daa.size_bytes": event["size_bytes"]})
        case names.OFFER_ACKED:
            now.mark(at_ns, "acknowledged", event["author"])
        case names.OFFER_ELIGIBLE:
            now.mark(at_ns, "held by a quorum", event["author"])
        case names.DECISION if event["decision"] == f"close round {now.number}":
            now.closed_ns = at_ns
            now.add("collect", now.began_ns, at_ns, **{"daa.reason": event["reason"]})
        case names.SET_DECIDED:
            now.decided_ns = at_ns
            told = {"daa.contributors": event["contributors"], "daa.ours": event["ours"]}
            now.add("decide", now.closed_ns or at_ns, at_ns, **told)
        case names.SET_EXECUTED:
            now.add("execute", at_ns - round(event["wall_s"] * NS), at_ns)
        case names.EXEC_CERTIFIED:
            told = {"daa.signers": event["signers"]}
            now.add("certify", now.decided_ns or at_ns, at_ns, **told)
        case names.BLOB_FETCHED:
            told = {"daa.size_bytes": event["size_bytes"], "daa.root": event["root"]}
            now.add("fetch", at_ns - round(event["wall_s"] * NS), at_ns, **told)
        case names.CHECKPOINT_PUBLISHED:
            now.add("publish", at_ns - round(event["wall_s"] * NS), at_ns)
        case _:
            pass


def _as_told(span: _Span, trace: bytes, own: bytes, parent: bytes | None) -> dict[str, Any]:
    told = {
        "traceId": trace.hex(),
        "spanId": own.hex(),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
        "events": [
            {"timeUnixNano": str(at_ns), "name": name, "attributes": _attributes(attributes)}
            for at_ns, name, attributes in span.marks
        ],
    }
    return told if parent is None else {**told, "parentSpanId": parent.hex()}


def _attributes(of: Mapping[str, object]) -> list[dict[str, Any]]:
    """Without those that are not known."""
    return [{"key": key, "value": _value(value)} for key, value in of.items() if value is not None]


def _value(value: object) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}  # JSON's numbers have no 64 bits
        case float():
            return {"doubleValue": value}
        case _:
            return {"stringValue": str(value)}
