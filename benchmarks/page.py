"""What the page for volunteers costs in time: until its first verdict, and for a gradient.

    python benchmarks/page.py [start] [gradient] [--turns 3] [--busy 2] [--repeat 20] [--json]

Needs Chromium, and the page (`make page`).

`start`: a demo of three daemons, which train all the while, one of them the gateway; beside it so
many processes that do nothing but keep a core each busy. A fresh browser opens the page and presses
Start. Told are seconds since the page was asked for, until it is shown, has joined, has sent its
first signed verdict, has Python, and has practised; and how many times over the first verdict
comes before the first piece could that needs Python.

`gradient`: of one batch of a byte GPT of 132,736 parameters, with nothing else running. Wall time
of the page (by its WASM product, and by numpy's), of the same program in this Python, and of torch,
on one thread each; and by how much (relative L2) the page's gradient and torch's differ. The page's
is known by its digest, which is this Python's.

Ends with 1 if the first verdict takes more than 30 s, or the gradients differ by more than 1e-3.
"""

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray

from daa_node.adapters.site_directory import SITE
from daa_node.cli.cluster import Cluster, prepare
from daa_node.cli.free_ports import free_ports
from daa_node.spot_checks.canonical import canonical_model
from daa_node.spot_checks.recompute import loss_and_gradient
from daa_node.tensors import Float32Array
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.byte_gpt import gpt_loss
from daa_node.training.models.parameters import FlatParameters
from daa_node.updates.grid import to_float32

SCRIPTS = Path(__file__).parents[1] / "wasm_worker/test"
MODEL = ModelConfig(depth=2, width=68, heads=4, context=64)
WINDOWS = 4
SLOW_REPEAT = 4  # of what takes seconds
FIRST_VERDICT_S_MAX = 30.0
RELATIVE_L2_MAX = 1e-3
BEGUN_S_MAX = 120.0
NODES, ROUNDS = 3, 100_000  # they train until we stop them
MOMENTS = ("shown", "joined", "verdict", "python", "ready")


@dataclass(frozen=True)
class Gradient:
    """Milliseconds, the median of all repetitions but the first few."""

    page_ms: float
    page_by_numpy_ms: float
    this_python_ms: float
    torch_ms: float
    relative_l2: float

    @property
    def faults(self) -> list[str]:
        is_near = self.relative_l2 <= RELATIVE_L2_MAX
        return [] if is_near else [f"the gradients differ by {self.relative_l2:.1e}"]


@contextmanager
def gateway(root: Path) -> Iterator[str]:
    """The address of a demo's page, once there is something to check."""
    cluster: Cluster = prepare(root, NODES, ROUNDS, None)
    try:
        cluster.start(free_ports(1)[0])
        deadline_s = time.monotonic() + BEGUN_S_MAX
        while cluster.page is None or (cluster.daemons[0].status or {}).get("height", 0) < 2:
            assert time.monotonic() < deadline_s, "the demo does not get on"
            cluster.poll()
            time.sleep(0.2)
        yield cluster.page
    finally:
        cluster.kill()


@contextmanager
def page_alone() -> Iterator[str]:
    """The page's address, with no gateway behind it."""
    [port] = free_ports(1)
    words = ["-m", "http.server", "--bind", "127.0.0.1", "--directory", str(SITE), str(port)]
    nowhere = subprocess.DEVNULL
    server = subprocess.Popen([sys.executable, *words], stdout=nowhere, stderr=nowhere)
    try:
        deadline_s = time.monotonic() + BEGUN_S_MAX
        while time.monotonic() < deadline_s:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.kill()
        server.wait()


@contextmanager
def busy(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def told_by(script: str, *words: object) -> Any:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or not (SITE / "index.html").exists():
        sys.exit("error: this needs Chromium, and the page: make page")
    address, *others = map(str, words)
    command = ["node", str(SCRIPTS / script), address, chromium, *others]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def starts(page: str, turns: int, busy_cores: int) -> list[dict[str, float]]:
    """Of each turn, seconds to each of MOMENTS."""
    rows = []
    for _ in range(turns):
        with busy(busy_cores):
            seen_ms = told_by("first_verdict.js", page)
        rows.append({moment: seen_ms[moment] / 1000 for moment in MOMENTS})
    return rows


def packed(array: NDArray[Any], name: str, dtype: str) -> dict[str, str]:
    return {name: b64encode(array.astype(dtype).tobytes()).decode()}


def median_ms(work: Callable[[], object], repeat: int) -> float:
    spent_s = []
    for _ in range(repeat):
        started_s = time.perf_counter()
        work()
        spent_s.append(time.perf_counter() - started_s)
    return 1e3 * settled(spent_s)


def settled(times: list[float]) -> float:
    """The median without the first third, in which compilers and caches come to know the work."""
    return median(times[len(times) // 3 :])


def torch_gradient(weights_D: Float32Array, inputs: Any, targets: Any) -> Float32Array:
    parameters = FlatParameters(MODEL.tensors(), torch.device("cpu"))
    parameters.load(torch.from_numpy(weights_D))
    tokens = torch.from_numpy(inputs), torch.from_numpy(targets)
    gpt_loss(MODEL)(parameters.views, *tokens).backward()  # type: ignore[no-untyped-call]
    return parameters.gradient_D.numpy()


def gradient(page: str, repeat: int, orders: Path) -> Gradient:
    weights_D = to_float32(genesis_weights(MODEL, 1))
    windows = np.random.default_rng(1).integers(0, 256, (WINDOWS, MODEL.context + 1))
    inputs, targets = windows[:, :-1], windows[:, 1:]
    model = canonical_model(MODEL)
    batch = {
        "rows": WINDOWS,
        "inputs": packed(inputs, "Int32Array", "<i4"),
        "targets": packed(targets, "Int32Array", "<i4"),
    }
    weights = packed(weights_D, "Float32Array", "<f4")
    task = {"kind": "gradient", "model": asdict(model), "weights": weights, "batch": batch}
    both = [
        {"path": "pyodide/", "matmul": product, "tasks": times * [task]}
        for product, times in (("wasm", repeat), ("numpy", SLOW_REPEAT))
    ]
    orders.write_text(json.dumps(both))
    answers = [answered[1:] for answered in told_by("gradient.js", page, orders)]
    found_D = loss_and_gradient(model, weights_D, inputs, targets)[1]
    digests = {answer["answer"]["digest"] for row in answers for answer in row}
    assert digests == {blake3(found_D.tobytes()).hexdigest()}, "other bits than this Python's"
    expected_D = torch_gradient(weights_D, inputs, targets)
    by_wasm_ms, by_numpy_ms = (settled([answer["ms"] for answer in row]) for row in answers)
    return Gradient(
        by_wasm_ms,
        by_numpy_ms,
        median_ms(lambda: loss_and_gradient(model, weights_D, inputs, targets), SLOW_REPEAT),
        median_ms(lambda: torch_gradient(weights_D, inputs, targets), repeat),
        float(np.linalg.norm(found_D - expected_D) / np.linalg.norm(expected_D)),
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["start", "gradient"])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--busy", type=int, default=2, help="processes, beside the demo's")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def show(rows: list[dict[str, float]], found: Gradient | None) -> None:
    if rows:
        print("seconds to " + "".join(f"{moment:>9}" for moment in MOMENTS) + "  python/verdict")
    for row in rows:
        cells = "".join(f"{row[moment]:9.1f}" for moment in MOMENTS)
        print(f"           {cells}{row['python'] / row['verdict']:16.1f}")
    if found is not None:
        print(
            f"gradient of {MODEL.parameter_count():,} parameters, "
            f"{WINDOWS * MODEL.context} tokens: page "
            f"{found.page_ms:.0f} ms (by numpy {found.page_by_numpy_ms:.0f}), "
            f"this Python {found.this_python_ms:.0f}, torch {found.torch_ms:.0f}: page "
            f"{found.page_ms / found.torch_ms:.1f} times torch; "
            f"relative L2 {found.relative_l2:.1e}"
        )


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    rows: list[dict[str, float]] = []
    found = None
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        if "start" in options.parts:
            with gateway(root / "demo") as page:
                rows = starts(page, options.turns, options.busy)
        if "gradient" in options.parts:
            with page_alone() as page:
                found = gradient(page, options.repeat, root / "orders.json")
    late = [f"{row['verdict']:.1f} s" for row in rows if row["verdict"] > FIRST_VERDICT_S_MAX]
    faults = [f"the first verdict took {each}" for each in late]
    faults += found.faults if found is not None else []
    if options.json:
        told = {"schema_version": 1, "starts": rows, "faults": faults}
        print(json.dumps(told | {"gradient": None if found is None else asdict(found)}))
    else:
        show(rows, found)
        for fault in faults:
            print(f"WRONG: {fault}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
