"""How far a clock is off is told as a figure, and judged by the seconds of it."""

import pytest

from daa_node.cli.doctor.clocks import judged


@pytest.mark.parametrize(
    ("offs_s", "level", "words"),
    [
        ([], "unmeasured", "no other node was met"),
        ([0.04], "ok", "0.0 s behind the clock of a node"),
        ([-2.0], "ok", "2.0 s ahead of the clock of a node"),
        ([31.0], "warning", "31.0 s behind"),
        ([-31.0, -29.0, 400.0], "warning", "29.0 s ahead of the clocks of 3 a node, by their med"),
        ([0.1, 0.2, 90.0], "ok", "0.2 s behind"),
    ],
)
def test_the_median_of_what_others_say_is_judged(
    offs_s: list[float], level: str, words: str
) -> None:
    found = judged(offs_s, "a node")
    assert (str(found.level), words in found.cause) == (level, True)
    assert bool(found.advice) == (level == "warning")
