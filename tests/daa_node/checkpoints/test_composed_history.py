"""The benchmark of a year's proofs composes what a start believes, and opens it."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import trio

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "composed_history.py"
ROUNDS = 60


def test_what_it_composes_is_opened_from_its_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = spec_from_file_location("composed_history", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "composed_history", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PACK_RECORDS", 90)
    trio.run(module.PackedYear(tmp_path, module.Composer(4)).compose, ROUNDS)
    assert len(list((tmp_path / "chain" / "packs").iterdir())) > 3
    module.opened(tmp_path)  # asserts that the summary was believed
    assert f"{ROUNDS + 1} heights" in capsys.readouterr().out
