"""Work for the canonical kernels out of integers alone, and the hashes of what comes of it.

    python golden_cases.py PATH/recompute.py

prints the hashes as JSON with any Python that has numpy; elsewhere, `hashes(recompute, matmul)` on
the loaded module. They must be those of tests/golden/recompute.json.
"""

import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Prepare = Callable[[NDArray[Any]], NDArray[Any]]  # the same numbers, laid out otherwise

GPT = {"depth": 2, "width": 20, "heads": 2, "context": 24, "vocabulary": 256}
INNER = {
    "lr": 4e-3,
    "lr_final_fraction": 0.1,
    "warmup_steps": 20,
    "total_steps": 400,
    "weight_decay": 0.1,
    "beta1": 0.9,
    "beta2": 0.95,
    "grad_clip": 0.25,
}


@cache
def draws(seed: int, count: int) -> NDArray[np.int64]:
    """Integers of 24 bits from a linear congruential generator modulo 2^64."""
    state, values = seed, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append(state >> 40)
    return np.array(values, np.int64)


def floats(seed: int, shape: tuple[int, ...], exponent: int = 0) -> Array:
    """fp32 in [-2^exponent, 2^exponent), exactly what the integers say."""
    integers = draws(seed, int(np.prod(shape))).reshape(shape) - 2**23
    return integers.astype(np.float32) * np.float32(2.0 ** (exponent - 23))


def byte_gpt(recompute: ModuleType) -> Any:
    width, depth = GPT["width"], GPT["depth"]
    shapes = {"embedding": (GPT["vocabulary"], width), "position": (GPT["context"], width)}
    for layer in range(depth):
        shapes |= {
            f"blocks.{layer}.attention.qkv": (width, 3 * width),
            f"blocks.{layer}.attention.out": (width, width),
            f"blocks.{layer}.mlp.up": (width, 4 * width),
            f"blocks.{layer}.mlp.down": (4 * width, width),
        }
    return recompute.Model("byte_gpt", depth, GPT["heads"], tuple(shapes.items()))


def mlp(recompute: ModuleType) -> Any:
    shapes = {
        "layers.0.weight": (64, 40),
        "layers.0.bias": (40,),
        "layers.1.weight": (40, 40),
        "layers.1.bias": (40,),
        "head.weight": (40, 10),
        "head.bias": (10,),
    }
    return recompute.Model("mlp", 2, 1, tuple(shapes.items()))


def cnn(recompute: ModuleType) -> Any:
    shapes = {
        "layers.0.weight": (9, 8),
        "layers.0.bias": (8,),
        "layers.1.weight": (72, 16),
        "layers.1.bias": (16,),
        "head.weight": (64, 10),  # 8 x 8 pixels, 4 x 4, 2 x 2
        "head.bias": (10,),
    }
    return recompute.Model("cnn", 2, 1, tuple(shapes.items()))


def gpt_batch(recompute: ModuleType, seed: int, prepare: Prepare) -> Any:
    tokens = draws(seed, 3 * 24).reshape(3, 24) % 256
    return recompute.Batch(prepare(tokens[:, :-1]), prepare(tokens[:, 1:]))


def picture_batch(recompute: ModuleType, seed: int, prepare: Prepare) -> Any:
    return recompute.Batch(prepare(floats(seed, (19, 64))), prepare(draws(seed, 19) % 10))


def kernels(recompute: ModuleType, matmul: Any) -> Iterator[tuple[str, bytes]]:
    a, b = floats(1, (2, 37, 53)), floats(2, (2, 53, 29))
    yield "matmul", matmul(a, b).tobytes()
    tiny = np.float32(2.0**-70)
    yield "matmul of subnormals", matmul(a * tiny, b * tiny).tobytes()
    yield "sums", recompute.fold_sum(floats(3, (7, 1001))).tobytes()
    yield "powers", recompute.exp(-np.abs(floats(4, (5000,), 6))).tobytes()
    yield "logarithms", recompute.log(np.abs(floats(5, (5000,), 9)) + np.float32(0.5)).tobytes()
    rates = [recompute.learning_rate(recompute.Inner(**INNER), step) for step in range(450)]
    yield "learning rates", np.array(rates, "<f8").tobytes()


def hashes(
    recompute: ModuleType, matmul: Any = None, prepare: Prepare = lambda array: array
) -> dict[str, str]:
    """sha256 of each case's numbers, little-endian, by the case's name."""
    matmul = matmul or recompute.sequential_matmul
    made = dict(kernels(recompute, matmul))
    inner = recompute.Inner(**INNER)
    for name, model, batch_of in (
        ("byte_gpt", byte_gpt(recompute), gpt_batch),
        ("mlp", mlp(recompute), picture_batch),
        ("cnn", cnn(recompute), picture_batch),
    ):
        size = model.parameter_count
        start_D = floats(6, (size,), -3)
        batch = batch_of(recompute, 7, prepare)
        loss, gradient_D = recompute.loss_and_gradient(
            model, prepare(start_D), batch.inputs, batch.targets, matmul
        )
        made[f"{name} loss"] = np.array([loss], "<f4").tobytes()
        made[f"{name} gradient"] = gradient_D.astype("<f4").tobytes()
        first_D, second_D = floats(8, (size,), -10), floats(9, (size,), -10)
        state = recompute.State(
            prepare(start_D), prepare(first_D), prepare(second_D * second_D), 41
        )
        for number in range(3):
            batch = batch_of(recompute, 10 + number, prepare)
            state = recompute.step(model, inner, state, batch, 50 + number, matmul)
        for part in ("weights_D", "first_D", "second_D"):
            made[f"{name} {part} after 3 steps"] = getattr(state, part).astype("<f4").tobytes()
        off = recompute.distance(state.weights_D, prepare(start_D), prepare(second_D))
        made[f"{name} distance"] = np.array([off], "<f8").tobytes()
    return {name: hashlib.sha256(numbers).hexdigest() for name, numbers in made.items()}


def load(path: Path) -> ModuleType:
    """The file alone, as a browser has it."""
    spec = importlib.util.spec_from_file_location("recompute", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["recompute"] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    print(json.dumps(hashes(load(Path(sys.argv[1]))), indent=2))
