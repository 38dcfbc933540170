"""Hosts that are alike take as many steps; whoever is slower stops in time."""

from math import inf

import pytest

from daa_node.training.steps_in_time import is_room_for_step, reported_us_per_step, steps_in


@pytest.mark.parametrize(
    ("time_us", "us_per_step", "steps"),
    [
        (20_000_000, 5_000_000, 4),
        (20_000_000, 5_030_000, 4),  # 0.6 % slower than the fastest
        (20_000_000, 5_060_000, 3),  # 1.2 %: its fourth step would end 0.24 s after all stop
        (4_000_000, 2_200_000, 1),  # the others would wait for a tenth of the round
        (500_000_000, 1_002_000, 499),  # of so many steps one counts little
        (3_000_000, 1, 3_000_000),
        (7_000_000, 8_000_000, 0),
        (-5, 1_000, 0),
        (10, 0, 10),
    ],
)
def test_a_last_step_may_end_a_little_late(time_us: int, us_per_step: int, steps: int) -> None:
    assert max(0, steps_in(time_us, us_per_step)) == steps


@pytest.mark.parametrize(
    ("passed_s", "step_s", "stop_after_s", "room"),
    [
        (15.09, 5.03, 20.0, True),
        (15.18, 5.06, 20.0, False),
        (498.996, 1.002, 499.8, True),
        (0.0, 1.0, inf, True),
        (1.0, 1.0, -3.0, False),
    ],
)
def test_the_worker_stops_as_the_decision_counted(
    passed_s: float, step_s: float, stop_after_s: float, room: bool
) -> None:
    assert is_room_for_step(passed_s, step_s, stop_after_s) is room


def test_the_worker_takes_exactly_the_steps_that_were_counted() -> None:
    for us_per_step in range(100_000, 3_000_000, 7_001):
        taken = 1
        while is_room_for_step(taken * us_per_step / 1e6, us_per_step / 1e6, 5.0):
            taken += 1
        assert abs(taken - max(1, steps_in(5_000_000, us_per_step))) <= (us_per_step % 4 > 0)


def test_nobody_reports_a_speed_that_it_does_not_nearly_have() -> None:
    for us_per_step in range(100_000, 9_000_000, 3_001):
        reported = reported_us_per_step(us_per_step, 5_000_000, 50)
        assert us_per_step * 128 // 129 <= reported <= us_per_step
    assert reported_us_per_step(9_000_000, 5_000_000, 50) == 9_000_000
    assert reported_us_per_step(1, 0, 50) == 1


def test_steps_beyond_the_ceiling_make_nobody_report_more_speed() -> None:
    # seven of 2.011 s would nearly fit, and come to 2 s each; a round has four
    assert reported_us_per_step(2_011_000, 14_000_000, 4) == 2_011_000
    assert reported_us_per_step(2_011_000, 14_000_000, 7) == 2_000_000
