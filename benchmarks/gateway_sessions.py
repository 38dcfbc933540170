"""What volunteers cost a gateway: CPU of a real daemon with so many sessions beside itself without.

    python benchmarks/gateway_sessions.py [simulated | real] [--sessions 200] [--quiet 20]
        [--busy 120] [--flood] [--json]

Every few milliseconds of CPU time a signal looks at what runs, and the CPU time since the last look
counts for

    bookkeeping   admission, frames, desk, standings, signatures: all of daa_node/gateway but
    pieces        reading and cutting out what volunteers get, and
    own           what the gateway computes itself
    transport     libp2p, noise, yamux, WebSocket, below what the gateway reads and writes
    rest          all else that a daemon does

    volunteers    what simulated ones do

`simulated`: sessions of `simnet` at one gateway, four to an address, in virtual time: real codecs,
real ML-DSA, the daemon's own code, and no libp2p. Seconds are virtual ones, the CPU is this one's.
It fails where bookkeeping and pieces take more than LIMIT, or an honest session is dropped.

`real`: a daemon in its own process, on loopback, trains a small model alone; volunteers of other
processes come by WebSocket, with libp2p, noise, yamux and ML-DSA as a page has them. What the
daemon needs without them is measured first, and told beside it. Its own computing runs in threads.
Two hundred whole libp2p hosts want several cores of their own.

In both volunteers work as quickly as the gateway gives them work: 20 tasks a second.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import trio
from outer_sync import make_cluster

from daa_dag.ids import ChainId, NodeId
from daa_node import config_file
from daa_node.adapters import control_socket
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.cli.compose import run_daemon
from daa_node.errors import PeerFault, Unavailable, UserError
from daa_node.genesis import Job
from daa_node.identity.keys import NodeKeys
from daa_node.network.config import NetworkConfig
from daa_node.seams import Address
from daa_node.wire import protocols
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.crowd import Truths
from simnet.nodes.virtual.volunteer import Volunteer
from simnet.nodes.virtual.world import run_script
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

LOOK_S = 0.002  # of CPU time
LIMIT = 0.10  # of a core, for bookkeeping and pieces
FLOOD = [
    {"kind": kind, "count": 8, "per_address": 8}
    for kind in ("flooder", "garbler", "replayer", "masker")
]
ARRIVED_S = 15.0  # of simulated sessions: all are there
STARTED_S = 180.0
COMING_S = 240.0  # for all sessions to be there
PROCESSES = 4  # of volunteers
ME = Path(__file__)
JOB = """
name: gateway-sessions
model: {kind: mlp, depth: 1, width: 16}
data: {kind: digits}
inner: {batch_size: 8, warmup_steps: 0}
evaluation: {windows: 64}
updates: {rule: mean, f_agg: 0}
rounds: {inner_steps_max: 5, window_ms: 2000}
checkpoints: {snapshot_every: 2}
end: {rounds: 100000}
"""
SETTINGS = """
gateway:
  enabled: true
  listen: 127.0.0.1:0
  volunteers_per_address: 256
"""


class Looks:
    """CPU of the thread that runs the event loop, by what it is spent on; in the daemon."""

    def __init__(self) -> None:
        self.spent_s: Counter[str] = Counter()
        self._before_s = time.thread_time()
        self._of_file: dict[str, str] = {}

    def begin(self) -> None:
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, LOOK_S, LOOK_S)

    def _look(self, _signal: int, frame: FrameType | None) -> None:
        now_s = time.thread_time()
        self.spent_s[self._what(frame)] += now_s - self._before_s
        self._before_s = now_s

    def _what(self, frame: FrameType | None) -> str:
        """By the innermost frame that says something, unless a simulated volunteer runs."""
        what = ""
        while frame is not None:
            code = frame.f_code
            found = self._of_file.get(code.co_filename)
            if found is None:
                found = self._of_file[code.co_filename] = _kind(code.co_filename)
            what = "own" if code.co_name == "truth" else what or found
            if found == "volunteers":
                return found
            frame = frame.f_back
        return what or "rest"


def _kind(file: str) -> str:
    if file.endswith(("virtual/volunteer.py", "virtual/crowd.py")):
        return "volunteers"
    if "/simnet/" in file:
        return "rest"
    if file.endswith(("gateway/proofs.py", "gateway/training_pieces.py")):
        return "pieces"
    if "daa_node/gateway/" in file or file.endswith("volunteer_messages.py"):
        return "bookkeeping"
    if "/libp2p" in file or "websocket" in file or "wsproto" in file or "/adapters/" in file:
        return "transport"
    return ""


def daemon(directory: Path) -> None:
    """In its own process, until it is killed; tells what it has spent to a file when asked."""
    looks, told = Looks(), directory / "spent.json"
    looks.begin()

    def tell(_signal: int, _frame: FrameType | None) -> None:
        spent = {**looks.spent_s, "loop": time.thread_time(), "all": time.process_time()}
        told.with_suffix(".new").write_text(json.dumps(spent))
        told.with_suffix(".new").rename(told)

    signal.signal(signal.SIGUSR1, tell)
    run_daemon(directory, None, (), True)


def volunteers(directory: Path, first: int, count: int) -> None:
    """In their own process, until it is killed; tells how they are once a second."""
    said = control_socket.ask(directory / "control.sock", "status")
    (address,) = [a for a in said["addresses"] if "/ws/" in a and "/127.0.0.1/" in a]
    chain_id, gateway = (bytes.fromhex(said[name]) for name in ("chain_id", "node_id"))
    truths, pages = Truths(), list[Volunteer]()
    ended: Counter[str] = Counter()

    async def come(number: int) -> None:
        keys = NodeKeys.from_seed(b"volunteer %d" % number)
        page = Volunteer(
            keys, ChainId(chain_id), NodeId(gateway), lambda: int(time.time()), truths.of
        )
        pages.append(page)
        config = NetworkConfig(listen=(), bootstrap=())
        transport = Libp2pTransport(keys.ed25519_seed, "volunteers", config)
        async with trio.open_nursery() as nursery:
            await nursery.start(transport.run)
            peer_id = await transport.dial(Address(address))
            stream = await transport.open_stream(peer_id, protocols.VOLUNTEER)
            await page.attend(stream)
            nursery.cancel_scope.cancel()
        ended[page.refused[0] if page.refused else "left"] += 1

    async def guarded(number: int) -> None:
        try:
            await come(number)
        except* (Unavailable, PeerFault, trio.BrokenResourceError, trio.TooSlowError) as group:
            ended[repr(group.exceptions[0])[:200]] += 1

    async def all_of_them() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(first, first + count):
                nursery.start_soon(guarded, number)
                await trio.sleep(0.2)
            while True:
                print(
                    json.dumps(
                        {
                            "welcomed": sum(page.welcomed.is_set() for page in pages),
                            "verdicts": sum(len(page.done) for page in pages),
                            "right": sum(page.judged[True] for page in pages),
                            "wrong": sum(page.judged[False] for page in pages),
                            "ended": dict(ended),
                        }
                    ),
                    flush=True,
                )
                await trio.sleep(1.0)

    trio.run(all_of_them)


class Daemon:
    """The daemon's process, from outside."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process = _run("daemon", directory)

    def status(self) -> dict[str, Any] | None:
        try:
            return control_socket.ask(self.directory / "control.sock", "status")
        except UserError:
            return None

    def until(self, holds: Callable[[dict[str, Any]], bool], within_s: float) -> dict[str, Any]:
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            said = self.status()
            if said is not None and holds(said):
                return said
            time.sleep(0.2)
        raise SystemExit(f"the daemon did not come so far within {within_s:g} s: {self.status()}")

    def spent(self) -> Counter[str]:
        """CPU seconds so far, by what they went into."""
        told = self.directory / "spent.json"
        told.unlink(missing_ok=True)
        os.kill(self._process.pid, signal.SIGUSR1)
        while not told.exists():
            time.sleep(0.01)
        return Counter(json.loads(told.read_text()))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def _run(*words: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(ME), *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if words[0] == "volunteers" else subprocess.DEVNULL,
        text=True,
    )


def shares(before: Counter[str], after: Counter[str], seconds: float) -> dict[str, float]:
    """Of a core."""
    loop = {name: after[name] - before[name] for name in after if name not in ("loop", "all")}
    whole_s = after["loop"] - before["loop"]
    own_s = after["all"] - before["all"] - whole_s
    told = {**loop, "loop": whole_s, "own": own_s}
    return {name: round(spent_s / seconds, 4) for name, spent_s in sorted(told.items())}


def measure(options: argparse.Namespace, root: Path, say: Callable[[str], None]) -> dict[str, Any]:
    cluster = make_cluster(root, config_file.load("gateway_sessions", JOB, Job).value, 1)
    (directory,) = cluster.root.glob("node-*")
    with (directory / "config.yaml").open("a") as settings:
        settings.write(SETTINGS)
    node, crowd = Daemon(directory), []
    try:
        node.until(lambda said: said["gateway"]["url"] and said["height"] > 4, STARTED_S)
        say(f"quiet for {options.quiet:g} s")
        before, height = node.spent(), (node.status() or {})["height"]
        began_s = time.monotonic()
        time.sleep(options.quiet)
        quiet = shares(before, node.spent(), time.monotonic() - began_s)
        rounds_quiet = ((node.status() or {})["height"] - height) / (time.monotonic() - began_s)
        each = -(-options.sessions // PROCESSES)
        for first in range(0, options.sessions, each):
            crowd.append(_run("volunteers", directory, first, min(each, options.sessions - first)))
        node.until(lambda said: sessions_of(said) == options.sessions, COMING_S)
        say(f"{options.sessions} sessions for {options.busy:g} s")
        first_said, before = node.status() or {}, node.spent()
        began_s, least = time.monotonic(), options.sessions
        while time.monotonic() - began_s < options.busy:
            time.sleep(2.0)
            least = min(least, sessions_of(node.status() or {}))
        seconds = time.monotonic() - began_s
        busy, last_said = shares(before, node.spent(), seconds), node.status() or {}
        for process in crowd:
            process.kill()
        told = [json.loads((p.stdout.read() if p.stdout else "").splitlines()[-1]) for p in crowd]
        given = [said["gateway"]["volunteers"]["given"] for said in (first_said, last_said)]
        return {
            "sessions": options.sessions,
            "sessions_least": least,
            "seconds": round(seconds, 1),
            "tasks_per_s": round((given[1] - given[0]) / seconds, 2),
            "volunteers": {k: sum(t[k] for t in told) for k in ("welcomed", "verdicts", "wrong")},
            "ended": [t["ended"] for t in told if t["ended"]],
            "refused": last_said["gateway"]["volunteers"]["refused"],
            "rounds_per_s": {
                "quiet": round(rounds_quiet, 3),
                "busy": round((last_said["height"] - first_said["height"]) / seconds, 3),
            },
            "quiet": quiet,
            "busy": busy,
        }
    finally:
        node.end()
        for process in crowd:
            process.kill()
            process.wait()


def simulated(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    scenario = Scenario.model_validate(
        {
            "name": "gateway-sessions",
            "duration_s": 10_000,
            "nodes": [{"count": 1}],
            "work": {"rounds": 100_000, "step_s": 0.25, "inner_steps_max": 4},
            "volunteers": [
                {"count": options.sessions, "per_address": 4},
                *(FLOOD if options.flood else ()),
            ],
        }
    )
    looks, found = Looks(), dict[str, Any]()

    async def script(cluster: Cluster) -> None:
        cluster.start()
        await trio.sleep(ARRIVED_S)
        say(f"{options.sessions} sessions for {options.busy:g} s")
        before, said = Counter(looks.spent_s), await cluster.ask(0, "status")
        await trio.sleep(options.busy)
        spent, last = looks.spent_s - before, await cluster.ask(0, "status")
        given = [each["gateway"]["volunteers"]["given"] for each in (said, last)]
        found["sessions_at_the_end"] = sessions_of(last)
        found["tasks_per_s"] = round((given[1] - given[0]) / options.busy, 2)
        found["rounds_per_s"] = round((last["height"] - said["height"]) / options.busy, 3)
        found["shares"] = {k: round(s / options.busy, 4) for k, s in sorted(spent.items())}

    looks.begin()
    outcome = run_script(scenario, Trace(), script)
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    assert outcome.ok, [each for each in outcome.invariants if not each.ok]
    honest = outcome.facts["volunteers"][0]
    own = found["shares"]["bookkeeping"] + found["shares"]["pieces"]
    if honest["ended"] or honest["sessions"] != options.sessions or own > LIMIT:
        raise SystemExit(f"dropped: {honest['ended']}; {own:.1%} of a core, at most {LIMIT:.0%}")
    found["of_the_limit"] = round(own / LIMIT, 2)
    return {"sessions": options.sessions, **found, "volunteers": outcome.facts["volunteers"]}


def sessions_of(said: dict[str, Any]) -> int:
    return int(said["gateway"]["volunteers"]["sessions"])


def main() -> None:
    if sys.argv[1:2] == ["daemon"]:
        return daemon(Path(sys.argv[2]))
    if sys.argv[1:2] == ["volunteers"]:
        return volunteers(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("where", nargs="?", choices=("simulated", "real"), default="simulated")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--quiet", type=float, default=20.0, help="seconds")
    parser.add_argument("--busy", type=float, default=120.0, help="seconds")
    parser.add_argument("--flood", action="store_true", help="simulated, from four addresses")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    def say(words: str) -> None:
        print(words, file=sys.stderr)

    if options.where == "simulated":
        report = simulated(options, say)
    else:
        with tempfile.TemporaryDirectory() as place:
            report = measure(options, Path(place), say)
    if options.json:
        print(json.dumps(report, indent=1))
        return
    for name, value in report.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
