"""Stands between the page's messages and recompute.py: arrays in, arrays out, a faster product."""

from collections.abc import Callable
from typing import Any

import numpy as np
from pyodide.ffi import run_sync, to_js

from daa_node.spot_checks import pieces, recompute

NUMPY_VERSION = np.__version__
FP32_BYTES = 4


def matmul_by(kernel: Callable[..., None]) -> recompute.Matmul:
    """recompute's Matmul by the WASM kernel, which is given addresses in this very memory."""

    def matmul(a_GMK: recompute.Array, b_GKN: recompute.Array) -> recompute.Array:
        groups, rows, inner = a_GMK.shape
        columns = b_GKN.shape[2]
        if b_GKN.strides[2] != FP32_BYTES:  # the kernel takes four columns with one load
            b_GKN = np.ascontiguousarray(b_GKN)
        sums_GMN = np.zeros((groups, rows, columns), np.float32)
        kernel(
            _address(a_GMK),
            *a_GMK.strides,
            _address(b_GKN),
            *b_GKN.strides[:2],
            _address(sums_GMN),
            groups,
            rows,
            inner,
            columns,
        )
        return sums_GMN

    return matmul


def matmul_by_waiting(product: Callable[..., Any]) -> recompute.Matmul:
    """recompute's Matmul by a function of JavaScript that writes its last argument later."""

    def matmul(a_GMK: recompute.Array, b_GKN: recompute.Array) -> recompute.Array:
        (groups, rows, inner), columns = a_GMK.shape, b_GKN.shape[2]
        sums_GMN = np.zeros((groups, rows, columns), np.float32)
        arrays = np.ascontiguousarray(a_GMK), np.ascontiguousarray(b_GKN), sums_GMN
        run_sync(product(*arrays, groups, rows, inner, columns))
        return sums_GMN

    return matmul


def outcome(message: Any, matmul: recompute.Matmul) -> tuple[recompute.Array, float | None]:
    """The outcome (see protocol.ts) of a task, and its loss. Raises what recompute raises."""
    task = message.to_py()
    model, batch = _model(task["model"]), _batch(task["batch"])
    weights_D = np.asarray(task["weights"])
    if task["kind"] == "gradient":
        loss, gradient_D = recompute.loss_and_gradient(
            model, weights_D, batch.inputs, batch.targets, matmul
        )
        return gradient_D, loss
    state = recompute.State(
        weights_D, np.asarray(task["first"]), np.asarray(task["second"]), task["adamSteps"]
    )
    inner = recompute.Inner(**task["inner"])
    after = recompute.step(model, inner, state, batch, task["scheduleStep"], matmul)
    return np.concatenate([after.weights_D, after.first_D, after.second_D]), None


def result(piece: Any, digest: Callable[[Any], Any], matmul: recompute.Matmul) -> list[int | bytes]:
    """The result of a piece (see protocol.ts), by digests of JavaScript. Raises as pieces does."""
    parameters = [_plain(value) for value in piece.parameters.to_py()]
    blobs = [blob.to_bytes() for blob in piece.blobs]
    return pieces.result_of(
        piece.kind, parameters, blobs, lambda payload: digest(to_js(payload)).to_bytes(), matmul
    )


def _plain(value: Any) -> Any:
    """With bytes where JavaScript has arrays of them."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.tobytes() if isinstance(value, memoryview) else value


def _model(model: dict[str, Any]) -> recompute.Model:
    tensors = tuple((name, tuple(shape)) for name, shape in model["tensors"])
    return recompute.Model(model["kind"], model["depth"], model["heads"], tensors)


def _batch(batch: dict[str, Any]) -> recompute.Batch:
    inputs = np.asarray(batch["inputs"]).reshape(batch["rows"], -1)
    return recompute.Batch(inputs, np.asarray(batch["targets"]))


def _address(array: recompute.Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
