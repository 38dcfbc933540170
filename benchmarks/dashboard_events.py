"""How late an event stands on the dashboard in Chromium, beside a bare reader of events.

Run: python -m benchmarks.dashboard_events [--dir DIR] [--seconds 60], after `make dashboard`.
Without a directory a process serves the page of a node of four that runs a round of some four
seconds after the other, in bursts of events as a daemon tells them, and with 300 rounds behind it.
With one it is the page of the running node there, whose HTTP API is on. Times are from the event's
own on.

`socket` has the events by a loop that does nothing else, `bare page` by a page of the same browser
that does nothing else: two floors. `had` is when the dashboard's program has them, `shown` when
their rows stand in its log. Without a directory it fails where nine of ten are not shown within
100 ms.
"""

import argparse
import json
import multiprocessing
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import trio

from daa_node.adapters import control_socket
from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.operator_door import operator_door
from daa_node.adapters.site_directory import DASHBOARD, read_site
from daa_node.api.dashboard_routes import dashboard_routes
from daa_node.api.description import description_route
from daa_node.api.event_stream import EventStream
from daa_node.api.operator_desk import OperatorDesk
from daa_node.api.replies import told
from daa_node.api.routes import Asked, Route
from daa_node.api.tokens import Right
from daa_node.observability import events
from daa_node.observability.events import EventLog, EventName
from daa_node.wire.http_messages import Reply
from daa_node.wire.page_files import Site
from tests.browser.dashboard_alone import ME, OTHERS, peer, status
from tests.daa_node.api.operator_desks import TOKENS

SCRIPT = Path(__file__).parents[1] / "dashboard/test/lag.js"
SHOWN_MS_P90_MAX = 100.0
OPENING_S = 120.0  # Chromium's, on a busy machine
ROUNDS_BEFORE, SEED = 300, 1
Happening = tuple[float, EventName, dict[str, Any]]  # so many seconds after the one before


def one_round(number: int, lots: Random) -> list[Happening]:
    """The events of a round, in the bursts in which a daemon of four was seen to tell them."""
    few = lambda: lots.uniform(0.0005, 0.006)  # noqa: E731
    authors = lots.sample([ME, *OTHERS], 4)
    views = [
        (few(), name, fields)
        for view in (2 * number, 2 * number + 1)
        for name, fields in (
            (events.STATEMENT_SENT, {"kind": "vote", "view": view, "round": number}),
            (events.STATEMENT_SENT, {"kind": "final", "view": view, "round": number}),
            (events.VIEW_ENTERED, {"epoch": number // 4, "view": view + 1, "why": "notarized"}),
            (events.BLOCK_FINALIZED, {"view": view, "height": view, "block_id": "b0" * 32}),
        )
    ]
    return [
        (0.05, events.DECISION, {"decision": "train", "reason": f"round {number} is open"}),
        (few(), events.ROUND_STARTED, {"base": "ee" * 32, "steps": 40}),
        (2.0, events.UPDATE_SEALED, {"steps": 40, "tokens": 81_920, "loss_nats": 2.3817}),
        *((lots.uniform(0.002, 0.3), events.OFFER_ACKED, {"author": one}) for one in authors),
        *((lots.uniform(0.002, 0.1), events.OFFER_ELIGIBLE, {"author": one}) for one in authors),
        *views,
        (few(), events.SET_DECIDED, {"contributors": 4, "left_out": 0, "ours": True}),
        (0.4, events.SET_EXECUTED, {"wall_s": 0.4}),
        (few(), events.STATEMENT_SENT, {"kind": "exec", "view": 2 * number, "round": number}),
        (0.03, events.EXEC_CERTIFIED, {"vertex_id": "ee" * 32, "signers": 4}),
        (few(), events.CHECKPOINT_PUBLISHED, {"height": number, "vertex_id": "ee" * 32}),
        *((few(), events.UPDATE_MEASURED, {"author": one, "norm": 1.25}) for one in authors),
        (
            *(few(), events.ROUND_FINALIZED),
            {"height": number, "contributors": 4, "loss_nats": 2.4061, "wall_s": 3.1},
        ),
    ]


def _answers() -> Mapping[str, Callable[[], Mapping[str, Any]]]:
    rounds = [
        {
            "height": height,
            "training_round": height,
            "vertex_id": f"{height:064x}",
            "loss_nats": 2.1 + 3.4 / (1 + height / 2),
            "certified_by": [ME, *OTHERS],
            "contributors": [ME, *OTHERS],
            "voided": [],
            "bytes_sent": 1_240_000,
            "wall_s": 6.1,
        }
        for height in range(ROUNDS_BEFORE)
    ]
    members = [{"node_id": node, "stake": 1, "peer_id": None} for node in (ME, *OTHERS)]
    return {
        "/v1/status": lambda: status(True, False),
        "/v1/peers": lambda: {"peers": [peer(node) for node in OTHERS]},
        "/v1/rounds": lambda: {"rounds": rounds},
        "/v1/validators": lambda: {
            **{"epoch": 1, "epoch_rounds": 8, "quorum": 3, "stake": 4, "validators": members},
            **{"waiting": [], "asked": [], "dropped": []},
        },
    }


def _telling(answer: Callable[[], Mapping[str, Any]]) -> Callable[[Asked], Awaitable[Reply]]:
    async def tell(_: Asked) -> Reply:
        return told(answer())

    return tell


async def _serve(parent: Connection) -> None:
    """Tells its port, and then a round after the other."""
    log, lots = EventLog(time.time_ns), Random(SEED)
    door = operator_door("127.0.0.1:0", EventLog(time.time_ns), Shortage(), Random(1))

    def port() -> int:
        return int(str(door.standing()["listens"]).rpartition(":")[2])

    rows = (
        *(Route("GET", path, Right.READ, _telling(tell)) for path, tell in _answers().items()),
        *EventStream(log, "1f00c2ab").routes(),
        *dashboard_routes(Site(read_site(DASHBOARD))),
    )
    door.set_asking_desk(
        OperatorDesk(TOKENS, (*rows, description_route(rows)), port, lambda _: None).answer
    )
    number = ROUNDS_BEFORE
    for number in range(ROUNDS_BEFORE - 20, ROUNDS_BEFORE):
        for _, name, fields in one_round(number, lots):
            log.emit(name, **{"round": number, **fields})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door.run)
        while door.standing()["listens"] is None:
            await trio.sleep(0.01)
        parent.send(port())
        while True:
            number += 1
            for after_s, name, fields in one_round(number, lots):
                await trio.sleep(after_s)
                log.emit(name, **{"round": number, **fields})


class BareReader(threading.Thread):
    """Reads the events by one socket, and notes how late each is."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(daemon=True)
        self.late_ms: list[tuple[float, float]] = []  # its own time in ms, and how late
        self._host, self._token = urlsplit(address).netloc, token

    def run(self) -> None:
        host, _, port = self._host.rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(
                f"GET /v1/events HTTP/1.1\r\nHost: {self._host}\r\n"
                f"Authorization: Bearer {self._token}\r\n\r\n".encode()
            )
            held = b""
            while piece := connection.recv(1 << 16):
                now_ms = time.time() * 1e3
                *lines, held = (held + piece).split(b"\n")
                for line in lines:
                    if line.startswith(b"data: {"):
                        ts_ms = json.loads(line[6:])["ts"] * 1e3
                        self.late_ms.append((ts_ms, now_ms - ts_ms))


def _measure(address: str, token: str, seconds: float) -> Mapping[str, Sequence[float]]:
    """How late each event was, in ms, at each place."""
    if not (DASHBOARD / "index.html").exists():
        raise SystemExit("the dashboard is not built: make dashboard")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium on this machine: on Debian, apt-get install chromium")
    bare = BareReader(address, token)
    bare.start()
    done = subprocess.run(
        ["node", str(SCRIPT), f"{address}#token={token}", chromium, str(seconds)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=OPENING_S + seconds,
    )
    found: dict[str, list[list[float]]] = json.loads(done.stdout)
    seen = found["page"]
    if not seen:
        raise SystemExit("no event came in that time")
    first_ms, last_ms = seen[0][0], seen[-1][0]
    return {
        "socket": [late for ts_ms, late in bare.late_ms if first_ms <= ts_ms <= last_ms],
        "bare page": [had - ts for ts, had in found["bare"] if first_ms <= ts <= last_ms],
        "had": [had_ms - ts_ms for ts_ms, had_ms, _ in seen],
        "shown": [shown_ms - ts_ms for ts_ms, _, shown_ms in seen],
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    if given.dir is None:
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.get_context("spawn").Process(
            target=trio.run, args=(_serve, theirs), daemon=True
        )
        server.start()
        theirs.close()  # so that its end is heard
        address, token = f"http://127.0.0.1:{ours.recv()}/", TOKENS.read
    else:
        address = control_socket.ask(given.dir / "control.sock", "status")["api"]["url"]
        token = (given.dir / "api-read.token").read_text().strip()
    late = _measure(address, token, given.seconds)
    for place, each in late.items():
        p50, p90, p99 = (sorted(each)[len(each) * share // 100] for share in (50, 90, 99))
        print(f"{place:9} {len(each):5} events  p50 {p50:6.1f}  p90 {p90:6.1f}  p99 {p99:6.1f} ms")
    shown = sorted(late["shown"])
    return int(given.dir is None and shown[len(shown) * 90 // 100] >= SHOWN_MS_P90_MAX)


if __name__ == "__main__":
    sys.exit(main())
