"""A link that is not as the scenario asks is told of, by how much and from how many datagrams."""

from dataclasses import replace

from simnet.processes.measurement import Measured, Measurement, Pool

RIGHT = Measured(0, 1, 100.0, 104.0, 50.0, 48.0, 1000, 5)
POOL = Pool(percent_asked=0.5, percent=0.52, sent=200_000, lost=1040)


def faults(link: Measured = RIGHT, pool: Pool = POOL) -> list[str]:
    return Measurement((link,), (pool,), 1.0).faults()


def test_a_tenth_is_tolerated_and_no_more() -> None:
    assert faults() == []
    assert faults(replace(RIGHT, delay_ms=111.0)) == [
        "0->1: 111.0 ms for 100.0, 48.0 Mbit/s for 50.0"
    ]
    assert faults(replace(RIGHT, mbit_s=44.0))
    assert faults(pool=replace(POOL, percent=0.56)) == ["loss 0.560 % for 0.500 % of 200000"]


def test_rare_loss_is_judged_by_the_error_that_so_few_datagrams_leave() -> None:
    few = replace(POOL, sent=10_000, percent=0.6)
    assert few.error_percent > 0.07
    assert faults(pool=few) == []
    assert faults(pool=replace(few, percent=0.8))


def test_a_rate_that_nobody_can_measure_is_not_judged() -> None:
    assert faults(replace(RIGHT, mbit_s_asked=None, mbit_s=180.0)) == []


def test_the_facts_put_measured_beside_asked() -> None:
    facts = Measurement((RIGHT,), (POOL,), 1.0).as_facts()
    assert facts["links"][0]["asked_ms"] == 100.0
    assert facts["links"][0]["delay_ms"] == 104.0
    assert facts["links_off_by_percent_max"] == 4.0
    assert facts["loss"][0]["asked_percent"] == 0.5
