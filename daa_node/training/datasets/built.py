"""A data set that somebody brings as code: `package.module:build`, under the same face as files.

Its contract: `build(**arguments)` returns an object with `train_count` and `heldout_count`, and
with `train(indices)` and `heldout(indices)`, which return (inputs, targets), arrays or tensors with
a row for each index. An index gives the same row every time and everywhere: which indices a step
takes follows from seed, round, contributor and step, so nothing has to be remembered over a
restart, and whoever checks a step sees what its author saw. See docs/data.md.
"""

from collections.abc import Callable
from typing import Any, assert_never

import numpy as np

from daa_node.errors import TrainerFailed, UserError
from daa_node.tensors import Int64Array
from daa_node.training.data_config import DataConfig
from daa_node.training.datasets.examples import AnyArray, Batch
from daa_node.training.model_config import ModelConfig
from daa_node.training.module_source import ModuleAccess, find_as_agreed, find_source, load_build

COUNT_MAX = 2**62
WHAT = "dataset"  # in what an operator is told


class BuiltExamples:
    """Examples of somebody's object. Whatever it raises, or gives that fits not, TrainerFailed."""

    def __init__(self, path: str, dataset: Any, model: ModelConfig, tokens_each: int) -> None:
        """Raises UserError for what is no data set."""
        self._path = path
        self._dataset = dataset
        self._model = model
        self.tokens_each = tokens_each
        self.train_count = self._count("train_count")
        self.heldout_count = self._count("heldout_count")
        for side in ("train", "heldout"):
            if not callable(getattr(dataset, side, None)):
                raise UserError(f"the {WHAT} {path} has no method {side}(indices)")

    def train(self, indices_B: Int64Array) -> Batch:
        return self._batch("train", indices_B)

    def heldout(self, indices_B: Int64Array) -> Batch:
        return self._batch("heldout", indices_B)

    def _count(self, name: str) -> int:
        count = getattr(self._dataset, name, None)
        if not isinstance(count, int | np.integer) or not 0 < count <= COUNT_MAX:
            raise UserError(
                f"the {WHAT} {self._path}: {name} is {str(count)[:80]}, not a number of examples "
                "from 1 to 2^62"
            )
        return int(count)

    def _batch(self, side: str, indices_B: Int64Array) -> Batch:
        try:
            given = getattr(self._dataset, side)(indices_B.copy())
        except Exception as fault:
            raise TrainerFailed(
                f"the {WHAT} {self._path}: {type(fault).__name__}: {fault}"
            ) from fault
        try:
            inputs, targets = (np.asarray(part) for part in given)
        except (TypeError, ValueError, RuntimeError):
            raise self._wrong(side, "no pair of inputs and targets") from None
        for name, part in (("inputs", inputs), ("targets", targets)):
            if part.ndim < 1 or len(part) != len(indices_B):
                raise self._wrong(side, f"{name} of shape {part.shape} for {len(indices_B)} rows")
            if part.dtype.kind not in "iufb":
                raise self._wrong(side, f"{name} of type {part.dtype}")
        if targets.dtype.kind == "f" and self._model.kind != "module":
            raise self._wrong(side, "targets that are no whole numbers")
        inputs = inputs.astype(np.float32 if inputs.dtype.kind == "f" else np.int64, order="C")
        targets = targets.astype(np.float32 if targets.dtype.kind == "f" else np.int64, order="C")
        why = why_unfit(self._model, inputs, targets)
        if why is not None:
            raise self._wrong(side, why)
        return Batch(inputs, targets)

    def _wrong(self, side: str, what: str) -> TrainerFailed:
        return TrainerFailed(f"the {WHAT} {self._path}: {side}(indices) gave {what}")


def why_unfit(model: ModelConfig, inputs: AnyArray, targets: AnyArray) -> str | None:
    """What a model of this package cannot take of a batch; a module says so itself."""
    match model.kind:
        case "byte_gpt" | "hf_causal_lm":
            fits = inputs.ndim == 2 and inputs.shape == targets.shape
            if not fits or not 1 <= inputs.shape[1] <= model.context or inputs.dtype != np.int64:
                return (
                    f"inputs and targets of shapes {inputs.shape} and {targets.shape}, type "
                    f"{inputs.dtype}; the model takes (B, T) tokens, T from 1 to {model.context}"
                )
            lowest, highest, limit = 0, int(max(inputs.max(), targets.max())), model.vocabulary
            lowest = int(min(inputs.min(), targets.min()))
        case "mlp" | "cnn":
            features = model.picture_channels * model.picture_side**2
            if inputs.shape[1:] != (features,) or inputs.dtype != np.float32 or targets.ndim != 1:
                return (
                    f"inputs of shape {inputs.shape}, type {inputs.dtype}, and targets of shape "
                    f"{targets.shape}; the model takes (B, {features}) fractions and (B,) classes"
                )
            lowest, highest, limit = int(targets.min()), int(targets.max()), model.classes
        case "module":
            return None
        case _:
            assert_never(model.kind)
    if lowest < 0 or highest >= limit:
        return f"numbers from {lowest} to {highest}; the model knows 0 to {limit - 1}"
    return None


def build_examples(
    data: DataConfig, model: ModelConfig, access: ModuleAccess, digest: str | None
) -> BuiltExamples:
    """Whose source has that digest; None takes what is there.

    Raises UserError if it may not run here, is another one here, or cannot be built.
    """
    path = data.builder
    assert path is not None, "a data set of this kind has one"
    if digest is None:
        source = find_source(path, access, WHAT)
    else:
        source = find_as_agreed(path, digest, access, WHAT)
    build: Callable[..., Any] = load_build(path, source, access, WHAT)
    try:
        dataset = build(**(data.arguments or {}))
    except (Exception, SystemExit) as fault:
        raise UserError(
            f"the {WHAT} {path} cannot be built: {type(fault).__name__}: {fault}"
        ) from None
    return BuiltExamples(path, dataset, model, data.predictions_each(model))
