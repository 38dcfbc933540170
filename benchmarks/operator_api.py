"""What the operator's HTTP API costs: 50 programs that follow the events, and a scrape.

Run: python -m benchmarks.operator_api. A process serves the API as the daemon does and emits 20
events a second; this one follows them over 50 connections and says how late each event came, and
which share of a core serving them took beyond emitting them. Then /metrics is scraped beside that.
It fails where an event of a hundred comes later than 250 ms, 50 followers take 15 % of a core, or
half of the scrapes take 20 ms.
"""

import http.client
import json
import multiprocessing
import socket
import sys
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from random import Random
from typing import Any

import trio

from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.operator_door import operator_door
from daa_node.api.event_stream import EventStream
from daa_node.api.metrics import Facts
from daa_node.api.operator_desk import OperatorDesk
from daa_node.api.reading_routes import Sources, reading_routes
from daa_node.observability.events import ROUND_FINALIZED, EventLog
from tests.daa_node.api.operator_desks import STATUS, TOKENS

SUBSCRIBERS = 50
EVENTS_PER_S = 20.0
FOLLOWED_S = 20.0
SCRAPES = 100
LATE_MS_P99_MAX, CORE_SHARE_MAX, SCRAPE_MS_P50_MAX = 250.0, 0.15, 20.0


async def _serve(parent: Connection) -> None:
    """Tells its port, then its time on a core whenever it is asked."""
    events = EventLog(time.time_ns)
    door = operator_door("127.0.0.1:0", events, Shortage(), Random(1))

    async def status() -> Mapping[str, Any]:
        return STATUS

    async def facts() -> Facts:
        return Facts(STATUS, True, 3, 1.5, 50, dict(events.counts), {200: 50})

    routes = (
        *reading_routes(Sources(status, status, status, status, lambda: None, facts)),
        *EventStream(events, "1f00c2ab").routes(),
    )

    def port() -> int:
        return int(str(door.standing()["listens"]).rpartition(":")[2])

    door.set_asking_desk(OperatorDesk(TOKENS, routes, port, lambda _: None).answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door.run)
        while door.standing()["listens"] is None:
            await trio.sleep(0.01)
        parent.send(port())
        number = 0
        while True:
            await trio.sleep(1.0 / EVENTS_PER_S)
            number += 1
            events.emit(
                ROUND_FINALIZED,
                round=number,
                height=number,
                vertex_id=bytes(32),
                loss_nats=2.5,
                contributors=["ab" * 32] * 4,
                wall_s=31.2,
                bytes_sent=123_456,
            )
            if parent.poll():
                parent.recv()
                parent.send(time.process_time())


def _follow(port: int, late_ms: list[float], until_s: float) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(5.0)
        connection.sendall(
            f"GET /v1/events HTTP/1.1\r\nHost: localhost:{port}\r\n"
            f"Authorization: Bearer {TOKENS.read}\r\n\r\n".encode()
        )
        held = b""
        while time.monotonic() < until_s:
            held += connection.recv(1 << 16)
            now = time.time()
            *lines, held = held.split(b"\n")
            for line in lines:
                if line.startswith(b"data: "):
                    late_ms.append((now - json.loads(line[6:])["ts"]) * 1e3)


def _core_share(server: Connection, seconds: float) -> float:
    server.send(None)
    before, began_s = server.recv(), time.monotonic()
    time.sleep(seconds)
    server.send(None)
    return float((server.recv() - before) / (time.monotonic() - began_s))


def _scrapes_ms(port: int) -> list[float]:
    connection, took_ms = http.client.HTTPConnection("127.0.0.1", port), []
    for _ in range(SCRAPES):
        began_s = time.perf_counter()
        headers = {"Authorization": f"Bearer {TOKENS.read}", "Host": f"localhost:{port}"}
        connection.request("GET", "/metrics", headers=headers)
        connection.getresponse().read()
        took_ms.append((time.perf_counter() - began_s) * 1e3)
        time.sleep(0.04)
    return sorted(took_ms)


def main() -> int:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=trio.run, args=(_serve, theirs), daemon=True
    )
    server.start()
    port = int(ours.recv())
    alone = _core_share(ours, FOLLOWED_S / 4)
    late: list[list[float]] = [[] for _ in range(SUBSCRIBERS)]
    until_s = time.monotonic() + FOLLOWED_S + 2.0
    followers = [threading.Thread(target=_follow, args=(port, each, until_s)) for each in late]
    for follower in followers:
        follower.start()
    time.sleep(1.0)
    share = _core_share(ours, FOLLOWED_S)
    for follower in followers:
        follower.join()
    scrapes_ms = _scrapes_ms(port)
    server.terminate()
    late_ms = sorted(one for each in late for one in each)
    fewest = min(len(each) for each in late)
    p50, p99 = late_ms[len(late_ms) // 2], late_ms[len(late_ms) * 99 // 100]
    print(f"{SUBSCRIBERS} followers, {EVENTS_PER_S:.0f} events/s, each had {fewest} or more")
    print(f"event late by  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms")
    print(f"share of a core  {share - alone:.3f} beyond {alone:.3f} without followers")
    half, most = scrapes_ms[SCRAPES // 2], scrapes_ms[SCRAPES * 99 // 100]
    print(f"scrape         p50 {half:6.1f} ms  p99 {most:6.1f} ms")
    return int(
        p99 >= LATE_MS_P99_MAX or share - alone >= CORE_SHARE_MAX or half >= SCRAPE_MS_P50_MAX
    )


if __name__ == "__main__":
    sys.exit(main())
