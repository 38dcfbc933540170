"""One hash a case: any memory layout, any processor features, any matmul that keeps its word.

The hashes lie in tests/golden/recompute.json. A change of one of them forks the judgement of
disputes: it needs a new protocol version, never a new hash alone.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daa_node.spot_checks import recompute
from tests.daa_node.spot_checks import golden_cases
from tests.daa_node.spot_checks.golden_cases import hashes

Array = NDArray[np.float32]

ROOT = Path(__file__).parents[3]
FILE = ROOT / "daa_node/spot_checks/recompute.py"
SOURCE = FILE.read_text(encoding="utf-8")
GOLDEN = json.loads((ROOT / "tests/golden/recompute.json").read_text())


def test_hashes_are_those_of_every_other_machine() -> None:
    assert hashes(recompute) == GOLDEN


def reversed_memory(array: NDArray[Any]) -> NDArray[Any]:
    turned: NDArray[Any] = np.flip(np.ascontiguousarray(np.flip(array)))
    return turned


def every_second(array: NDArray[Any]) -> NDArray[Any]:
    """Also one byte beside where its type wants to lie."""
    spread = np.zeros(array.size * 2 * array.itemsize + 1, np.uint8)[1:].view(array.dtype)[::2]
    spread = spread.reshape(array.shape)
    spread[...] = array
    return spread


@pytest.mark.parametrize(
    "prepare",
    [
        np.asfortranarray,
        reversed_memory,
        every_second,
        lambda array: array.astype(array.dtype.newbyteorder()),
    ],
    ids=["columns first", "backwards", "strided and unaligned", "other byte order"],
)
def test_layout_of_memory_does_not_show(prepare: golden_cases.Prepare) -> None:
    assert hashes(recompute, prepare=prepare) == GOLDEN


def slow_matmul(a_GMK: Array, b_GKN: Array) -> Array:
    """What a Matmul promises, number by number."""
    groups, rows, terms = a_GMK.shape
    product = np.zeros((groups, rows, b_GKN.shape[2]), np.float32)
    for index in np.ndindex(product.shape):
        g, m, n = index
        total = np.float32(0)
        for k in range(terms):
            total = np.float32(total + np.float32(a_GMK[g, m, k] * b_GKN[g, k, n]))
        product[index] = total
    return product


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (1, 5, 70, 3), (3, 2, 9, 31), (2, 17, 4, 17), (1, 300, 3, 200)]
)
def test_the_matmul_is_its_slow_twin(shape: tuple[int, ...]) -> None:
    groups, rows, terms, columns = shape
    a = golden_cases.floats(1, (groups, rows, terms), -64)
    b = golden_cases.floats(2, (groups, terms, columns), -64)  # products reach the subnormals
    a[0, 0, 0], b[0, 0] = -0.0, 0.0
    fast, slow = recompute.sequential_matmul(a, b), slow_matmul(a, b)
    assert fast.tobytes() == slow.tobytes()
    turned = recompute.sequential_matmul(b.swapaxes(1, 2), a.swapaxes(1, 2)).swapaxes(1, 2)
    assert turned.tobytes() == slow.tobytes()


def test_a_matmul_in_its_place_does_all_products() -> None:
    shapes = set()

    def noted(a_GMK: Array, b_GKN: Array) -> Array:
        shapes.add((a_GMK.shape, b_GKN.shape))
        return recompute.sequential_matmul(a_GMK, b_GKN)

    assert hashes(recompute, noted) == GOLDEN
    assert len(shapes) > 20  # forth and back, each layer's own
    by_blas = hashes(recompute, np.matmul)
    for model in ("byte_gpt", "mlp"):
        assert by_blas[f"{model} gradient"] != GOLDEN[f"{model} gradient"]


def hashes_apart(**environment: str) -> dict[str, str]:
    """By a process of its own, from the file alone."""
    done = subprocess.run(
        [sys.executable, golden_cases.__file__, FILE],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_neither_the_processors_features_nor_threads_show() -> None:
    # those that this machine has and that numpy chooses its loops by: on x86-64 from AVX2 up
    chosen = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    found = hashes_apart(NPY_DISABLE_CPU_FEATURES=" ".join(chosen), OPENBLAS_NUM_THREADS="2")
    assert found == GOLDEN


def test_the_file_needs_numpy_and_nothing_of_this_project() -> None:
    imported = set()
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    assert imported == {"collections.abc", "dataclasses", "numpy", "numpy.typing", "typing"}


# what stands in the file -> a mistake in its place
MISTAKES = {
    "sums in numpy's order": ("fold_sum(x_RW * x_RW)", "np.sum(x_RW * x_RW, axis=-1)"),
    "sums from the other end": ("fold_sum(powers)[", "fold_sum(powers[..., ::-1])["),
    "a product by BLAS": (
        "return self.dot(inputs_RM, self.weights[name]), backward",
        "return np.dot(inputs_RM, self.weights[name]), backward",
    ),
    "a product from its last term": (
        "zip(columns_KGM, rows_KGN, strict=True)",
        "zip(columns_KGM[::-1], rows_KGN[::-1], strict=True)",
    ),
    "a library's exponential": ("powers_RV = exp(", "powers_RV = np.exp("),
    "embedding rows in another order": (
        "zip(inputs_R, slopes_RW, strict=True)",
        "zip(inputs_R[::-1], slopes_RW[::-1], strict=True)",
    ),
    "a norm in float64": (
        "np.sqrt(fold_sum(gradient_D * gradient_D))",
        "np.float32(np.sqrt(fold_sum(gradient_D.astype(np.float64) ** 2)))",
    ),
    "no clipping": ("gradient_D * (factor if factor < ONE else ONE)", "gradient_D * ONE"),
    "no weight decay": ("start_D * np.float32(1 - lr * inner.weight_decay)", "start_D"),
    "one step less in the moments": ("state.adam_steps + 1", "state.adam_steps"),
    "a library's cosine": (
        "angle = PI * (0.5 - progress)",
        "return float(np.cos(PI * progress))",
    ),
    "another frame around a picture": (
        "n // 3 : n // 3 + side : 2",
        "2 - n // 3 : 2 - n // 3 + side : 2",
    ),
    "later tokens seen": ("None, :] > np", "None, :] > 1 + np"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_changes_a_hash(mistake: str, tmp_path: Path) -> None:
    right, wrong = MISTAKES[mistake]
    assert SOURCE.count(right) == 1
    (tmp_path / "recompute.py").write_text(SOURCE.replace(right, wrong), encoding="utf-8")
    assert hashes(golden_cases.load(tmp_path / "recompute.py")) != GOLDEN
