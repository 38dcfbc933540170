"""Traces on their way out: to a file, or to an OpenTelemetry collector over HTTP.

A trace waits in a short queue for a thread of its own. When a collector is slow or away, traces are
dropped, which is told of once: no round waits for one.
"""

import json
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import trio

from daa_node.chronicle.traces import Tracer
from daa_node.observability.events import TRACES_FAILED, EventLog

WAITING_MAX = 64  # traces: some minutes of short rounds
SEND_S_MAX = 5.0  # for each step of a request
ANSWER_BYTES_MAX = 65_536

Export = Callable[[bytes], str | None]  # blocks; what went wrong, if anything did


def sent_to(url: str) -> Export:
    """One request a trace, on a connection of its own: rounds are far apart."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    host, path = parts.hostname or "", parts.path or "/"

    def export(trace: bytes) -> str | None:
        connection = kind(host, parts.port, timeout=SEND_S_MAX)
        try:
            connection.request("POST", path, trace, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read(ANSWER_BYTES_MAX)
        except (OSError, HTTPException, UnicodeError) as fault:  # a name like a..b has no bytes
            return f"{url}: {fault or type(fault).__name__}"
        finally:
            connection.close()
        return None if answer.status // 100 == 2 else f"{url}: it answers {answer.status}"

    return export


async def export_traces(log: EventLog, tracer: Tracer, exports: list[Export]) -> None:
    """Until cancelled."""
    send, receive = trio.open_memory_channel[dict[str, Any]](WAITING_MAX)
    async with log.subscribe() as new, trio.open_nursery() as nursery:
        nursery.start_soon(_export, receive, log, exports)
        async for event in new:
            trace = tracer.note(event)
            if trace is None:
                continue
            try:
                send.send_nowait(trace)
            except trio.WouldBlock:
                continue  # whoever takes them has been told to be slow


async def _export(
    traces: trio.MemoryReceiveChannel[dict[str, Any]], log: EventLog, exports: list[Export]
) -> None:
    limiter, failing = trio.CapacityLimiter(1), False
    async for trace in traces:
        payload = json.dumps(trace, separators=(",", ":")).encode()
        faults = [
            await trio.to_thread.run_sync(export, payload, limiter=limiter, abandon_on_cancel=True)
            for export in exports
        ]
        told = [fault for fault in faults if fault is not None]
        if told and not failing:
            log.emit(TRACES_FAILED, error="; ".join(told))
        failing = bool(told)
