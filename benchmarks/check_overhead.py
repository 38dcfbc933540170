"""What spot checks cost: training with them beside training without, in one run, taking turns.

    python benchmarks/check_overhead.py [worker] [cluster] [--share 1/10] [--repeat 3]
        [--models ...] [--steps 24 96] [--segments 2 4 8] [--rounds 6] [--turns 1]
        [--round-steps 96] [--json]

`worker`: CPU of one worker's thread, by model, steps and segments of a round. A round is trained,
of which hashing and writing its boundaries is counted apart, then one of its segments is checked;
again and again, and the medians count. With a share of all contributions drawn and one checker
each, a node checks as often as it is drawn itself:

    overhead = (boundaries - spared + share x check) / (round - boundaries + save)

A worker also saves what a restart needs, with or without checks; `spared` is what that takes less
when boundaries have hashed it. No checking of segments is cheaper than to train
the drawn ones again, share / segments of it all.

`cluster`: real daemons with their workers on loopback. A cluster without checks, one with them at
the share, and one where every contribution is checked, take turns. Told are CPU a certified step of
workers, CPU a round of a daemon, and the phases of a round (see outer_sync.py) with how long nodes
trained: a check takes its time from the checker's own steps, so that neither may grow.

    overhead = (worker's CPU a step, more than without, x steps + daemon's CPU a round, more)
               / worker's CPU a step without x steps

Nodes find their canary steps taken, as after a restart: these are a start's, not a round's.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from outer_sync import PHASES, WARM_ROUNDS, Event, events_of, make_cluster, moments, run_cluster
from outer_sync import timings as timings_of

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node import config_file
from daa_node.adapters.blob_directory import BlobDirectory
from daa_node.cli.compose import training_job
from daa_node.cli.data_directory import DataDirectory
from daa_node.config import NodeConfig
from daa_node.genesis import Genesis, Job
from daa_node.seams import SegmentOrder, StateRef, TrainOrder
from daa_node.spot_checks.calibration import CANARY_STEPS, Calibration
from daa_node.spot_checks.canaries import KIND, NAME
from daa_node.training import inner_state
from daa_node.training.boundaries import Boundary, Ends, open_boundary
from daa_node.training.boundary_files import BoundaryFiles, file_of
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.core import Core, open_core
from daa_node.training.data_config import DataConfig
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.training.sealed_claims import Claim, ClaimedSeal

STEPS = 24  # of a round: the demo's
DIGITS = DataConfig(kind="digits")
MODELS: dict[str, tuple[ModelConfig, DataConfig, int]] = {  # with data and batch
    "byte_gpt 64x2": (ModelConfig(depth=2, width=64), DataConfig(), 4),
    "byte_gpt 96x3": (ModelConfig(depth=3, width=96), DataConfig(), 4),  # the demo's
    "byte_gpt 256x4": (ModelConfig(depth=4, width=256), DataConfig(), 8),
    "mlp 3125x2": (ModelConfig(kind="mlp", depth=2, width=3125), DIGITS, 64),
}
NODES = 4
NO_ROOT = BlobRoot(bytes(32))
NOWHERE = StateRef(NO_ROOT, NO_ROOT)
AUTHOR, SEED = NodeId(b"a" * 32), Digest(b"s" * 32)


@dataclass(frozen=True)
class WorkerRow:
    """CPU seconds, medians."""

    model: str
    parameters: int
    steps: int  # of a round
    segments: int
    training_s: float  # a round without its boundaries, and saving what a restart needs
    boundaries_s: float  # less what they spare
    check_s: float
    overhead: float


class Author:
    """One worker's core, which keeps its boundaries as the worker does."""

    def __init__(self, name: str, directory: Path) -> None:
        model, data, batch_size = MODELS[name]
        inner = InnerConfig(lr=1e-4, batch_size=batch_size)
        self.job = TrainingJob(model=model, data=data, inner=inner)
        self._core: Core = open_core(self.job, torch.device("cpu"), directory, time.perf_counter)
        self._base_D = genesis_weights(model, 0)
        self._directory = directory
        self._ends: Ends = {}
        self._round = 0
        self._steps = 0  # of all rounds

    def train(self, steps: int, segments: int) -> tuple[TrainOrder, Any, float]:
        """A round: its order, its blob, and the CPU seconds that went into boundaries."""
        order = TrainOrder(
            *(NOWHERE, SEED, self._round, AUTHOR, steps, 1e9, "int8", self._steps),
            self._round - 1,
            segment_steps=-(-steps // segments),
        )
        self._round += 1
        self._steps += steps
        files, spent_s = BoundaryFiles(self._directory, self._ends), list[float]()

        def keep(boundary: Boundary) -> None:
            spent_s.append(cpu_s(lambda: files.add(boundary))[0])

        def end() -> None:
            files.end_with(sealed.end)
            files.write_last()

        sealed = self._core.train_and_seal(order, self._base_D, on_boundary=keep)
        return order, sealed.blob.copy(), sum(spent_s) + cpu_s(end)[0]

    def saved_s(self) -> tuple[float, float]:
        """CPU seconds of saving what a restart needs, without boundaries and with them."""
        path, job, state = (
            self._directory / "inner_state",
            Digest(bytes(32)),
            self._core.inner_state(),
        )
        without_s, with_s = (
            cpu_s(partial(inner_state.save, path, job, state, ends))[0] for ends in ({}, self._ends)
        )
        return without_s, with_s

    def check(self, order: TrainOrder, blob: Any, segment: int) -> None:
        size, each = self.job.model.parameter_count(), order.segment_steps
        start, end, last = (
            open_boundary(np.memmap(file_of(self._directory, place), np.uint8, "c"), size, True)
            for place in (segment, segment + 1, -(-order.steps_max // each))
        )
        asked = SegmentOrder(
            *(SEED, order.round, AUTHOR, order.first_step, segment * each),
            *(min(each, order.steps_max - segment * each), NO_ROOT, NO_ROOT, None),
        )
        sealed = ClaimedSeal(self._base_D, last, blob, "int8")
        found = self._core.check_segment(asked, Claim(start, end, sealed))
        assert found.weights < 1e-6, "its own training does not come out again"


def worker_row(
    name: str, steps: int, segments: int, share: Fraction, repeat: int, author: Author
) -> WorkerRow:
    rows = []
    for turn in range(repeat + 1):  # the first warms up
        round_s, (order, blob, boundaries_s) = cpu_s(lambda: author.train(steps, segments))
        save_s, saved_s = author.saved_s()
        round_s, boundaries_s = round_s - boundaries_s + save_s, boundaries_s - save_s + saved_s
        check_s, _ = cpu_s(partial(author.check, order, blob, turn % segments))
        rows.append((round_s, boundaries_s, check_s))
    training_s, boundaries_s, check_s = (
        statistics.median(column) for column in zip(*rows[1:], strict=True)
    )
    return WorkerRow(
        model=name,
        parameters=author.job.model.parameter_count(),
        steps=steps,
        segments=segments,
        training_s=training_s,
        boundaries_s=boundaries_s,
        check_s=check_s,
        overhead=(boundaries_s + float(share) * check_s) / training_s,
    )


def cpu_s(work: Callable[[], Any]) -> tuple[float, Any]:
    began_s = time.process_time()
    done = work()
    return time.process_time() - began_s, done


@dataclass(frozen=True)
class ClusterRow:
    """One cluster's rounds, all turns of it; seconds are medians over rounds."""

    share: str
    rounds: int
    steps: int  # certified
    checks: int
    worker_ms_a_step: float  # CPU
    daemon_ms_a_round: float  # of one node
    overhead: float | None  # None: nothing to compare with
    trained_s: float  # from a round's start until its slowest node stops
    phases_s: dict[str, float]


def job_text(share: Fraction, rounds: int, steps: int) -> str:
    return (
        f"name: check-overhead\n"
        f"inner: {{warmup_steps: 0}}\n"
        f"evaluation: {{windows: 8}}\n"
        f"rounds: {{inner_steps_max: {steps}, window_ms: 60000}}\n"
        f"spot_checks: {{share: [{share.numerator}, {share.denominator}]}}\n"
        f"end: {{rounds: {rounds + WARM_ROUNDS}}}\n"
    )


class Turns:
    """What the clusters of one share came to, turn by turn."""

    def __init__(self, share: Fraction, round_steps: int) -> None:
        self._share = share
        self._round_steps = round_steps
        self._timings: list[dict[str, float]] = []
        self._trained_s: list[float] = []
        self._cpu_s: dict[str, float] = defaultdict(float)
        self._steps = self._checks = 0

    def take(self, rounds: int, say: Callable[[str], None]) -> None:
        """One turn: a cluster from its start to its end."""
        text = job_text(self._share, rounds, self._round_steps)
        job = config_file.load("check_overhead", text, Job).value
        with tempfile.TemporaryDirectory() as place:
            cluster = make_cluster(Path(place), job, NODES)
            keep_canaries(Path(place), cluster.genesis)
            said = run_cluster(cluster, rounds + WARM_ROUNDS, say)
            logs = [events_of(daemon.directory) for daemon in cluster.daemons]
        self._timings += timings_of([moments(log, NODES) for log in logs], rounds)
        measured = range(WARM_ROUNDS + 1, WARM_ROUNDS + rounds + 1)
        self._trained_s += [slowest_s(logs, number) for number in measured]
        for event in (event for log in logs for event in log if event.get("round") in measured):
            self._checks += event["name"] == "segment_checked"
            self._steps += event["steps"] if event["name"] == "update_sealed" else 0
        for name, each_s in said.cpu_s_per_round.items():
            self._cpu_s[name] += each_s * rounds * NODES

    def row(self, without: ClusterRow | None = None) -> ClusterRow:
        phases = {
            name: statistics.median([timing[name] for timing in self._timings])
            for name in (*PHASES, "sync", "publish")
        }
        node_rounds = len(self._trained_s) * NODES
        worker_ms = 1e3 * self._cpu_s["worker"] / self._steps
        daemon_ms = 1e3 * self._cpu_s["daemon"] / node_rounds
        overhead = None
        if without is not None:
            steps = without.steps / (without.rounds * NODES)
            more_ms = (worker_ms - without.worker_ms_a_step) * steps
            more_ms += daemon_ms - without.daemon_ms_a_round
            overhead = more_ms / (without.worker_ms_a_step * steps)
        return ClusterRow(
            share=str(self._share),
            rounds=len(self._trained_s),
            steps=self._steps,
            checks=self._checks,
            worker_ms_a_step=worker_ms,
            daemon_ms_a_round=daemon_ms,
            overhead=overhead,
            trained_s=statistics.median(self._trained_s),
            phases_s=phases,
        )


def keep_canaries(place: Path, made: Genesis) -> None:
    """In each node's work store, as if it had taken its canary steps before."""
    directories = [DataDirectory(root) for root in place.glob("node-*")]
    torch.set_num_threads(1)
    core = open_core(
        *(training_job(made, directories[0], NodeConfig()), torch.device("cpu"), place / "cache"),
        time.perf_counter,
    )
    calibration = Calibration(AUTHOR, (1, 1), tuple, int)
    for step in range(CANARY_STEPS):
        calibration.note_own(core.canary(step))
    for directory in directories:
        records = BlobDirectory(directory.work).records
        records.put_record(KIND, NAME, calibration.encode())


def slowest_s(logs: list[list[Event]], number: int) -> float:
    """From the first node's start of the round until the last one has trained."""
    started, trained = [], []
    for event in (event for log in logs for event in log if event.get("round") == number):
        if event["name"] == "round_started":
            started.append(event["ts"])
        elif event["name"] == "update_sealed":
            trained.append(event["ts"] - event["seal_s"])
    return max(trained) - min(started) if started and trained else 0.0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def clusters(share: Fraction, rounds: int, turns: int, round_steps: int) -> list[ClusterRow]:
    shares = dict.fromkeys((Fraction(0), share, Fraction(1)))
    of_shares = [Turns(each, round_steps) for each in shares]
    for turn in range(turns):
        for one in of_shares if turn % 2 == 0 else reversed(of_shares):
            one.take(rounds, say)
            say(str(one.row()))  # so far: a run of many turns may be cut short
    without = of_shares[0].row()
    return [without, *(one.row(without) for one in of_shares[1:])]


def workers(options: argparse.Namespace) -> list[WorkerRow]:
    torch.set_num_threads(1)
    rows = []
    for name in options.models:
        with tempfile.TemporaryDirectory() as place:
            author = Author(name, Path(place))
            rows += [
                worker_row(name, steps, segments, options.share, options.repeat, author)
                for steps, segments in product(options.steps, options.segments)
            ]
    return rows


def show(of_workers: list[WorkerRow], of_clusters: list[ClusterRow]) -> None:
    if of_workers:
        print(f"{'worker, CPU s':16}{'parameters':>11}{'steps':>6}{'segments':>9}", end="")
        print(f"{'trains':>8}", end="")
        print(f"{'boundaries':>12}{'check':>8}{'overhead':>10}")
    for row in of_workers:
        print(f"{row.model:16}{row.parameters:11,}{row.steps:6}{row.segments:9}", end="")
        print(f"{row.training_s:8.3f}", end="")
        print(f"{row.boundaries_s:12.4f}{row.check_s:8.3f}{100 * row.overhead:9.2f}%")
    names = list(of_clusters[0].phases_s) if of_clusters else []
    if of_clusters:
        print(f"{'share':6}{'rounds':>7}{'checks':>7}{'worker':>8}{'daemon':>8}", end="")
        print(f"{'overhead':>10}{'trained':>9}" + "".join(f"{name:>10}" for name in names))
    for line in of_clusters:
        print(f"{line.share:6}{line.rounds:7}{line.checks:7}{line.worker_ms_a_step:8.2f}", end="")
        told = "" if line.overhead is None else f"{100 * line.overhead:.1f} %"
        print(f"{line.daemon_ms_a_round:8.1f}{told:>10}{line.trained_s:9.3f}", end="")
        print("".join(f"{line.phases_s[name]:10.3f}" for name in names))
    if of_clusters:
        print("CPU ms a certified step, and a round; seconds of wall time, medians over rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=("worker", "cluster", []), default=[])
    parser.add_argument("--share", type=Fraction, default=Fraction(1, 10))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["byte_gpt 96x3"])
    parser.add_argument("--steps", nargs="+", type=int, default=[STEPS], help="of a round")
    parser.add_argument("--segments", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=6, help="of each turn of a cluster")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--round-steps", type=int, default=96, help="at most, of a cluster")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    parts = options.parts or ["worker", "cluster"]
    of_workers = workers(options) if "worker" in parts else []
    of_clusters = []
    if "cluster" in parts:
        turns = options.rounds, options.turns, options.round_steps
        of_clusters = clusters(options.share, *turns)
    if options.json:
        rows = {"worker": [asdict(row) for row in of_workers]}
        rows["cluster"] = [asdict(row) for row in of_clusters]
        print(json.dumps({"schema_version": 1, **rows}))
    else:
        show(of_workers, of_clusters)


if __name__ == "__main__":
    main()
