"""The benchmark of what checks cost still runs, and adds up what it has measured."""

import argparse
import sys
from fractions import Fraction
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from daa_node.training.data_config import DataConfig
from daa_node.training.model_config import ModelConfig

pytestmark = pytest.mark.usefixtures("warm")

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
# What is checked of one round is checked in the next; where steps were slow to begin with, the
# first rounds have too few of them to be checked.
NODES, ROUNDS = 2, 6
ROUND_STEPS = 8  # two a segment: that there is a number matters here, not which


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)  # it reads rounds as outer_sync does
    spec = spec_from_file_location("check_overhead", BENCHMARKS / "check_overhead.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "check_overhead", module)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_a_worker_s_row_is_its_boundaries_and_its_share_of_a_check(
    benchmark: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ModelConfig(depth=1, width=32, context=16)
    benchmark.MODELS["tiny"] = tiny, DataConfig(), 2
    rows = benchmark.workers(
        argparse.Namespace(
            models=["tiny"], steps=[2, 5], segments=[2], share=Fraction(1, 2), repeat=1
        )
    )
    assert [(row.steps, row.parameters) for row in rows] == [
        (steps, tiny.parameter_count()) for steps in (2, 5)
    ]
    for row in rows:
        assert min(row.training_s, row.check_s) > 0
        spent_s = row.boundaries_s + row.check_s / 2
        assert row.overhead == pytest.approx(spent_s / row.training_s)
    benchmark.show(rows, [])
    assert capsys.readouterr().out.count("tiny") == 2


def event(name: str, ts: float, **fields: Any) -> dict[str, Any]:
    return {"name": name, "ts": ts, "round": 3, **fields}


def test_a_round_s_training_ends_with_its_slowest_node(benchmark: ModuleType) -> None:
    logs = [
        [event("round_started", 10.0), event("update_sealed", 12.0, seal_s=0.5, steps=4)],
        [event("round_started", 10.1), event("update_sealed", 12.5, seal_s=0.1, steps=4)],
    ]
    assert benchmark.slowest_s(logs, 3) == pytest.approx(2.4)
    assert benchmark.slowest_s(logs, 4) == 0.0


@pytest.mark.long
def test_clusters_with_checks_and_without_take_turns(
    benchmark: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "NODES", NODES)
    rows = benchmark.clusters(Fraction(1), ROUNDS, 1, ROUND_STEPS)
    assert [row.share for row in rows] == ["0", "1"]
    without, with_all = rows
    assert (without.rounds, with_all.rounds) == (ROUNDS, ROUNDS)
    assert without.checks == 0 < with_all.checks
    assert without.worker_ms_a_step > 0
    assert without.phases_s.keys() == with_all.phases_s.keys()
    benchmark.show([], rows)
    assert "medians over rounds" in capsys.readouterr().out
