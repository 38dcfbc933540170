"""One hash a rule: numpy and torch, any order of arrival, one or two threads, any device.

The hashes lie in tests/golden/updates.json. A change of one of them forks every running network: it
needs a new protocol version, never a new hash alone.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from blake3 import blake3

from daa_node.errors import RuleUnbounded
from daa_node.tensors import Int32Array, TensorSpec, UInt8Array
from daa_node.updates import outer_step
from daa_node.updates.aggregation.rule import Rule, rule_named
from daa_node.updates.compression.codec import CODEC_NAMES, codec_named, encode
from daa_node.updates.compression.delta import DENSE as DENSE_DELTA
from daa_node.updates.compression.delta import DeltaFormat
from daa_node.updates.compression.union import UNION
from daa_node.updates.grid import CHUNK_PARAMETERS, GRID_ONE
from daa_node.updates.initial_weights import TensorInit, initial_weights
from daa_node.updates.outer_step import Contribution, OuterRates, OuterState
from daa_node.updates.torch_kernels import TorchKernels

MakeBlob = Callable[[str, str, int, int], UInt8Array]
MakeGrid = Callable[[str, int, int], Int32Array]
Run = Callable[
    [OuterState, list[Contribution], Rule, int, OuterRates, OuterState, DeltaFormat], UInt8Array
]

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "updates.json").read_text())
D = 70_000  # two chunks and a short block
RATES = OuterRates(lr=(7, 10), momentum=(6, 10))
DENSE = ["int8", "int4", "int8", "int4", "int8"]
SPARSE = ["top_k", "int8", "top_k", "int4", "top_k"]
# name of the golden hash -> rule, f_agg, codecs of the five contributions
CASES = {
    "mean": ("mean", 0, DENSE),
    "trimmed_mean": ("trimmed_mean", 1, DENSE),
    "mean with top_k": ("mean", 0, SPARSE),
    "mean of top_k": ("mean", 0, ["top_k"] * 5),
}
SHIFTS_MAX = [8, 24]  # what training makes, and the ends of the grid


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def hash_of(make_grid: MakeGrid, make_blob: MakeBlob) -> Callable[[Run, str], set[str]]:
    """The distinct hashes of delta, weights and momentum over six orders of arrival."""

    def run_all(run: Run, case: str) -> set[str]:
        hashes = set()
        rule, f_agg, codecs = CASES[case]
        delta_format = UNION if set(codecs) == {"top_k"} else DENSE_DELTA
        for order in itertools.islice(itertools.permutations(range(5)), 0, None, 23):
            digest = blake3()
            for shift_max in SHIFTS_MAX:
                members = [
                    Contribution(make_blob(f"{i}", codec, D, shift_max), codec, 3**i * 10**6)
                    for i, codec in enumerate(codecs)
                ]
                bits = shift_max + 7
                base = OuterState(make_grid("w", D, bits), make_grid("v", D, bits))
                out = OuterState(np.zeros(D, np.int32), np.zeros(D, np.int32))
                arrived = [members[i] for i in order]
                delta = run(base, arrived, rule_named(rule), f_agg, RATES, out, delta_format)
                for part in (delta, out.weights_D, out.momentum_D):
                    digest.update(part.tobytes())
            hashes.add(digest.hexdigest())
        return hashes

    return run_all


def on(device: str) -> Run:
    return TorchKernels(torch.device(device)).aggregate_and_step


@pytest.mark.parametrize("case", CASES)
def test_numpy_gives_the_golden_hash_in_any_order(
    case: str, hash_of: Callable[[Run, str], set[str]]
) -> None:
    assert hash_of(outer_step.aggregate_and_step, case) == {GOLDEN[case]}


@pytest.mark.parametrize("case", CASES)
def test_torch_gives_the_golden_hash_in_any_order(
    case: str, hash_of: Callable[[Run, str], set[str]]
) -> None:
    assert hash_of(on("cpu"), case) == {GOLDEN[case]}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("case", CASES)
def test_two_threads_give_the_golden_hash(
    case: str, hash_of: Callable[[Run, str], set[str]]
) -> None:
    assert hash_of(on("cpu"), case) == {GOLDEN[case]}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_gives_the_golden_hash(case: str, hash_of: Callable[[Run, str], set[str]]) -> None:
    assert hash_of(on("cuda"), case) == {GOLDEN[case]}


def test_torch_streams_over_chunks_too(hash_of: Callable[[Run, str], set[str]]) -> None:
    small = TorchKernels(torch.device("cpu"), chunk_parameters=CHUNK_PARAMETERS)
    for case in ("trimmed_mean", "mean with top_k", "mean of top_k"):
        assert hash_of(small.aggregate_and_step, case) == {GOLDEN[case]}


def test_torch_refuses_what_numpy_refuses(make_blob: MakeBlob) -> None:
    members = [Contribution(make_blob(f"{i}", "int8", 100, 9), "int8", 0) for i in range(4)]
    state = OuterState(np.ones(100, np.int32), np.ones(100, np.int32))
    for run in (outer_step.aggregate_and_step, on("cpu")):
        for rule, f_agg in (("mean", 1), ("trimmed_mean", 2), ("mean", 0)):  # no weight at last
            with pytest.raises(RuleUnbounded, match=f"{rule} over m=4 .* f_agg={f_agg}"):
                run(state, members, rule_named(rule), f_agg, RATES, state, DENSE_DELTA)
    assert state.weights_D.tolist() == [1] * 100


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_encoding_gives_the_golden_hash(codec: str, make_grid: MakeGrid) -> None:
    values_D = (make_grid("encode", D, 31) * 2.0**-40).astype(np.float32)
    values_D[: D // 2] *= 2.0**-9
    blob = encode(codec_named(codec), values_D)
    assert blake3(blob.tobytes()).hexdigest() == GOLDEN[f"encode {codec}"]


def test_the_first_weights_give_the_golden_hash() -> None:
    inits = [
        TensorInit(TensorSpec("embedding", (256, 300)), GRID_ONE // 50),
        TensorInit(TensorSpec("gain", (300,)), 0, GRID_ONE),
        TensorInit(TensorSpec("head", (300, 256)), 12_345, -7),
    ]
    weights_D = initial_weights(bytes(range(32)), inits)
    assert blake3(weights_D.tobytes()).hexdigest() == GOLDEN["initial weights"]
