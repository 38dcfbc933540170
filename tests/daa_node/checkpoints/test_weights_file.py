"""First weights out of a file: on the grid as stated, or one error that names the tensor."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from daa_node.checkpoints.weights_file import PIECE, read_weights
from daa_node.errors import UserError
from daa_node.tensors import TensorSpec

SPECS = (TensorSpec("layer.weight", (2, 3)), TensorSpec("b", ()))
VALUES = torch.tensor([[0.5, -1.0, 127 + 63 / 64], [3.0, 2.0**-24, -0.0]])


Changes = dict[str, torch.Tensor | None]


def write(path: Path, changes: Changes | None = None) -> Path:
    tensors: Changes = {"layer.weight": VALUES, "b": torch.tensor(-2.5), **(changes or {})}
    save_file({name: value for name, value in tensors.items() if value is not None}, path)
    return path


def test_weights_lie_on_the_grid_in_the_models_order(tmp_path: Path) -> None:
    weights_D = read_weights(write(tmp_path / "w"), SPECS)
    largest = 127 * 2**24 + 63 * 2**18
    assert weights_D.tolist() == [2**23, -(2**24), largest, 3 * 2**24, 1, 0, -5 * 2**23]


def test_halves_go_to_the_even_neighbour(tmp_path: Path) -> None:
    halves = torch.tensor([[0.5, 1.5, 2.5], [-0.5, -1.5, 0.75]]) * 2.0**-24
    weights_D = read_weights(write(tmp_path / "w", {"layer.weight": halves}), SPECS)
    assert weights_D[:6].tolist() == [0, 2, 2, 0, -2, 1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floats_are_read_as_what_they_stand_for(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.tensor([[0.3, -1.7, 100.0], [1e-3, -1e-4, 0.0]]).to(dtype)
    weights_D = read_weights(write(tmp_path / "w", {"layer.weight": values}), SPECS)
    exact_D = np.rint(values.double().numpy().reshape(-1) * 2**24)
    assert weights_D[:6].tolist() == exact_D.tolist()


def test_a_tensor_in_many_pieces_comes_whole_and_none_of_them_is_kept(tmp_path: Path) -> None:
    count = 3 * PIECE + 5
    values = torch.arange(count, dtype=torch.float32) / 2**24
    save_file({"b": torch.tensor(1.0), "large": values}, tmp_path / "w")
    specs = (TensorSpec("large", (count,)), TensorSpec("b", ()))
    tracemalloc.start()
    try:
        weights_D = read_weights(tmp_path / "w", specs)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(weights_D, [*range(count), 2**24])
    pieces = 5 * PIECE * 8  # of float64, what stands for one on its way
    assert peak_bytes < weights_D.nbytes + pieces


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"b": None}, r"it lacks b, of shape \[\]\. It takes 2 tensors of 7 numbers"),
        ({"layer.weight": VALUES.T.contiguous()}, r"layer.weight has the shape \[3, 2\], and the"),
        ({"layer.weight": VALUES.int()}, "layer.weight holds I32, and not one of F64"),
        ({"strange": torch.zeros(1)}, "the model has no strange"),
        ({"b": torch.tensor(float("nan"))}, "b holds what is no number, or beyond 128"),
        ({"b": torch.tensor(-128.5)}, "b holds what is no number, or beyond 128"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, changes: Changes, what: str) -> None:
    path = write(tmp_path / "w.safetensors", changes)
    with pytest.raises(UserError, match=what) as refused:
        read_weights(path, SPECS)
    assert str(path) in str(refused.value)


def test_a_file_that_is_too_large_for_the_model_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "w").open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(UserError, match="200000000 bytes, at most 100000064"):
        read_weights(tmp_path / "w", SPECS)


def test_a_file_that_is_none_or_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"no safetensors")
    with pytest.raises(UserError, match="is no safetensors file"):
        read_weights(tmp_path / "w", SPECS)
    with pytest.raises(UserError, match="cannot read .*: No such file"):
        read_weights(tmp_path / "absent", SPECS)
