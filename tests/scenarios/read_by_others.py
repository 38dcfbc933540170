"""What a daemon tells monitoring programs, read by the readers that such programs are built on.

Metrics come from its API as Prometheus scrapes them. Traces are lines of OTLP JSON, read into the
messages that OpenTelemetry defines, whose reader refuses every field that it does not know. The
API's description is looked at by a validator of OpenAPI, and its answers by one of JSON Schema.
"""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from openapi_spec_validator import OpenAPIV31SpecValidator
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from daa_node.chronicle.traces import MARKS_MAX, SPAN_ID_BYTES, SPANS_MAX, TRACE_ID_BYTES
from daa_node.cli.data_directory import DataDirectory
from tests.daa_node.api.as_described import Described

SCRAPE_S_MAX = 60.0  # of a machine that does a dozen other things
# OTLP's JSON has ids in hex, where protobuf's own has bytes in base64: the one thing that differs.
IDS = ("traceId", "spanId", "parentSpanId")
UNENDING = ("/v1/events",)
ATTRIBUTES_MAX, WORDS_MAX = 8, 1_000  # of a span; characters of a value


@dataclass(frozen=True)
class HttpAnswer:
    """Of the API."""

    status: int
    content_type: str
    body: bytes


def read(directory: Path, address: str, path: str) -> HttpAnswer:
    """What `path` answers to the token that reads."""
    token = (directory / "api-read.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(address.rstrip("/") + path, headers=headers)
    try:
        answer = urllib.request.urlopen(request, timeout=SCRAPE_S_MAX)
    except urllib.error.HTTPError as refused:
        answer = refused
    with answer:
        return HttpAnswer(answer.status, answer.headers["Content-Type"], answer.read())


def scraped(directory: Path, address: str) -> dict[str, Metric]:
    """The families of one scrape, by name."""
    answer = read(directory, address, "/metrics")
    assert (answer.status, answer.content_type.partition(";")[0]) == (200, "text/plain")
    text = answer.body.decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def check_described(directory: Path, address: str) -> set[str]:
    """Each path that can be read answers as the daemon's own OpenAPI document says; those paths."""
    document = json.loads(read(directory, address, "/openapi.json").body)
    assert [str(fault) for fault in OpenAPIV31SpecValidator(document).iter_errors()] == []
    described, paths = Described(document), set()
    for path, operations in document["paths"].items():
        if "get" not in operations or "{" in path or path in UNENDING:
            continue
        told = read(directory, address, path)
        described.check("GET", path, told.status, told.content_type, told.body)
        if told.status == 200:
            paths.add(path)
    return paths


def sample_name(family: Metric) -> str:
    """As the table of the documentation has it."""
    return f"{family.name}_total" if family.type == "counter" else family.name


@dataclass(frozen=True)
class RoundSpans:
    """What one node exported of one round."""

    node_id: str
    chain_id: str
    root: Span
    parts: list[Span]

    @property
    def is_final(self) -> bool:
        """Whether a quorum certified the round."""
        return self.root.status.code != Status.STATUS_CODE_ERROR


def traced(directory: Path) -> dict[bytes, RoundSpans]:
    """Of one node, by trace id; raises json_format.ParseError for what is no such message."""
    path = DataDirectory(directory).traces
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]  # the daemon may be writing one more
    rounds = [_round_of(json.loads(line)) for line in whole.splitlines()]
    return {one.root.trace_id: one for one in rounds}


def _round_of(line: Any) -> RoundSpans:
    request = json_format.ParseDict(_with_bytes(line), ExportTraceServiceRequest())
    (resource,) = request.resource_spans
    (scope,) = resource.scope_spans
    told = {one.key: one.value.string_value for one in resource.resource.attributes}
    root, *parts = scope.spans
    return RoundSpans(told["service.instance.id"], told["daa.chain_id"], root, parts)


def _with_bytes(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode() if key in IDS else _with_bytes(item)
            for key, item in value.items()
        }
    return [_with_bytes(item) for item in value] if isinstance(value, list) else value


def check_round(spans: RoundSpans) -> None:
    """One tree, nested in time, with ids of the sizes that collectors take, and bounded words."""
    root, whole = spans.root, [spans.root, *spans.parts]
    assert (root.name, root.parent_span_id) == ("round", b"")
    assert len({span.span_id for span in whole}) == len(whole) <= SPANS_MAX + 1
    for span in whole:
        assert (span.trace_id, len(span.trace_id)) == (root.trace_id, TRACE_ID_BYTES)
        assert (len(span.span_id), span.kind) == (SPAN_ID_BYTES, Span.SPAN_KIND_INTERNAL)
        moments = [span.start_time_unix_nano, span.end_time_unix_nano]
        moments += [event.time_unix_nano for event in span.events]
        assert root.start_time_unix_nano <= min(moments), span
        assert max(moments) <= root.end_time_unix_nano, span
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        assert len(span.events) <= MARKS_MAX
        told = [*span.attributes, *(one for event in span.events for one in event.attributes)]
        assert len(span.attributes) <= ATTRIBUTES_MAX
        assert all(one.key.startswith("daa.") for one in told)
        assert all(len(one.value.string_value) <= WORDS_MAX for one in told)
    assert all(part.parent_span_id == root.span_id for part in spans.parts)
