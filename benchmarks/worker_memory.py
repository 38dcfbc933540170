"""What a worker with one device takes of memory and disk in each of its works: bytes a parameter.

    python -m benchmarks.worker_memory [--parameters 33554432] [--optimiser-in memory|files]
        [--base BF16|F32] [--directory DIR] [--json]

One process on the CPU goes through what a worker does, with a model whose step is short: a byte
GPT of two tokens. Of each work the peak of resident memory beside what torch and numpy took before
it, from the kernel's own high-water mark; mapped files are in it, which the kernel may write out
and drop where memory is short. What is anonymous it cannot drop: its peak is of a look each 2 ms.
With --base it is a Llama of transformers instead, frozen in a file of that dtype, with low-rank
adapters of rank 8 beside it and windows of 64 tokens: bytes a parameter of the base.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.memory_looks import Looking, memory_of
from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.seams import StateRef, TrainOrder
from daa_node.tensors import open_grid_vector, reuse_grid_vector
from daa_node.training import inner_state
from daa_node.training.base_files import digests_of
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.core import open_core
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.module import Opened
from daa_node.training.models.opening import open_model
from daa_node.training.module_probe import probe
from daa_node.training.module_source import NO_MODULES
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
        seen = [0]  # of what is anonymous, the most
        with Looking(lambda: seen.append(max(seen.pop(), _status("RssAnon"))), LOOK_S):
            act()
        wall_s = time.perf_counter() - began
        peak, kept = _status("VmHWM") - self._idle, _status("RssAnon") - self._idle_anonymous
        anonymous = max(seen[0] - self._idle_anonymous, kept)
        row: Row = {
            "work": name,
            "peak": round(peak / self._parameters, 1),
            "anonymous_peak": round(anonymous / self._parameters, 1),
            "anonymous_afterwards": round(kept / self._parameters, 1),
            "wall_s": round(wall_s, 1),
        }
        self.rows.append(row)


def _status(name: str) -> int:
    return memory_of(os.getpid())[name]


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


def make_base(parameters: int, directory: Path, dtype: str) -> None:
    """Layers of a width of 1,024 below a vocabulary of 8,192; job.json is what trains adapters."""
    folder = directory / "base"
    import transformers

    shape = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 8}
    layers = max(1, round((parameters - 2 * 8192 * 1024) / (4 * 1024**2 + 3 * 1024 * 2816)))
    config = {"model_type": "llama", "vocab_size": 8192, "num_hidden_layers": layers, **shape}
    kind = {"BF16": torch.bfloat16, "F32": torch.float32}[dtype]
    library: Any = transformers
    settings = library.AutoConfig.for_model(**config)
    library.AutoModelForCausalLM.from_config(settings, dtype=kind).save_pretrained(folder)
    lora = {"lora": {"rank": 8, "alpha": 16, "targets": ["q_proj", "v_proj"]}}
    base = {"path": folder, "files": digests_of(folder)}
    said = {"kind": "hf_causal_lm", "base": base, "trainable": lora, "context": 64}
    job = TrainingJob(model=ModelConfig.model_validate(said), inner=InnerConfig(batch_size=1))
    found = probe(job, NO_MODULES, is_checked=True)
    job = job.model_copy(update={"model": job.model.model_copy(update={"built": found})})
    (directory / "job.json").write_text(job.model_dump_json())


def measure_base(parameters: int, directory: Path, dtype: str) -> list[Row]:
    """In a process that has made nothing: what is freed there would be taken again, unseen."""
    maker = multiprocessing.get_context("spawn").Process(
        target=make_base, args=(parameters, directory, dtype)
    )
    maker.start()
    maker.join()
    job = TrainingJob.model_validate_json((directory / "job.json").read_text())
    assert job.model.built is not None
    count = job.model.built.frozen or 0
    for library in ("transformers.models.llama.modeling_llama", "peft"):
        import_module(library)
    torch.zeros(1).add(1)
    opened: list[Opened] = []
    told = Measured(count)
    told.work("open", lambda: opened.append(open_model(job.model, 0, NO_MODULES)))
    tokens_BT = torch.arange(64).view(1, 64)

    def step() -> None:
        loss: torch.Tensor = opened[0].module(tokens_BT, tokens_BT + 1)
        loss.backward()  # type: ignore[no-untyped-call]

    told.work("a loss and its gradient", step)
    told.work("again", step)
    told.rows.append({"work": "base", "parameters": count, "dtype": dtype})
    return told.rows


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--parameters", type=int, default=2**25)
    arguments.add_argument("--directory", type=Path, help="for 44 bytes a parameter; else /tmp")
    arguments.add_argument("--optimiser-in", choices=("memory", "files"), default="memory")
    arguments.add_argument("--base", choices=("BF16", "F32"), help="a frozen one, and adapters")
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        if given.base is None:
            rows = measure(given.parameters, Path(directory), given.optimiser_in == "files")
        else:
            rows = measure_base(given.parameters, Path(directory), given.base)
    if given.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    print(f"(of {os.cpu_count()} cores, one thread)")


if __name__ == "__main__":
    main()
