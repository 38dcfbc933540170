"""What it costs to have the same bits everywhere: canonical gradients beside torch's, same run.

    python benchmarks/canonical_step.py [--repeat 5] [--json]

The gradient of one batch of a byte GPT of 119k parameters, by the canonical kernels in numpy and
by torch on one thread: CPU milliseconds of either, how many times more the first takes, and by how
much (relative L2) they differ. The least of all repetitions counts.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch

from daa_node.spot_checks.canonical import canonical_model
from daa_node.spot_checks.recompute import loss_and_gradient
from daa_node.tensors import Float32Array, Int64Array
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.byte_gpt import gpt_loss
from daa_node.training.models.parameters import FlatParameters
from daa_node.updates.grid import to_float32

MODEL = ModelConfig(depth=2, width=64, heads=4, context=64)
BATCH_SIZES = (1, 4)


@dataclass(frozen=True)
class Measured:
    batch_size: int
    canonical_cpu_ms: float
    torch_cpu_ms: float
    ratio: float
    relative_l2: float


def least_cpu_ms(work: Callable[[], object], repeat: int) -> float:
    work()
    spent_s = []
    for _ in range(repeat):
        started_s = time.process_time()
        work()
        spent_s.append(time.process_time() - started_s)
    return 1e3 * min(spent_s)


def torch_gradient(
    weights_D: Float32Array, inputs_BT: Int64Array, targets_BT: Int64Array
) -> Float32Array:
    parameters = FlatParameters(MODEL.tensors(), torch.device("cpu"))
    parameters.load(torch.from_numpy(weights_D))
    tokens = torch.from_numpy(inputs_BT), torch.from_numpy(targets_BT)
    gpt_loss(MODEL)(parameters.views, *tokens).backward()  # type: ignore[no-untyped-call]
    return parameters.gradient_D.numpy()


def measure(batch_size: int, repeat: int) -> Measured:
    weights_D = to_float32(genesis_weights(MODEL, 1))
    windows = np.random.default_rng(1).integers(0, 256, (batch_size, MODEL.context + 1))
    inputs_BT, targets_BT = windows[:, :-1], windows[:, 1:]

    def canonical() -> Float32Array:
        return loss_and_gradient(canonical_model(MODEL), weights_D, inputs_BT, targets_BT)[1]

    def by_torch() -> Float32Array:
        return torch_gradient(weights_D, inputs_BT, targets_BT)

    ours_ms, torchs_ms = least_cpu_ms(canonical, repeat), least_cpu_ms(by_torch, repeat)
    expected_D = by_torch()
    off = float(np.linalg.norm(canonical() - expected_D) / np.linalg.norm(expected_D))
    return Measured(batch_size, ours_ms, torchs_ms, ours_ms / torchs_ms, off)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(size, arguments.repeat) for size in BATCH_SIZES]
    if arguments.json:
        print(json.dumps({"schema_version": 1, "rows": [asdict(row) for row in rows]}))
        return
    print(f"{MODEL.parameter_count()} parameters, windows of {MODEL.context} tokens")
    for row in rows:
        print(
            f"batch {row.batch_size}: canonical {row.canonical_cpu_ms:.1f} CPU ms, "
            f"torch {row.torch_cpu_ms:.1f}: {row.ratio:.1f} times; "
            f"relative L2 {row.relative_l2:.1e}"
        )


if __name__ == "__main__":
    main()
