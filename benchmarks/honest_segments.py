"""How far apart honest nodes come out when one trains again what another has trained.

    python benchmarks/honest_segments.py [--segments 400] [--seed 1] [--jobs 1] [--json]

Authors train real rounds from round to round (the author's own weights are the next base, moments
and residual go on) and show their boundaries; a checker trains each segment again, as a node does
whom the lot gives it. The two differ in all that may differ between honest nodes:

    machine     three processes that may use other instructions: AVX-512, AVX2, and neither; and,
                where torch finds one, a fourth that trains on a GPU
    threads     1 to 4
    oneDNN      with it and without
    order       of a batch's examples, which is the order in which a gradient is summed
    determinism asked of torch, or not

One life in OPENED_ONE_IN is opened step by step, and each of its steps taken again by the canonical
kernels in numpy, as whoever judges a dispute does.

Jobs are byte GPTs, perceptrons and a convolution, six sizes in all, three codecs, with and without
error feedback and clipping, early in the schedule and late. Printed is the largest of a check's
distances (daa_node.training.segment_check), by what differed, and how many are beyond the tolerance
of the genesis: nobody may be. Ends with 1 if anybody is.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.seams import SegmentCheck, SegmentOrder, StateRef, TrainOrder
from daa_node.spot_checks.config import SpotChecksConfig
from daa_node.spot_checks.findings import difference, distance_of
from daa_node.tensors import Int32Array, Int64Array
from daa_node.training.boundaries import Boundary, boundary_steps
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.data_config import DataConfig
from daa_node.training.datasets.examples import Batch, Examples
from daa_node.training.model_config import ModelConfig
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.grid import GRID_ONE

TOLERANCE = SpotChecksConfig().tolerance
MACHINES: dict[str, dict[str, str]] = {  # instructions that a process may use
    "avx512": {},
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_CBWR": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX",
    },
    "plain": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX",
    },
}
GPU = "gpu"  # one more machine, where there is one
THREADS_MAX = 4
OPENED_ONE_IN = 6  # lives, of models that the canonical kernels can afford
OPENED_PARAMETERS_MAX = 120_000
ROUNDS = 6  # of one author's life
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 40)  # of one round
SEGMENTS_MAX = 4
TOTAL_STEPS = 400  # of the schedule: lives begin anywhere in it
PERCENTILES = (50, 90, 99, 99.9, 100)
WORST = 5  # that are told of one by one
NO_ROOT = BlobRoot(bytes(32))
NOWHERE = StateRef(NO_ROOT, NO_ROOT)

DIGITS = DataConfig(kind="digits")
MODELS: tuple[tuple[int, ModelConfig, DataConfig, int], ...] = (  # of how many, data, batch
    (8, ModelConfig(kind="mlp", depth=1, width=32), DIGITS, 32),
    (8, ModelConfig(depth=1, width=16, heads=2, context=16), DataConfig(), 4),
    (3, ModelConfig(kind="mlp", depth=2, width=256), DIGITS, 64),
    (2, ModelConfig(depth=2, width=64, heads=4, context=64), DataConfig(), 4),
    (2, ModelConfig(kind="cnn", depth=2, width=8, picture_side=8), DIGITS, 16),
    (1, ModelConfig(depth=3, width=96, heads=4, context=64), DataConfig(), 4),  # the demo's
)


@dataclass(frozen=True)
class Settings:
    """What one node computes with, beside its machine."""

    threads: int
    onednn: bool
    deterministic: bool
    shuffled: bool  # the examples of a batch


@dataclass(frozen=True)
class Life:
    """A job, and an author's rounds of it."""

    job: TrainingJob
    author: NodeId
    first_step: int
    steps: int
    segment_steps: int
    codec: str
    settings: tuple[Settings, ...]  # of each round
    opened: bool  # step by step, for the canonical kernels


@dataclass(frozen=True)
class Shown:
    """A round as its author shows it."""

    order: TrainOrder
    base_D: Int32Array
    boundaries: list[Boundary]
    blob: Any


@dataclass(frozen=True)
class Checked:
    """One segment, and how far off it was for another node."""

    model: str
    machines: tuple[str, str]  # author's, checker's
    author: Settings
    checker: Settings
    steps: int
    found: SegmentCheck

    opened: bool

    @property
    def distance(self) -> float:
        return distance_of(self.found)

    @property
    def is_sound(self) -> bool:
        return difference(self.found, TOLERANCE[0] / TOLERANCE[1]) is None


class _Shuffled:
    """The same batches, their examples in another order."""

    def __init__(self, inner: Examples) -> None:
        self._inner = inner
        self.on = False
        self.train_count, self.heldout_count = inner.train_count, inner.heldout_count
        self.tokens_each, self.heldout = inner.tokens_each, inner.heldout

    def train(self, indices_B: Int64Array) -> Batch:
        return self._inner.train(indices_B[::-1] if self.on else indices_B)


class Machine:
    """In its process: what trains, and trains again."""

    def __init__(self, cache: Path, device: str) -> None:
        self._cache, self._device = cache, device
        self._examples: dict[str, _Shuffled] = {}

    def live(self, life: Life) -> list[Shown]:
        core, shown = self._core(life.job), list[Shown]()
        base_D, first_step = self._first_base(life), life.first_step
        for index, settings in enumerate(life.settings):
            self._set(settings, life.job)
            order = TrainOrder(
                *(NOWHERE, _seed(index), index, life.author, life.steps, 1e9, life.codec),
                *(first_step, index - 1),
                segment_steps=life.segment_steps,
            )
            boundaries: list[Boundary] = []
            sealed = core.train_and_seal(
                order, base_D, on_boundary=lambda b, kept=boundaries: kept.append(_own(b))
            )
            boundaries.append(_own(sealed.end))
            shown.append(Shown(order, base_D, boundaries, sealed.blob))
            base_D = np.rint(boundaries[-1].weights_D.astype(np.float64) * GRID_ONE)
            base_D = base_D.astype(np.int32)
            first_step += life.steps
        return shown

    def check(self, life: Life, shown: Shown, segment: int, settings: Settings) -> SegmentCheck:
        from daa_node.training.sealed_claims import Claim, ClaimedSeal

        self._set(settings, life.job)
        places = boundary_steps(life.steps, life.segment_steps)
        begun, ended, order = places[segment], places[segment + 1], shown.order
        asked = SegmentOrder(
            *(order.seed, order.round, order.author, order.first_step, begun, ended - begun),
            *(NO_ROOT, NO_ROOT, None),
        )
        start, end = shown.boundaries[segment], shown.boundaries[segment + 1]
        if life.opened:
            return self._by_kernels(life.job, asked, start, end)
        sealed = ClaimedSeal(shown.base_D, shown.boundaries[-1], shown.blob, life.codec)
        return self._core(life.job).check_segment(asked, Claim(start, end, sealed))

    def _by_kernels(
        self, job: TrainingJob, asked: SegmentOrder, start: Boundary, end: Boundary
    ) -> SegmentCheck:
        from daa_node.spot_checks import recompute
        from daa_node.spot_checks.canonical import canonical_inner, canonical_model
        from daa_node.training.batches import batch_plan

        examples = self._of(job)
        state = recompute.State(start.weights_D, start.first_D, start.second_D, start.adam_steps)
        plan = batch_plan(
            asked.seed, asked.round, asked.author, job.inner.batch_size, examples.train_count
        )
        for taken, indices_B in enumerate(islice(plan, asked.step, asked.step + asked.steps)):
            batch = examples.train(indices_B)
            state = recompute.step(
                canonical_model(job.model),
                canonical_inner(job.inner),
                state,
                recompute.Batch(batch.inputs, batch.targets),
                asked.first_step + asked.step + taken,
            )
        return SegmentCheck(
            weights=recompute.distance(state.weights_D, end.weights_D, start.weights_D),
            first=recompute.distance(state.first_D, end.first_D, start.first_D),
            second=recompute.distance(state.second_D, end.second_D, start.second_D),
            residual=0.0,
            sealed=None,
            steps_agree=end.adam_steps == state.adam_steps,
        )

    def _core(self, job: TrainingJob) -> Any:
        import torch

        from daa_node.training.core import Core

        return Core(job, self._of(job), torch.device(self._device), time.perf_counter)

    def _of(self, job: TrainingJob) -> _Shuffled:
        from daa_node.training.datasets.catalogue import open_examples

        key = f"{job.data} {job.model.context}"
        if key not in self._examples:
            self._examples[key] = _Shuffled(open_examples(job.data, job.model, self._cache))
        return self._examples[key]

    def _first_base(self, life: Life) -> Int32Array:
        from daa_node.training.genesis_state import genesis_weights

        return genesis_weights(life.job.model, life.job.seed)

    def _set(self, settings: Settings, job: TrainingJob) -> None:
        import torch

        from daa_node.training.core import multiply_in_full

        torch.set_num_threads(settings.threads)
        torch.backends.mkldnn.set_flags(settings.onednn)  # type: ignore[no-untyped-call]
        multiply_in_full()
        torch.use_deterministic_algorithms(settings.deterministic)
        self._of(job).on = settings.shuffled


def serve(line: Connection, cache: Path, device: str) -> None:
    """A machine's process: (method, arguments) in, what it returns out, until hung up on."""
    machine = Machine(cache, device)
    while True:
        try:
            name, arguments = line.recv()
        except EOFError:
            return
        line.send(getattr(machine, name)(*arguments))


@contextmanager
def machines(cache: Path) -> Iterator[dict[str, Connection]]:
    """A process for each of MACHINES, and one for a GPU, as long as the block lasts."""
    there = MACHINES | ({GPU: {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}} if has_gpu() else {})
    context, lines = get_context("spawn"), dict[str, Connection]()
    with ExitStack() as stack:
        for name, environment in there.items():
            ours, theirs = context.Pipe()
            device = "cuda" if name == GPU else "cpu"
            process = context.Process(target=serve, args=(theirs, cache, device), daemon=True)
            with _environment({**environment, "OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}):
                process.start()
            theirs.close()
            stack.callback(process.join)
            stack.callback(ours.close)
            lines[name] = ours
        yield lines


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


_SPAWNING = Lock()  # sets of machines are started side by side, and share our environment


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    with _SPAWNING:
        before = dict(os.environ)
        os.environ.update(changes)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def measure(segments: int, seed: int, cache: Path) -> list[Checked]:
    """So many segments, each checked by another node than its author, drawn by `seed`."""
    chance, checked = random.Random(seed), list[Checked]()
    with machines(cache) as lines:

        def ask(machine: str, name: str, *arguments: object) -> Any:
            lines[machine].send((name, arguments))
            return lines[machine].recv()

        while len(checked) < segments:
            life, author = drawn_life(chance), chance.choice(list(lines))
            for shown in ask(author, "live", life):
                for segment in range(len(shown.boundaries) - 1):
                    settings = drawn_settings(chance, checks=not life.opened)
                    machine = chance.choice(list(lines))
                    found = ask(machine, "check", life, shown, segment, settings)
                    by, steps = life.settings[shown.order.round], life.segment_steps
                    name = f"{life.job.model.kind} {life.job.model.parameter_count()}"
                    between = author, machine
                    checked.append(Checked(name, between, by, settings, steps, found, life.opened))
    return checked[:segments]


def drawn_life(chance: random.Random) -> Life:
    weights = [many for many, *_ in MODELS]
    ((_, model, data, batch_size),) = chance.choices(MODELS, weights)
    codec = chance.choice(["int8", "int4", "top_k"])
    updates = UpdatesConfig(
        codec=codec,
        rule="mean",
        f_agg=0,
        error_feedback=codec == "top_k" or chance.random() < 0.7,
        clip_norm=chance.choice([None, 0.05]),
    )
    inner = InnerConfig(
        lr=chance.choice([0.001, 0.006]),
        warmup_steps=chance.choice([0, 20]),
        total_steps=TOTAL_STEPS,
        batch_size=batch_size,
    )
    job = TrainingJob(
        model=model, data=data, inner=inner, updates=updates, seed=chance.getrandbits(32)
    )
    steps, small = chance.choice(STEPS), model.parameter_count() <= OPENED_PARAMETERS_MAX
    opened = small and chance.randrange(OPENED_ONE_IN) == 0
    return Life(
        job=job,
        author=NodeId(chance.randbytes(32)),
        first_step=chance.randrange(TOTAL_STEPS),
        steps=steps,
        segment_steps=1 if opened else -(-steps // chance.randint(1, SEGMENTS_MAX)),
        codec=codec,
        settings=tuple(drawn_settings(chance) for _ in range(ROUNDS)),
        opened=opened,
    )


def drawn_settings(chance: random.Random, checks: bool = False) -> Settings:
    """Of an author, or of a checker, who may take a batch's examples in another order."""
    return Settings(
        threads=chance.randint(1, THREADS_MAX),
        onednn=chance.random() < 0.5,
        deterministic=chance.random() < 0.5,
        shuffled=checks and chance.random() < 0.5,
    )


def _seed(round_: int) -> Digest:
    return Digest(bytes([round_]) * 32)


def _own(boundary: Boundary) -> Boundary:
    """The same in memory of its own."""

    owed_D = boundary.residual_D
    return Boundary(
        boundary.weights_D.copy(),
        boundary.first_D.copy(),
        boundary.second_D.copy(),
        None if owed_D is None else owed_D.copy(),
        boundary.adam_steps,
    )


def grouped(checked: list[Checked]) -> dict[str, list[Checked]]:
    """By what tells them apart; each segment is in several groups."""
    groups: dict[str, list[Checked]] = defaultdict(list)
    for one in checked:
        groups["all"].append(one)
        groups[one.model].append(one)
        if one.opened:
            groups["one step, canonical kernels"].append(one)
            continue
        alike = one.machines[0] == one.machines[1]
        same = alike and replace(one.checker, shuffled=False) == one.author
        groups["same machine" if alike else "another machine"].append(one)
        if not alike:
            groups["a GPU and a CPU" if GPU in one.machines else "two CPUs"].append(one)
        groups["another order" if one.checker.shuffled else "the same order"].append(one)
        if same and not one.checker.shuffled:
            groups["everything the same"].append(one)
    return dict(sorted(groups.items(), key=lambda item: (item[0] != "all", item[0])))


def row_of(checked: list[Checked]) -> dict[str, Any]:
    distances = np.array([one.distance for one in checked])
    return {
        "segments": len(checked),
        "percentiles": [float(np.percentile(distances, p)) for p in PERCENTILES],
        "differing": sum(not one.is_sound for one in checked),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--segments", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="sets of machines at once")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    began_s, each = time.perf_counter(), -(-arguments.segments // arguments.jobs)
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(arguments.jobs) as pool:
        parts = [
            pool.submit(measure, each, arguments.seed * 1000 + job, Path(cache) / str(job))
            for job in range(arguments.jobs)
        ]
        checked = [one for part in parts for one in part.result()][: arguments.segments]
    rows = {name: row_of(some) for name, some in grouped(checked).items()}
    worst = sorted(checked, key=lambda one: one.distance, reverse=True)[:WORST]
    wall_s = round(time.perf_counter() - began_s, 1)
    if arguments.json:
        told = [asdict(one) for one in worst]
        shown = {"schema_version": 1, "tolerance": TOLERANCE, "wall_s": wall_s}
        print(json.dumps({**shown, "rows": rows, "worst": told}))
    else:
        show(rows, worst, wall_s)
    sys.exit(1 if rows["all"]["differing"] else 0)


def show(rows: dict[str, dict[str, Any]], worst: list[Checked], wall_s: float) -> None:
    heads = [f"{p:g} %" for p in PERCENTILES[:-1]] + ["most"]
    print(f"{'distance':32}{'segments':>9}" + "".join(f"{head:>10}" for head in heads) + "  differ")
    for name, row in rows.items():
        numbers = "".join(f"{value:10.1e}" for value in row["percentiles"])
        print(f"{name:32}{row['segments']:9}{numbers}{row['differing']:8}")
    print(f"tolerance {TOLERANCE[0]}/{TOLERANCE[1]}; {wall_s} s; the furthest:")
    for one in worst:
        print(f"  {one.distance:.1e}  {one.model}, {' -> '.join(one.machines)}, {one.steps} steps")
        print(f"    {one.found}\n    author {one.author}\n    checker {one.checker}")


if __name__ == "__main__":
    main()
