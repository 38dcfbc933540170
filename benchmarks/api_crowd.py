"""Whether rounds take longer while a crowd sits at the operator's HTTP API.

Run: python benchmarks/api_crowd.py DIR HOST:PORT [speaking], beside `daa-node run --dir DIR` whose
config.yaml has `api: {listen: HOST:PORT}` and whose job has hundreds of short rounds. A crowd is a
process of the lowest priority that keeps 10,000 connections open, and comes again where it is shown
out; a `speaking` one says a byte on each. Rounds are timed in turns: alone, with the crowd at the
door of another process, and with the crowd at the API. That other process, of the lowest priority,
lets in whoever comes and shows out the oldest: a crowd uses the machine, whoever's door it is at,
and only what is more at the API is the daemon's doing. What else the machine does moves rounds
more than a crowd, so that the daemon's own time on a core is told, too. It fails where rounds with
the crowd at the API are a tenth slower than alone.
"""

import http.client
import json
import multiprocessing
import os
import resource
import socket
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

IDLE = 10_000
ROUNDS, TURNS = 40, 3
SLOWER_MAX = 1.10
SOURCES = 200  # loopback addresses that they come from: one alone would drive out itself
STATUS_TIMEOUT_S = 30.0
COME_PER_S = 400  # of the crowd; the door lets in five hundred a second, and serves fifty
SPEAKS_AFTER = 30  # others have come: by then it is connected
OTHER_KEEPS, OTHER_BACKLOG = 64, 256  # at the other door, as at the API
SETTLE_S = 2.0  # from the end of a crowd to the next turn
ALONE, OTHER, API = "alone", "with the crowd at another door", "with the crowd at the API"


def _finished(events: Path) -> list[dict[str, float]]:
    lines = (json.loads(line) for line in events.read_text().splitlines())
    return [event for event in lines if event["name"] == "round_finalized"]


class Times:
    """Of rounds, in seconds."""

    def __init__(self, events: Path, pid: int) -> None:
        self._events, self._pid = events, pid
        self.rounds_s: list[float] = []
        self._core_s, self._rounds = 0.0, 0

    def add(self) -> None:
        """So many more from now on."""
        before_s, before = self._on_core_s(), len(_finished(self._events))
        self.rounds_s += _round_s(self._events)
        self._core_s += self._on_core_s() - before_s
        self._rounds += len(_finished(self._events)) - before

    @property
    def median_s(self) -> float:
        return statistics.median(self.rounds_s)

    @property
    def core_s(self) -> float:
        """The daemon's time on a core in each."""
        return self._core_s / self._rounds

    def _on_core_s(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _round_s(events: Path) -> list[float]:
    """How long so many rounds take from now on, by when they end."""
    begun_s = time.time()
    while True:
        ends = [event["ts"] for event in _finished(events) if event["ts"] > begun_s]
        if len(ends) > ROUNDS:
            return [b - a for a, b in zip(ends, ends[1:], strict=False)]
        time.sleep(1.0)


def _receive(door: socket.socket) -> None:
    """What the API does with a silent crowd, until it is ended."""
    os.nice(19)
    held = deque[socket.socket]()
    while True:
        held.append(door.accept()[0])
        if len(held) > OTHER_KEEPS:
            held.popleft().close()


def _sit(host: str, port: int, opened: "Synchronized[int]", speaks: bool) -> None:
    """Until it is ended."""
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    held: list[socket.socket] = []
    while True:
        one = socket.socket()
        one.setblocking(False)  # it may lie in a full backlog: that is idle, too
        one.bind((f"127.0.1.{opened.value % SOURCES + 1}", 0))
        one.connect_ex((host, port))
        held.append(one)
        opened.value += 1
        if speaks and len(held) > SPEAKS_AFTER:
            with suppress(OSError):  # shown out, or not let in yet
                held[-SPEAKS_AFTER].send(b"G")
        if len(held) > IDLE:
            held.pop(0).close()
        time.sleep(1.0 / COME_PER_S)


@contextmanager
def _crowd(host: str, port: int, speaks: bool) -> Iterator["Synchronized[int]"]:
    """It has filled the door; yields how many came."""
    opened = multiprocessing.Value("i", 0)
    crowd = multiprocessing.Process(target=_sit, args=(host, port, opened, speaks), daemon=True)
    crowd.start()
    time.sleep(1.2 * IDLE / COME_PER_S)
    yield opened
    crowd.terminate()
    crowd.join()
    time.sleep(SETTLE_S)


def _status(listens: str, token: str) -> tuple[float, int]:
    """How long it took, in ms, and the daemon's pid."""
    connection = http.client.HTTPConnection(listens, timeout=STATUS_TIMEOUT_S)
    began_s = time.perf_counter()
    connection.request("GET", "/v1/status", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError("the API does not answer")
    pid = int(json.loads(answer.read())["pid"])
    return (time.perf_counter() - began_s) * 1e3, pid


def _tell_status(listens: str, token: str) -> None:
    try:
        print(f"a status took {_status(listens, token)[0]:.0f} ms among them")
    except TimeoutError:  # its place in the kernel's queue was taken each time that it knocked
        print(f"a status took more than {STATUS_TIMEOUT_S:.0f} s among them")


def main(directory: str, listens: str, speaking: str = "") -> int:
    events = Path(directory) / "events.jsonl"
    token = (Path(directory) / "api-read.token").read_text().strip()
    host, _, port = listens.rpartition(":")
    _, pid = _status(listens, token)
    times = {kind: Times(events, pid) for kind in (ALONE, OTHER, API)}
    came = dict.fromkeys(times, 0)
    with socket.create_server(("127.0.0.1", 0), backlog=OTHER_BACKLOG) as other:
        receiver = multiprocessing.Process(target=_receive, args=(other,), daemon=True)
        receiver.start()
        doors = (OTHER, *other.getsockname()), (API, host, int(port))
        for _ in range(TURNS):
            times[ALONE].add()
            for kind, at, number in doors:
                with _crowd(at, number, speaking == "speaking") as opened:
                    if kind == API:
                        _tell_status(listens, token)
                    times[kind].add()
                    came[kind] += opened.value
        receiver.terminate()
    for kind, each in times.items():
        words = f"{kind}; {came[kind]} connections came" if came[kind] else kind
        print(f"a round: {each.median_s:.3f} s, {each.core_s:.3f} s of it on a core, {words}")
    slower, beside = (times[API].median_s / times[kind].median_s for kind in (ALONE, OTHER))
    print(
        f"slower by {100 * (slower - 1):.1f} % than alone, "
        f"by {100 * (beside - 1):.1f} % than beside a crowd that is at another door"
    )
    return int(slower > SLOWER_MAX)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
