"""One outer synchronisation of real daemons, end to end, beside gloo's all_reduce in the same run.

    python benchmarks/outer_sync.py [--nodes 4] [--rounds 10] [--width 3125] [--codec int8] [--json]

Every node is a `daa-node run` with its worker, keys, disk and ports on loopback; it trains a
perceptron of about 10M parameters for one tiny step, so that next to nothing but the
synchronisation is left. The phases are read from the nodes' own event logs, whose clock is this
host's. Each ends when the last node is through with it, so they add up; the last two end with the
node that completes a quorum, since a slower one changes nothing any more:

    seal       last inner step -> pseudo-gradient clipped, encoded, hashed, in the store
    exchange   offer signed, blobs fetched, checked, synced, acknowledged by a quorum
    decide     collection closed, set proposed, notarized and final
    execute    aggregation and outer step, new state hashed
    certify    Exec signed, an execution certificate held

`sync` runs from the moment the last node stops training; `from first` from the moment the first
one does, so it also counts what the others still trained. Publishing the checkpoint follows and is
listed apart. gloo is measured before and after; it averages fp32 among processes that trust each
other, agrees on nothing and keeps nothing.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daa_node import config_file, genesis
from daa_node.adapters import control_socket
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.cli import identity, local
from daa_node.cli.cluster import Cluster, free_ports, settings
from daa_node.cli.data_directory import DataDirectory
from daa_node.genesis import Job
from daa_node.updates.compression.codec import CODEC_NAMES

PHASES = ("seal", "exchange", "decide", "execute", "certify")
WARM_ROUNDS = 2  # sessions are opened, allocators and page cache warm up
GLOO_REPEATS = 8
POLL_S = 0.25
STALL_S = 120.0  # a round takes seconds: without one for this long, something is wrong

Event = dict[str, Any]


def job_text(options: argparse.Namespace) -> str:
    """Two hidden layers of 3125 units: 10,003,135 parameters. One example a step."""
    return (
        f"name: outer-sync\n"
        f"model: {{kind: mlp, depth: 2, width: {options.width}}}\n"
        f"data: {{kind: digits}}\n"
        f"inner: {{batch_size: 1, lr: 0.0001, warmup_steps: 0}}\n"
        f"evaluation: {{windows: 1}}\n"
        f"updates: {{codec: {options.codec}, rule: {options.rule}, f_agg: {options.f_agg}}}\n"
        f"rounds: {{inner_steps_max: 1, window_ms: 30000}}\n"
        f"checkpoints: {{snapshot_every: {options.snapshot_every}}}\n"
        f"end: {{rounds: {options.rounds + WARM_ROUNDS}}}\n"
    )


def make_cluster(root: Path, job: Job, nodes: int) -> Cluster:
    directories = [root / f"node-{index}" for index in range(nodes)]
    records = []
    for directory, port in zip(directories, free_ports(nodes), strict=True):
        identity.create_node(directory, settings(port, []))
        records.append((str(directory), identity.make_record(identity.open_node(directory))))
    made = genesis.create(job, records, SystemEntropy().bytes(genesis.NONCE_BYTES))
    for directory in directories:
        local.write_genesis(DataDirectory(directory).genesis, made)
    return Cluster(root, made, directories)


@dataclass(frozen=True)
class Stated:
    """What the nodes told of themselves at the end, and what they used on the way there."""

    status: list[dict[str, Any]]
    rounds: list[list[dict[str, Any]]]
    cpu_s_per_round: dict[str, float]  # of one node's daemon and worker, the mean


def run_cluster(cluster: Cluster, rounds: int, say: Callable[[str], None]) -> Stated:
    """Runs the job to its end."""
    height, since_s = -1, time.monotonic()
    warm: tuple[int, dict[str, float]] | None = None
    try:
        cluster.start()
        while not all(daemon.done for daemon in cluster.daemons):
            time.sleep(POLL_S)
            cluster.poll()
            now = max((d.status or {}).get("height", -1) for d in cluster.daemons)
            if now > height:
                height, since_s = now, time.monotonic()
                say(f"round {height} of {rounds}")
            if warm is None and height >= WARM_ROUNDS:
                warm = height, cpu_s(cluster)
            if time.monotonic() - since_s > STALL_S:
                raise SystemExit(f"no round in {STALL_S} s; the logs lie in {cluster.root}")
        paths = [daemon.directory / "control.sock" for daemon in cluster.daemons]
        status = [control_socket.ask(path, "status") for path in paths]
        listed = [control_socket.ask(path, "rounds")["rounds"] for path in paths]
        used = {}
        if warm is not None:
            count = (rounds - warm[0]) * len(cluster.daemons)
            used = {name: (all_s - warm[1][name]) / count for name, all_s in cpu_s(cluster).items()}
        cluster.stop()
    finally:
        cluster.kill()
    return Stated(status, listed, {name: round(seconds, 3) for name, seconds in used.items()})


def cpu_s(cluster: Cluster) -> dict[str, float]:
    """CPU seconds so far of all daemons, and of all workers; nothing where there is no /proc."""
    found = {}
    for name, key in (("daemon", "pid"), ("worker", "trainer_pid")):
        pids = [(daemon.status or {}).get(key) for daemon in cluster.daemons]
        stats = [Path(f"/proc/{pid}/stat") for pid in pids]
        if all(stat.exists() for stat in stats):
            ticks = [stat.read_text().rpartition(") ")[2].split()[11:13] for stat in stats]
            found[name] = sum(int(t) for pair in ticks for t in pair) / os.sysconf("SC_CLK_TCK")
    return found


def events_of(directory: Path) -> list[Event]:
    """A node's whole log, oldest first."""
    files = sorted(directory.glob("events.jsonl*"), key=lambda path: -path.stat().st_mtime_ns)
    return [json.loads(line) for path in reversed(files) for line in path.open()]


def moments(events: list[Event], nodes: int) -> dict[int, dict[str, float]]:
    """round -> when this node reached the end of each phase, in Unix seconds."""
    rounds: dict[int, dict[str, float]] = {}
    acked: dict[int, int] = {}
    for event in events:
        reached, at_s = rounds.setdefault(event.get("round", -1), {}), event["ts"]
        match event["name"]:
            case "update_sealed":
                reached["trained"], reached["seal"] = at_s - event["seal_s"], at_s
            case "offer_eligible":
                acked[event["round"]] = acked.get(event["round"], 0) + 1
                if acked[event["round"]] == nodes:
                    reached["exchange"] = at_s
            case "set_decided" if event["contributors"] == nodes:
                reached["decide"] = at_s
            case "set_executed":
                reached["execute"] = at_s
            case "exec_certified":
                reached["certify"] = at_s
            case "checkpoint_published":
                published = rounds[max(r for r, seen in rounds.items() if "certify" in seen)]
                published["published_s"] = event["wall_s"]
    return rounds


def timings(by_node: list[dict[int, dict[str, float]]], rounds: int) -> list[dict[str, float]]:
    """Per round the seconds of each phase, until the last node is through with it."""
    measured = []
    for number in range(WARM_ROUNDS + 1, WARM_ROUNDS + rounds + 1):
        nodes = [seen.get(number, {}) for seen in by_node]
        if not all({"trained", *PHASES} <= seen.keys() for seen in nodes):
            continue  # somebody was left out: not the round that is measured here
        ends = {name: max(seen[name] for seen in nodes) for name in ("trained", *PHASES)}
        executed = sorted(seen["execute"] for seen in nodes)[2 * len(nodes) // 3]
        ends["execute"] = max(executed, ends["decide"])  # a node executes ahead of the decision
        row: dict[str, float] = {"round": number}
        for before, phase in zip(("trained", *PHASES), PHASES, strict=False):
            row[phase] = max(0.0, ends[phase] - ends[before])
        row["sync"] = ends["certify"] - ends["trained"]
        row["from_first"] = ends["certify"] - min(seen["trained"] for seen in nodes)
        row["publish"] = max(seen.get("published_s", 0.0) for seen in nodes)
        measured.append(row)
    return measured


def gloo(nodes: int, parameters: int, directory: Path) -> list[float]:
    """Seconds of each all_reduce of one fp32 vector, until the last process has it."""
    store = directory / f"gloo-{time.monotonic_ns()}"
    command = [sys.executable, __file__, "--gloo-rank"]
    processes = [
        subprocess.Popen(
            [*command, str(rank), "--nodes", str(nodes), "--gloo-parameters", str(parameters)]
            + ["--gloo-store", str(store)],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        for rank in range(nodes)
    ]
    spans = [json.loads(process.communicate()[0]) for process in processes]
    return [
        max(end for _, end in turn) - min(start for start, _ in turn)
        for turn in zip(*spans, strict=True)
    ][1:]


def gloo_rank(options: argparse.Namespace) -> None:
    """One process of the yardstick: prints [start, end] of each repetition."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{options.gloo_store}",
        rank=options.gloo_rank,
        world_size=options.nodes,
    )
    vector = torch.full((options.gloo_parameters,), float(options.gloo_rank))
    spans = []
    for _ in range(GLOO_REPEATS + 1):
        distributed.barrier()
        started_s = time.time()
        distributed.all_reduce(vector)
        vector /= options.nodes
        spans.append((started_s, time.time()))
    print(json.dumps(spans))
    distributed.destroy_process_group()


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median_s": round(statistics.median(values), 4),
        "min_s": round(min(values), 4),
        "max_s": round(max(values), 4),
    }


def measure(options: argparse.Namespace, root: Path, say: Callable[[str], None]) -> dict[str, Any]:
    job = config_file.load("outer_sync", job_text(options), Job).value
    parameters, nodes = job.model.parameter_count(), options.nodes
    averaged = gloo(nodes, parameters, root)
    cluster = make_cluster(root, job, nodes)
    said = run_cluster(cluster, options.rounds + WARM_ROUNDS, say)
    averaged += gloo(nodes, parameters, root)
    by_node = [moments(events_of(daemon.directory), nodes) for daemon in cluster.daemons]
    rows = timings(by_node, options.rounds)
    if not rows:
        raise SystemExit(f"no round had every contribution; the logs lie in {cluster.root}")
    sent = [line["bytes_sent"] for listed in said.rounds for line in listed[-len(rows) :]]
    summary = {
        name: spread([row[name] for row in rows])
        for name in (*PHASES, "sync", "from_first", "publish")
    }
    all_reduce = spread(averaged)
    return {
        "schema_version": 1,
        "machine": f"{os.cpu_count()} cores {platform.machine()}",
        "nodes": nodes,
        "parameters": parameters,
        "codec": options.codec,
        "rounds": rows,
        "rounds_left_out": options.rounds - len(rows),
        "summary": summary,
        "bytes_sent_per_node": round(statistics.median(sent)),
        "all_reduce": {**all_reduce, "bytes_sent_per_node": 8 * parameters * (nodes - 1) // nodes},
        "ratio_of_medians": round(summary["sync"]["median_s"] / all_reduce["median_s"], 2),
        "cpu_s_per_node_and_round": said.cpu_s_per_round,
        "daemon_anon_rss_bytes_max": max(s["anon_rss_bytes"] for s in said.status),
    }


def put(report: dict[str, Any]) -> None:
    nodes, codec, all_reduce = report["nodes"], report["codec"], report["all_reduce"]
    print(
        f"\n{report['parameters']:,} parameters, {nodes} nodes, {report['machine']}, "
        f"{len(report['rounds'])} rounds of {codec}"
    )
    print(f"{'':22}{'median s':>10}{'min s':>10}{'max s':>10}")
    for name, row in report["summary"].items():
        label = {"sync": "= sync", "from_first": "  from first", "publish": "publish, after"}
        print(f"{label.get(name, '  ' + name):22}" + "".join(f"{row[k]:10.3f}" for k in row))
    print(
        f"{'gloo all_reduce fp32':22}"
        + "".join(f"{all_reduce[k]:10.3f}" for k in ("median_s", "min_s", "max_s"))
    )
    sent, averaged = report["bytes_sent_per_node"] / 1e6, all_reduce["bytes_sent_per_node"] / 1e6
    print(f"sent a node and round: {sent:.1f} MB, all_reduce {averaged:.1f} MB (ring, by formula)")
    print(f"sync takes {report['ratio_of_medians']:.2f} x all_reduce's time")
    used = ", ".join(f"{name} {s:.2f}" for name, s in report["cpu_s_per_node_and_round"].items())
    print(f"CPU seconds a node and round, training and publishing included: {used}")
    print(f"largest daemon: {report['daemon_anon_rss_bytes_max'] / 2**20:.0f} MiB anonymous RSS")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--width", type=int, default=3125, help="of the perceptron")
    parser.add_argument("--codec", choices=CODEC_NAMES, default="int8")
    parser.add_argument("--snapshot-every", type=int, default=8)
    parser.add_argument("--dir", type=Path, help="keep the nodes' directories here")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--gloo-rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--gloo-parameters", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--gloo-store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gloo_rank is not None:
        gloo_rank(options)
        return
    is_sparse = options.codec == "top_k"  # which no trimmed mean carries
    options.rule = "mean" if is_sparse else "trimmed_mean"
    options.f_agg = 1 if options.nodes > 2 and not is_sparse else 0
    root = options.dir or Path(tempfile.mkdtemp(prefix="outer-sync-"))
    root.mkdir(parents=True, exist_ok=True)
    try:
        report = measure(options, root, lambda line: print(line, file=sys.stderr, flush=True))
    finally:
        if options.dir is None:
            shutil.rmtree(root, ignore_errors=True)
    if options.json:
        print(json.dumps(report))
    else:
        put(report)


if __name__ == "__main__":
    main()
