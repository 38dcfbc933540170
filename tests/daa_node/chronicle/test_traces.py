"""One trace a round: the same on all nodes, whole, in time, and in a form that collectors take."""

from typing import Any

import pytest

from daa_node.chronicle.trace_config import TracesConfig
from daa_node.chronicle.traces import MARKS_MAX, SPANS_MAX, Tracer, trace_id
from daa_node.observability import events as names
from daa_node.observability.events import EventName
from tests.daa_node.chronicle.rows_at_hand import ALICE, BOB

CHAIN = b"c" * 32
FINAL = {"height": 7, "vertex_id": "ab", "loss_nats": 2.5, "contributors": 4, "bytes_sent": 9}


def event(ts: float, name: EventName, **fields: Any) -> dict[str, Any]:
    return {"ts": ts, "name": name, **fields}


ROUND = [
    event(10.0, names.ROUND_STARTED, round=7, base="00", steps=8),
    event(
        13.0, names.UPDATE_SEALED, round=7, steps=8, tokens=64, loss_nats=3, size_bytes=5, seal_s=1
    ),
    event(13.5, names.OFFER_ACKED, round=7, author="bb"),
    event(13.75, names.BLOB_FETCHED, root="dd", size_bytes=5, wall_s=0.25),
    event(14.0, names.DECISION, decision="close round 7", reason="all 4 are here"),
    event(14.5, names.SET_DECIDED, round=7, contributors=4, left_out=0, ours=True),
    event(14.75, names.SET_EXECUTED, round=7, wall_s=0.5),
    event(15.0, names.EXEC_CERTIFIED, round=7, vertex_id="ab", signers=3),
    event(15.5, names.CHECKPOINT_PUBLISHED, height=7, vertex_id="ab", wall_s=0.25),
]
END = event(16.0, names.ROUND_FINALIZED, round=7, **FINAL)


def traced(told: list[dict[str, Any]], node: Any = ALICE) -> list[dict[str, Any]]:
    tracer = Tracer(CHAIN, node)
    found = [trace for one in told if (trace := tracer.note(one)) is not None]
    return [span for trace in found for span in spans_of(trace)]


def spans_of(trace: dict[str, Any]) -> list[dict[str, Any]]:
    (resource,) = trace["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    spans: list[dict[str, Any]] = scope["spans"]
    return spans


def test_each_part_of_a_round_is_a_span_below_it_with_its_time() -> None:
    root, *parts = traced([*ROUND, END])
    assert "parentSpanId" not in root
    assert {part["parentSpanId"] for part in parts} == {root["spanId"]}
    times = {
        part["name"]: (int(part["startTimeUnixNano"]) / 1e9, int(part["endTimeUnixNano"]) / 1e9)
        for part in [root, *parts]
    }
    assert times == {
        "round": (10.0, 16.0),
        "train": (10.0, 12.0),
        "seal": (12.0, 13.0),
        "fetch": (13.5, 13.75),
        "collect": (10.0, 14.0),
        "decide": (14.0, 14.5),
        "execute": (14.25, 14.75),
        "certify": (14.5, 15.0),
        "publish": (15.25, 15.5),
    }
    (mark,) = root["events"]
    assert (mark["name"], mark["timeUnixNano"]) == ("acknowledged", "13500000000")


def test_all_nodes_give_one_round_one_trace_and_each_its_own_spans() -> None:
    alice, bob = traced([*ROUND, END]), traced([*ROUND, END], BOB)
    assert {span["traceId"] for span in alice + bob} == {trace_id(CHAIN, 7).hex()}
    assert len({span["spanId"] for span in alice + bob}) == len(alice) + len(bob)
    assert trace_id(CHAIN, 8) != trace_id(CHAIN, 7) != trace_id(b"d" * 32, 7)


def test_an_aborted_round_is_an_error_and_the_next_one_is_not() -> None:
    again = [{**one, "round": 8} if "round" in one else one for one in [*ROUND[:1], END]]
    first, second = traced([ROUND[0], event(12.0, names.ROUND_ABORTED, round=7), *again])
    assert first["status"]["code"] == 2
    assert "status" not in second


def test_a_round_that_was_only_followed_has_no_trace_from_here() -> None:
    assert traced([END]) == []
    assert traced([ROUND[0], event(12.0, names.ROUND_FINALIZED, round=3, **FINAL)]) == []


def test_numbers_and_names_have_the_types_of_the_protocol() -> None:
    root, *_ = traced([*ROUND, END])
    values = {one["key"]: one["value"] for one in root["attributes"]}
    assert values["daa.height"] == {"intValue": "7"}
    assert values["daa.loss_nats"] == {"doubleValue": 2.5}
    assert values["daa.vertex_id"] == {"stringValue": "ab"}
    assert (len(root["traceId"]), len(root["spanId"])) == (32, 16)


def test_a_round_of_thousands_takes_no_more_room() -> None:
    acks = [event(11.0, names.OFFER_ACKED, round=7, author=str(n)) for n in range(2 * MARKS_MAX)]
    root, *parts = traced([ROUND[0], *acks, *ROUND[3:4] * 2 * SPANS_MAX, END])
    assert (len(root["events"]), len(parts)) == (MARKS_MAX, SPANS_MAX)


@pytest.mark.parametrize(
    "place",
    [
        "127.0.0.1:4318",
        "ftp://host/v1/traces",
        "http://",
        "http://me:secret@host/v1/traces",
        "http://host:99999/",
        "http://host/?token=1",
    ],
)
def test_what_is_no_place_for_traces_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="traces|[Pp]ort"):
        TracesConfig(otlp=place)
    assert TracesConfig(otlp="https://otel.example/v1/traces").file is False
