"""Traces leave on a thread: a collector gets them, and one that is away or slow holds up nobody."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from daa_node.adapters.trace_export import WAITING_MAX, Export, export_traces, sent_to
from daa_node.chronicle.traces import Tracer
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.keeping import tracing_of
from daa_node.config import NodeConfig, load
from daa_node.observability import events as names
from daa_node.observability.events import EventLog
from tests.daa_node.chronicle.rows_at_hand import ALICE

FINAL = {"vertex_id": "ab", "loss_nats": 2.5, "contributors": 4, "bytes_sent": 9, "wall_s": 1.0}


class Collector(http.server.BaseHTTPRequestHandler):
    """Keeps what it gets, and answers as it is told."""

    got: list[tuple[str, str, Any]] = []
    answers = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(self.answers)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def collector() -> Iterator[tuple[str, type[Collector]]]:
    kind = type("Fresh", (Collector,), {"got": [], "answers": 200})
    with http.server.HTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", kind
        server.shutdown()
        thread.join()


def a_round(log: EventLog, number: int) -> None:
    log.emit(names.ROUND_STARTED, round=number, base="00", steps=8)
    log.emit(names.ROUND_FINALIZED, round=number, height=number, **FINAL)


async def test_a_collector_gets_one_request_a_round(
    collector: tuple[str, type[Collector]],
) -> None:
    url, kind = collector
    log = EventLog(lambda: 10**9)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(export_traces, log, Tracer(b"c" * 32, ALICE), [sent_to(url)])
        await trio.testing.wait_all_tasks_blocked()
        for number in (1, 2):
            a_round(log, number)
        while len(kind.got) < 2:
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    paths, types, traces = zip(*kind.got, strict=True)
    assert ({*paths}, {*types}) == ({"/v1/traces"}, {"application/json"})
    assert all(trace["resourceSpans"] for trace in traces)
    assert not log.counts[names.TRACES_FAILED]


def test_what_a_collector_refuses_or_nobody_takes_is_told(
    collector: tuple[str, type[Collector]],
) -> None:
    url, kind = collector
    kind.answers = 503
    assert sent_to(url)(b"{}") == f"{url}: it answers 503"
    fault = sent_to("http://127.0.0.1:1/v1/traces")(b"{}")
    assert fault is not None
    assert "refused" in fault
    for wrong in ("http://a..b:4318/v1/traces", "http://127.0.0.1:1/\xe4"):  # as settings let in
        fault = sent_to(wrong)(b"{}")
        assert fault is not None
        assert fault.startswith(wrong)


async def test_a_collector_that_stands_still_costs_traces_alone_and_is_told_of_once() -> None:
    log, asked, goes_on = EventLog(lambda: 10**9), list[bytes](), threading.Event()

    def stalled(trace: bytes) -> str | None:
        asked.append(trace)
        goes_on.wait()
        return "it is slow"

    exports: list[Export] = [stalled]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(export_traces, log, Tracer(b"c" * 32, ALICE), exports)
        await trio.testing.wait_all_tasks_blocked()
        a_round(log, 1)
        while not asked:
            await trio.sleep(0.01)
        for number in range(2, 2 * WAITING_MAX):
            a_round(log, number)
        await trio.testing.wait_all_tasks_blocked()  # all of them are taken in, and many dropped
        goes_on.set()
        while len(asked) < WAITING_MAX + 1:
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert len(asked) == WAITING_MAX + 1
    assert log.counts[names.TRACES_FAILED] == 1


async def test_a_file_gets_one_line_a_round_and_nothing_is_written_unless_asked(
    tmp_path: Path,
) -> None:
    directory, tracer = DataDirectory(tmp_path), Tracer(b"c" * 32, ALICE)
    assert tracing_of(NodeConfig(), directory, tracer) is None
    task = tracing_of(load("config.yaml", "traces: {file: true}").value, directory, tracer)
    assert task is not None
    log = EventLog(lambda: 10**9)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task, log)
        await trio.testing.wait_all_tasks_blocked()
        a_round(log, 1)
        while not directory.traces.exists() or not directory.traces.read_text().endswith("\n"):
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    (line,) = directory.traces.read_text().splitlines()
    assert json.loads(line)["resourceSpans"]
