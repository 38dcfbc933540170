"""Pieces of training and merging that a volunteer repeats, from their bytes to their result.

The same file computes for the daemon and in a browser, and so imports numpy and `recompute` alone.
What lies in parameters and blobs is told in docs/volunteers.md; everything there is little-endian.
A result is a list of integers and bytes. It is empty where something is not finite or does not fit.

Legend: D parameters, N contributions, C sampled coordinates, B rows of a batch.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daa_node.spot_checks import recompute
from daa_node.spot_checks.recompute import Inner, Matmul, Model, NotFinite, State

INT32, INT64, FP32 = np.dtype("<i4"), np.dtype("<i8"), np.dtype("<f4")
FLOAT64 = struct.Struct(">d")
GRID = 2.0**-24
WEIGHT_TOTAL_MAX = 1 << 20  # as daa_node.updates.aggregation.mean has it
SHIFT_MAX = 24

Digest = Callable[[bytes], bytes]  # BLAKE3


def result_of(
    kind: str,
    parameters: Sequence[Any],
    blobs: Sequence[bytes],
    digest: Digest,
    matmul: Matmul = recompute.sequential_matmul,
) -> list[int | bytes]:
    """What honest volunteers answer, all of them the same. Raises KeyError for another kind."""
    try:
        match kind:
            case "slice":
                return list[int | bytes](_slice(parameters, blobs))
            case "loss":
                weights_D = to_float32(np.frombuffer(blobs[0], INT32))
                return [FLOAT64.pack(_gradient(parameters, weights_D, blobs[1:], matmul)[0])]
            case "gradient":
                weights_D = np.frombuffer(blobs[0], FP32)
                loss, gradient_D = _gradient(parameters, weights_D, blobs[1:], matmul)
                return [digest(_fp32_bytes(gradient_D)), FLOAT64.pack(loss)]
            case "segment":
                return _segment(parameters, blobs, digest, matmul)
            case _:
                raise KeyError(kind)
    except (NotFinite, ValueError):
        return []


def to_float32(weights_D: NDArray[np.int32]) -> recompute.Array:
    """Grid weights as numbers: `w * 2^-24`, rounded once to fp32."""
    return (weights_D.astype(np.float64) * GRID).astype(np.float32)


def model_of(words: Sequence[Any]) -> Model:
    """`[kind, depth, heads, [[name, [sizes]], ...]]`."""
    kind, depth, heads, tensors = words
    return Model(kind, depth, heads, tuple((name, tuple(shape)) for name, shape in tensors))


def model_words(model: Model) -> list[Any]:
    tensors = [[name, list(shape)] for name, shape in model.tensors]
    return [model.kind, model.depth, model.heads, tensors]


def inner_of(words: Sequence[Any]) -> Inner:
    """Floats as 8 big-endian bytes, counts as integers, in the order of Inner's fields."""
    return Inner(*(FLOAT64.unpack(w)[0] if isinstance(w, bytes) else w for w in words))


def inner_words(inner: Inner) -> list[int | bytes]:
    return [
        FLOAT64.pack(inner.lr),
        FLOAT64.pack(inner.lr_final_fraction),
        inner.warmup_steps,
        inner.total_steps,
        FLOAT64.pack(inner.weight_decay),
        FLOAT64.pack(inner.beta1),
        FLOAT64.pack(inner.beta2),
        FLOAT64.pack(inner.grad_clip),
    ]


def merged(
    rule: str, f_agg: int, weights_N: Sequence[int], updates_NC: NDArray[np.int32]
) -> list[int]:
    """Each coordinate as the rule makes it, in integers of any size: the slow, plain twin."""
    return [
        _merged_one(rule, f_agg, weights_N, [int(value) for value in column_N])
        for column_N in updates_NC.T
    ]


def _slice(parameters: Sequence[Any], blobs: Sequence[bytes]) -> list[int]:
    rule, f_agg, weights_N, shifts_C = parameters
    *updates, aggregate = (np.frombuffer(blob, INT32) for blob in blobs)
    if len(weights_N) != len(updates) or not all(0 <= s <= SHIFT_MAX for s in shifts_C):
        raise ValueError("a weight for each contribution, a shift for each coordinate")
    found_C = merged(rule, f_agg, weights_N, np.stack(updates))
    return [
        int((value + ((1 << shift) >> 1)) >> shift << shift == int(claimed))
        for value, shift, claimed in zip(found_C, shifts_C, aggregate, strict=True)
    ]


def _merged_one(rule: str, f_agg: int, weights_N: Sequence[int], column_N: list[int]) -> int:
    if rule == "trimmed_mean":
        kept = sorted(column_N)[f_agg : len(column_N) - f_agg]
        weights_N = [1] * len(kept)
    elif rule == "mean":
        kept, weights_N = column_N, _scaled(weights_N)
    else:
        raise ValueError(f"no rule is named {rule!r}")
    total = sum(weights_N)
    if total < 1:
        raise ValueError("nothing has weight")
    summed = sum(weight * value for weight, value in zip(weights_N, kept, strict=True))
    return (2 * summed + total) // (2 * total)


def _scaled(weights_N: Sequence[int]) -> list[int]:
    """Shrunk in proportion if their sum is too large; nobody who has weight loses all of it."""
    total = sum(weights_N)
    if total <= WEIGHT_TOTAL_MAX:
        return list(weights_N)
    room = WEIGHT_TOTAL_MAX - len(weights_N)
    return [max(1, weight * room // total) if weight else 0 for weight in weights_N]


def _gradient(
    parameters: Sequence[Any], weights_D: recompute.Array, batch: Sequence[bytes], matmul: Matmul
) -> tuple[float, recompute.Array]:
    words, rows = parameters
    model = model_of(words)
    inputs, targets = _batch(model, rows, *batch)
    return recompute.loss_and_gradient(model, weights_D, inputs, targets, matmul)


def _segment(
    parameters: Sequence[Any], blobs: Sequence[bytes], digest: Digest, matmul: Matmul
) -> list[int | bytes]:
    words, inner_words_, schedule_step, steps, rows = parameters
    model, inner = model_of(words), inner_of(inner_words_)
    start, claimed = (_state(blob, model.parameter_count) for blob in blobs[:2])
    inputs, targets = _batch(model, steps * rows, *blobs[2:])
    state = start
    for step in range(steps):
        at = slice(step * rows, (step + 1) * rows)
        batch = recompute.Batch(inputs[at], targets[at])
        state = recompute.step(model, inner, state, batch, schedule_step + step, matmul)
    vectors = ("weights_D", "first_D", "second_D")
    distances = (
        recompute.distance(getattr(state, name), getattr(claimed, name), getattr(start, name))
        for name in vectors
    )
    end = b"".join(_fp32_bytes(getattr(state, name)) for name in vectors)
    steps_bytes = np.array([state.adam_steps], INT64).tobytes()
    return [digest(end + steps_bytes), *map(FLOAT64.pack, distances)]


def _state(blob: bytes, parameter_count: int) -> State:
    vectors = np.frombuffer(blob[: -INT64.itemsize], FP32).reshape(3, parameter_count)
    (adam_steps,) = np.frombuffer(blob[-INT64.itemsize :], INT64)
    return State(vectors[0], vectors[1], vectors[2], int(adam_steps))


def _batch(
    model: Model, rows: int, inputs: bytes, targets: bytes
) -> tuple[NDArray[Any], NDArray[Any]]:
    dtype = INT32 if model.kind == "byte_gpt" else FP32
    return (
        np.frombuffer(inputs, dtype).reshape(rows, -1),
        np.frombuffer(targets, INT32).reshape(rows, -1),
    )


def _fp32_bytes(values_D: recompute.Array) -> bytes:
    return values_D.astype(FP32, copy=False).tobytes()
