"""The scenarios behind the page's figures of training still run and say what they are there for."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from simnet.nodes.virtual import world

FILE = Path(__file__).parents[3] / "benchmarks" / "simnet_goodput.py"
SMALL = {"nodes.0.count": 3, "nodes.1.count": 1, "work.rounds": 2, "work.inner_steps_max": 20}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = spec_from_file_location("simnet_goodput", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_kills_cost_goodput_beside_one_run_without_them(benchmark: ModuleType) -> None:
    before = world.calm_tokens_per_s.cache_info()
    facts = [
        benchmark.simulated("goodput", 1, **SMALL, **{"faults.0.percent": percent}).facts
        for percent in (60, 100)
    ]
    after = world.calm_tokens_per_s.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 1)
    row = benchmark.goodput((1, True), facts)
    assert 0.1 < row.least <= row.mean <= row.greatest < 1.0
    assert row.crashes_a_round > 0
    assert row.down > 0
    assert row.tokens_per_s < row.tokens_per_s_without_faults


def test_a_sparse_update_of_72_billion_parameters_takes_what_the_page_says(
    benchmark: ModuleType,
) -> None:
    row = benchmark.utilisation(("top_k", 4, 3))
    assert row.synchronisation_s == pytest.approx(337, rel=0.02)
    assert row.utilisation[1] == pytest.approx(0.955, abs=0.002)


def test_a_plan_by_speed_is_quicker_than_one_without(benchmark: ModuleType) -> None:
    adaptive, naive = (
        benchmark.straggler(how, [facts])
        for how, facts in zip((True, False), benchmark.stragglers_of(0), strict=True)
    )
    assert adaptive.pictures_per_s > 1.1 * naive.pictures_per_s
    assert adaptive.slow_participation > 0.8 > naive.slow_participation
