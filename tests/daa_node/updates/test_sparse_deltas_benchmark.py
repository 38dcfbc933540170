"""The benchmark of sparse deltas runs, and its candidates do what its table says of them."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "sparse_deltas.py"
TINY = ["--rounds", "4", "--steps", "1", "--authors", "4", "--width", "8", "--seeds", "1"]
PARAMETERS = 4096  # of that width: one block
UPDATE_BYTES = 81  # of top_k


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = spec_from_file_location("sparse_deltas", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["sparse_deltas"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def run(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["sparse_deltas.py", *TINY, *options])
    benchmark.main()


def test_each_candidate_has_its_line_with_bytes_and_loss(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(benchmark, monkeypatch, "--json")
    rows = {(row["candidate"], row["rule"]): row for row in json.loads(capsys.readouterr().out)}
    due = [(each.name, rule) for each in benchmark.CANDIDATES for rule in each.rules]
    assert list(rows) == due
    dense, replay = rows["int8", "mean"], rows["top_k, replay", "mean"]
    union, second = rows["top_k, union", "mean"], rows["second top_k, certified", "mean"]
    assert dense["up"] == dense["down"] == 65 / 64
    assert replay["up"] == UPDATE_BYTES / PARAMETERS
    assert replay["down"] == 4 * replay["up"]
    assert second["down"] < union["down"] < replay["down"]
    for rule in ("mean", "trimmed_mean"):
        common = rows["mask_k", rule]
        assert common["up"] + common["places"] / 4 < union["up"]
        assert common["down"] == 2 * 33 / PARAMETERS  # 128 places are two blocks of int4
        assert common["places"] == 112 / PARAMETERS
    for row in rows.values():
        assert len(row["losses"]) == benchmark.SHOWN
        assert row["losses"][-1] < row["losses"][0] < 6.0  # 5.5 is to know nothing of a byte


def test_a_line_for_people_has_the_loss_of_each_seed(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(benchmark, monkeypatch, "levels", "--only", "halves", "--seeds", "2")
    _, line = capsys.readouterr().out.splitlines()
    first, second = line.rpartition("(")[2].rstrip(")").split(", ")
    assert line.startswith("mask_k, means of halves")
    assert first != second


def test_what_lies_on_levels_is_sent_as_it_is(benchmark: ModuleType) -> None:
    levels = np.array([-2, -0.5, 0.5, 2])
    sent_KM = np.random.default_rng(1).choice(levels, (3, benchmark.COMMON)) * [[64], [2**20], [2]]
    decoded_KM, block_bytes = benchmark.to_levels(*levels)(sent_KM)
    assert block_bytes == 33
    assert np.array_equal(decoded_KM, sent_KM)


def test_halves_keep_signs_and_the_means_of_both(benchmark: ModuleType) -> None:
    size_M = np.where(np.arange(benchmark.COMMON) % 2, 2.0**20, 2.0**10)
    sent_KM = np.where(np.arange(benchmark.COMMON) % 3, size_M, -size_M)[None]
    decoded_KM, block_bytes = benchmark.to_halves(sent_KM)
    assert block_bytes == 34
    assert np.array_equal(decoded_KM, sent_KM)


def test_common_places_are_the_largest_of_what_the_drawn_owe(benchmark: ModuleType) -> None:
    updates = benchmark.InCommonPlaces(benchmark.to_halves, 2 * PARAMETERS, 1.0, 2)
    chance, owed_ND = np.random.default_rng(2), np.zeros((2, 2 * PARAMETERS), np.float32)
    largest = [chance.permutation(PARAMETERS)[:96] for _ in owed_ND]
    for owed_D, places in zip(owed_ND, largest, strict=True):
        owed_D[places] = -np.arange(96, 0, -1)
    updates.end(owed_ND, np.random.default_rng(3))
    first_block, second_block = updates.place_KM
    for places in largest:
        assert len(np.intersect1d(places[:64], first_block)) == 64
    for place_M, start in ((first_block, 0), (second_block, PARAMETERS)):
        assert len(np.unique(place_M)) == benchmark.COMMON
        assert (place_M // PARAMETERS == start // PARAMETERS).all()


def test_a_certified_residual_loses_nothing(benchmark: ModuleType) -> None:
    delta, total_D = benchmark.Largest(128, 1.0), np.zeros(PARAMETERS, np.int64)
    chance = np.random.default_rng(4)
    merged_RD = chance.integers(-(2**20), 2**20, (200, PARAMETERS), dtype=np.int32)
    merged_RD[1:] = 0
    for merged_D in merged_RD:
        sent_D, _ = delta.coded(merged_D)
        assert np.count_nonzero(sent_D) <= 128
        total_D += sent_D
    assert np.abs(total_D - merged_RD[0]).max() <= 1
