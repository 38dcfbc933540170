"""What a worker with one device takes of memory and disk in each of its works: bytes a parameter.

    python benchmarks/worker_memory.py [--parameters 33554432] [--optimiser-in memory|files]
        [--directory DIR] [--json]

One process on the CPU goes through what a worker does, with a model whose step is short: a byte
GPT of two tokens. Of each work the peak of resident memory beside what torch and numpy took before
it, from the kernel's own high-water mark; mapped files are in it, which the kernel may write out
and drop where memory is short. What is anonymous it cannot drop: its peak is of a look each 2 ms.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np
import torch

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.seams import StateRef, TrainOrder
from daa_node.tensors import open_grid_vector, reuse_grid_vector
from daa_node.training import inner_state
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.core import open_core
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.updates.aggregation.mean import Mean
from daa_node.updates.outer_step import (
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
    apply_delta,
)

LOOK_S = 0.002
NOWHERE = StateRef(BlobRoot(bytes(32)), BlobRoot(bytes(32)))
Row = dict[str, object]


class Measured:
    """Rows of (work, peak, anonymous, seconds), the first two in bytes a parameter."""

    def __init__(self, parameters: int) -> None:
        self._parameters = parameters
        self._idle = _status("VmRSS")
        self._idle_anonymous = _status("RssAnon")
        self.rows: list[Row] = []

    def work(self, name: str, act: Callable[[], object]) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
        began = time.perf_counter()
        with _Looks() as looks:
            act()
        wall_s = time.perf_counter() - began
        peak, kept = _status("VmHWM") - self._idle, _status("RssAnon") - self._idle_anonymous
        anonymous = max(looks.peak - self._idle_anonymous, kept)
        row: Row = {
            "work": name,
            "peak": round(peak / self._parameters, 1),
            "anonymous_peak": round(anonymous / self._parameters, 1),
            "anonymous_afterwards": round(kept / self._parameters, 1),
            "wall_s": round(wall_s, 1),
        }
        self.rows.append(row)


class _Looks:
    """The most anonymous memory that was seen between begin and end."""

    def __init__(self) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            self.peak = max(self.peak, _status("RssAnon"))


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def model_of(parameters: int) -> ModelConfig:
    """About so many, in layers of which none is large: a gradient is made a tensor at a time."""
    width = max(2**k for k in range(5, 12) if 12 * 4**k * 8 <= max(parameters, 12 * 4**5 * 8))
    depth = max(1, round(parameters / (12 * width * width)))
    return ModelConfig(width=width, depth=depth, heads=8, context=2)


def measure(parameters: int, directory: Path, in_files: bool) -> list[Row]:
    """Each work once, in the order in which a worker does them."""
    model = model_of(parameters)
    job = TrainingJob(model=model, inner=InnerConfig(batch_size=1))
    count, path = model.parameter_count(), directory / "inner_state"
    states = {
        name: reuse_grid_vector(directory / name, count)
        for name in ("model", "outer", "next_model", "next_outer")
    }
    base = OuterState(states["model"], states["outer"])
    out = OuterState(states["next_model"], states["next_outer"])
    rates = OuterRates(job.updates.outer_lr, job.updates.outer_momentum)
    order = TrainOrder(*(NOWHERE, Digest(bytes(32)), 1, NodeId(bytes(32)), 1, 1e9, "int8", 0, -1))
    torch.zeros(1).add(1)
    told = Measured(count)
    told.work("first weights", lambda: genesis_weights(model, 0, states["model"]))
    cores = []
    told.work(
        "open",
        lambda: cores.append(
            open_core(
                job,
                torch.device("cpu"),
                directory,
                time.perf_counter,
                memories=directory if in_files else None,
            )
        ),
    )
    (core,), sealed = cores, []
    core.forget()
    told.work(
        "train a step and seal",
        lambda: sealed.append(
            core.train_and_seal(order, open_grid_vector(directory / "model", count))
        ),
    )
    update = [Contribution(sealed[0].blob, "int8", 1)]
    delta: list[np.ndarray] = []
    told.work(
        "aggregate and step",
        lambda: delta.append(
            aggregate_and_step(base, update, Mean(), 0, rates, out, job.updates.delta_format)
        ),
    )
    told.work(
        "replay a delta",
        lambda: apply_delta(base, delta[0], rates, out, job.updates.delta_format),
    )
    told.work("evaluate", lambda: core.evaluate(out.weights_D))
    told.work("save", lambda: inner_state.save(path, job.digest(), core.inner_state(), {}))

    def restore() -> None:
        state = inner_state.load(path, job.digest(), count)
        assert state is not None
        core.set_inner_state(state)

    told.work("restore", restore)
    disk = sum(file.stat().st_size for file in directory.iterdir() if file.is_file())
    told.rows.append({"work": "files", "bytes": round(disk / count, 1), "parameters": count})
    return told.rows


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--parameters", type=int, default=2**25)
    arguments.add_argument("--directory", type=Path, help="for 44 bytes a parameter; else /tmp")
    arguments.add_argument("--optimiser-in", choices=("memory", "files"), default="memory")
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        rows = measure(given.parameters, Path(directory), given.optimiser_in == "files")
    if given.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    print(f"(of {os.cpu_count()} cores, one thread)")


if __name__ == "__main__":
    main()
