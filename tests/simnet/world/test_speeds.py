"""Step times are functions of the seed, the node, the round and the hour."""

from statistics import fmean, pstdev
from typing import Any

import pytest

from simnet.world.determinism import Streams
from simnet.world.links import NS
from simnet.world.scenario import Scenario
from simnet.world.speeds import Speeds


def speeds(seed: int = 0, **config: Any) -> Speeds:
    nodes = [{"name": "fast", "count": 2}, {"name": "slow", "count": 1, "speed": 0.25}]
    work = {"kind": "training", "step_s": 1.0, "speeds": config}
    scenario = Scenario.model_validate({"name": "s", "nodes": nodes, "work": work})
    return Speeds(scenario, Streams(seed))


def test_a_class_has_its_speed() -> None:
    assert [speeds().step_ns(node, 1, 0) for node in range(3)] == [NS, NS, 4 * NS]


def test_jitter_has_the_deviation_asked_for_and_asking_again_changes_nothing() -> None:
    model = speeds(jitter_percent=10)
    drawn = [model.step_ns(0, number, 0) / NS for number in range(2000)]
    assert fmean(drawn) == pytest.approx(1.0, abs=0.02)
    assert pstdev(drawn) == pytest.approx(0.1, abs=0.01)
    assert [model.step_ns(0, number, 0) / NS for number in (7, 3)] == [drawn[7], drawn[3]]
    other = speeds(seed=1, jitter_percent=10)
    assert other.step_ns(0, 7, 0) / NS != drawn[7]


def test_one_round_in_so_many_is_a_stragglers() -> None:
    model = speeds(straggler_percent=20, straggler_factor=5)
    drawn = [model.step_ns(1, number, 0) // NS for number in range(2000)]
    assert set(drawn) == {1, 5}
    assert drawn.count(5) / len(drawn) == pytest.approx(0.2, abs=0.03)


def test_each_node_has_a_worst_hour_once_a_day() -> None:
    model = speeds(day_s=86_400.0, day_slow_percent=50)
    hours = [[model.step_ns(node, 1, hour * 3600 * NS) for hour in range(24)] for node in (0, 1)]
    for day in hours:
        assert max(day) / NS == pytest.approx(2.0, rel=0.02)
        assert min(day) / NS == pytest.approx(1.0, rel=0.02)
    assert hours[0].index(max(hours[0])) != hours[1].index(max(hours[1]))
    assert model.step_ns(0, 1, 0) == model.step_ns(0, 1, 86_400 * NS)
