"""The built page in headless Chromium: same bits as this Python, nothing from anywhere else.

`make test-browser` builds the page first. One visit is made and looked at by all tests.
"""

import json
import os
import shutil
import subprocess
from base64 import b64encode
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from blake3 import blake3
from numpy.typing import NDArray

from daa_node.spot_checks.canonical import canonical_inner
from daa_node.spot_checks.recompute import Batch, Model, State, loss_and_gradient, step
from daa_node.training.config import InnerConfig
from daa_node.training.model_config import ModelConfig
from tests.browser.chromium import chromium
from tests.browser.site_server import serving
from tests.daa_node.spot_checks.test_recompute import relative_l2, torch_gradient
from tests.wasm_worker.known_answers import known_answers, piece

ROOT = Path(__file__).parents[2]
SITE = ROOT / "wasm_worker/daa_compute_page/site"
PAYLOAD_BYTES_MAX = 20_000_000
VISIT_S_MAX = 300
LARGE_PARAMETERS = 132_736
TORCH_L2_MAX = 1e-3
ADAM_STEPS, SCHEDULE_STEP = 7, 31
INNER = canonical_inner(InnerConfig())

Piece = tuple[Model, NDArray[np.float32], Batch]


def packed(array: NDArray[Any]) -> dict[str, str]:
    """An array as visit.js reads it: the typed array's name, and base64."""
    is_float = array.dtype.kind == "f"
    name, dtype = ("Float32Array", "<f4") if is_float else ("Int32Array", "<i4")
    return {name: b64encode(array.astype(dtype).tobytes()).decode()}


def gradient_task(model: Model, weights_D: NDArray[np.float32], batch: Batch) -> dict[str, Any]:
    return {
        "kind": "gradient",
        "model": asdict(model),
        "weights": packed(weights_D),
        "batch": {
            "rows": len(batch.inputs),
            "inputs": packed(batch.inputs),
            "targets": packed(batch.targets),
        },
    }


def state_before(weights_D: NDArray[np.float32]) -> State:
    """Some moments to go on from, squares among them."""
    first_D = np.roll(weights_D, 1) * np.float32(0.25)
    return State(weights_D, first_D, first_D * first_D, ADAM_STEPS)


def step_task(model: Model, weights_D: NDArray[np.float32], batch: Batch) -> dict[str, Any]:
    before = state_before(weights_D)
    return gradient_task(model, weights_D, batch) | {
        "kind": "step",
        "first": packed(before.first_D),
        "second": packed(before.second_D),
        "adamSteps": before.adam_steps,
        "scheduleStep": SCHEDULE_STEP,
        "inner": asdict(INNER),
    }


def gradient_of(
    model: Model, weights_D: NDArray[np.float32], batch: Batch
) -> tuple[float, NDArray[np.float32]]:
    return loss_and_gradient(model, weights_D, batch.inputs, batch.targets)


def config_of(model: Model) -> ModelConfig:
    context, width = dict(model.tensors)["position"]
    return ModelConfig(width=width, heads=model.heads, depth=model.depth, context=context)


def gradient_digest(model: Model, weights_D: NDArray[np.float32], batch: Batch) -> str:
    return blake3(gradient_of(model, weights_D, batch)[1].tobytes()).hexdigest()


def step_digest(model: Model, weights_D: NDArray[np.float32], batch: Batch) -> str:
    after = step(model, INNER, state_before(weights_D), batch, SCHEDULE_STEP)
    vectors = (after.weights_D, after.first_D, after.second_D)
    return blake3(b"".join(vector.tobytes() for vector in vectors)).hexdigest()


@pytest.fixture(scope="module")
def pieces() -> tuple[Piece, Piece]:
    """The smallest, and one whose gradient is as much work as a volunteer gets."""
    made = sorted((piece(answer) for answer in known_answers()), key=lambda each: each[1].size)
    return made[0], next(each for each in made if each[1].size == LARGE_PARAMETERS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built page, and beside its Python one whose numpy has a bit that is wrong."""
    assert (SITE / "index.html").exists(), "the page is not built: make page"
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(SITE, folder, dirs_exist_ok=True)
    shutil.copytree(SITE / "pyodide", folder / "spoiled")
    wheel = next((folder / "spoiled").glob("numpy-*.whl"))
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 1
    wheel.write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def visit(
    site: Path, pieces: tuple[Piece, Piece], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What was seen of one visit: see wasm_worker/test/visit.js."""
    small, large = pieces
    model, weights_D, batch = small
    broken = gradient_task(model, np.full_like(weights_D, np.inf), batch)
    misfit = gradient_task(replace(model, tensors=model.tensors[:-1]), weights_D, batch)
    tasks = [gradient_task(*small), step_task(*small), broken, misfit, gradient_task(*large)]
    orders = [
        {"path": "pyodide/", "matmul": "wasm", "tasks": tasks},
        {"path": "pyodide/", "matmul": "numpy", "tasks": tasks},
        {"path": "pyodide/", "matmul": "webgpu", "tasks": tasks[:2]},
        {"path": "spoiled/", "matmul": "wasm", "tasks": tasks[:1]},
        {"path": "nowhere/", "matmul": "wasm", "tasks": tasks[:1]},
    ]
    orders_file = tmp_path_factory.mktemp("visit") / "orders.json"
    orders_file.write_text(json.dumps(orders))
    screenshots = os.environ.get("PAGE_SCREENSHOTS")
    with serving(site) as address:
        script = str(ROOT / "wasm_worker/test/visit.js")
        command = ["node", script, address, chromium(), str(orders_file)]
        visited = subprocess.run(
            [*command, screenshots] if screenshots else command,
            capture_output=True,
            text=True,
            timeout=VISIT_S_MAX,
        )
        assert visited.returncode == 0, visited.stderr
    seen: dict[str, Any] = json.loads(visited.stdout) | {"address": address}
    return seen


def test_the_page_finds_the_bits_of_this_python(visit: dict[str, Any]) -> None:
    assert visit["digests"] == [answer["digest"] for answer in known_answers()]
    assert visit["now"] == f"All {len(known_answers())} practice pieces are the same, bit for bit"


def test_both_products_give_the_same_gradients_and_steps_as_this_python(
    visit: dict[str, Any], pieces: tuple[Piece, Piece]
) -> None:
    small, large = pieces
    for _, gradient, stepped, _, _, again in visit["answers"][:2]:
        assert gradient["answer"]["digest"] == gradient_digest(*small)
        assert gradient["answer"]["loss"] == gradient_of(*small)[0]
        assert stepped["answer"]["digest"] == step_digest(*small)
        assert again["answer"]["digest"] == gradient_digest(*large)


def test_a_gradient_of_the_page_is_torchs_but_for_rounding(
    visit: dict[str, Any], pieces: tuple[Piece, Piece]
) -> None:
    (small, large), (_, gradient, _, _, _, again) = pieces, visit["answers"][0]
    for answered, (model, weights_D, batch) in ((gradient, small), (again, large)):
        found_D = gradient_of(model, weights_D, batch)[1]
        assert answered["answer"]["digest"] == blake3(found_D.tobytes()).hexdigest()
        _, expected_D = torch_gradient(config_of(model), weights_D, batch)
        assert 0 < relative_l2(found_D, expected_D) < TORCH_L2_MAX


def test_webgpu_gives_the_same_bits_also_on_an_adapter_without_subnormals(
    visit: dict[str, Any], pieces: tuple[Piece, Piece]
) -> None:
    ready, gradient, stepped = visit["answers"][2]
    assert ready["type"] == "ready", ready["reason"]
    assert gradient["answer"]["digest"] == gradient_digest(*pieces[0])
    assert stepped["answer"]["digest"] == step_digest(*pieces[0])


def test_what_cannot_be_computed_is_told_in_words(visit: dict[str, Any]) -> None:
    for _, _, _, broken, misfit, *_ in visit["answers"][:2]:
        assert (broken["type"], misfit["type"]) == ("failed", "failed")
        assert (broken["id"], misfit["id"]) == (2, 3)
        assert broken["reason"].startswith("daa_node.spot_checks.recompute.NotFinite: ")
        assert misfit["reason"].startswith("ValueError: ")


def test_a_spoiled_file_and_a_missing_one_are_told_and_nothing_is_computed(
    visit: dict[str, Any],
) -> None:
    for loaded, task in visit["answers"][3:]:
        assert (loaded["type"], loaded["id"]) == ("failed", None)
        assert (task["type"], task["id"]) == ("failed", 0)
    spoiled, nowhere = (loaded["reason"] for loaded, _ in visit["answers"][3:])
    assert spoiled.startswith("numpy could not be loaded: ")
    assert "nowhere/" in nowhere


def test_the_version_names_the_very_file_of_this_package(visit: dict[str, Any]) -> None:
    source = (ROOT / "daa_node/spot_checks/recompute.py").read_bytes()
    digest = blake3(source).hexdigest()
    assert visit["version"]["recompute.py"] == digest
    assert {ready["version"]["recompute"] for ready, *_ in visit["answers"][:2]} == {digest}


def test_nothing_comes_from_another_origin_and_nothing_is_complained_of(
    visit: dict[str, Any],
) -> None:
    addresses = [urlsplit(url) for url in visit["requests"]]
    # the worker's own requests are in the log, too: else it would prove nothing
    assert any(
        address.path.endswith("numpy-2.0.2-cp312-cp312-pyodide_2024_0_wasm32.whl")
        for address in addresses
    )
    assert {address.netloc for address in addresses} == {urlsplit(visit["address"]).netloc}
    assert visit["complained"] == []
    assert visit["isolated"] is True


def test_the_page_is_light_even_where_nothing_is_compressed(visit: dict[str, Any]) -> None:
    paths = {urlsplit(url).path.lstrip("/") or "index.html" for url in visit["loaded"]}
    assert "gateway.json" in paths  # that there is none here is why it only practises
    sizes = {path: (SITE / path).stat().st_size for path in paths - {"gateway.json"}}
    assert sizes["pyodide/pyodide.asm.wasm"] < sum(sizes.values()) <= PAYLOAD_BYTES_MAX


def test_the_keyboard_comes_to_start_first_and_stays_at_the_buttons(visit: dict[str, Any]) -> None:
    assert visit["focusedButtons"] == ["start", "finish"]
