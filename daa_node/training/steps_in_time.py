"""How many inner steps a time has room for, and what speed a host reports.

The fastest that can be believed say when all stop: once they have taken every step that a round may
have. Hosts that are alike differ from them by thousandths, and without a tolerance each of those
would be a whole step short: of four steps, a quarter of its work. So the last step may end a little
after all stop, and others wait so long for it (see daa_node.autonomy.reason).
"""

LATE_OF_STEP = 4  # so much later the last step may end: this part of itself,
LATE_OF_TIME = 128  # and this part of the time that all train


def steps_in(time_us: int, us_per_step: int) -> int:
    """How many steps of `us_per_step` microseconds `time_us` has room for, with the tolerance."""
    late_us = min(us_per_step // LATE_OF_STEP, time_us // LATE_OF_TIME)
    return (time_us + late_us) // max(1, us_per_step)


def is_room_for_step(passed_s: float, step_s: float, stop_after_s: float) -> bool:
    """Whether one more step of `step_s` seconds ends in time, with the tolerance."""
    late_s = min(step_s / LATE_OF_STEP, stop_after_s / LATE_OF_TIME)
    return passed_s + step_s <= stop_after_s + late_s


def reported_us_per_step(us_per_step: int, train_us: int, steps_max: int) -> int:
    """The speed to report of a host that takes `us_per_step` where all stop after `train_us`.

    `steps_max`: of a round, whoever takes them.

    Ceilings of the next plan know no tolerance (see daa_node.rounds.plan). So who takes as many
    steps as a slightly faster host reports that one's speed, and is given as many again.
    """
    steps = min(steps_max, steps_in(train_us, us_per_step))
    return min(us_per_step, train_us // steps) if steps > 0 else us_per_step
