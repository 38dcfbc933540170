"""How much is checked: of the genesis, and of no more segments than an Offer has room for."""

from fractions import Fraction

import pytest
from pydantic import ValidationError

from daa_consensus.bft.limits import SNAPSHOTS_MAX
from daa_node.spot_checks.config import SEGMENTS_MAX, SpotChecksConfig
from daa_node.training.boundaries import boundary_steps


def test_a_tenth_is_checked_unless_the_genesis_says_otherwise() -> None:
    config = SpotChecksConfig()
    assert Fraction(*config.share) == Fraction(1, 10)
    assert (config.segments, config.checkers) == (4, 1)


def test_no_round_has_more_segments_than_are_named() -> None:
    for segments in range(1, SEGMENTS_MAX + 1):
        config = SpotChecksConfig(segments=segments)
        for steps_max in range(1, 100):
            each = config.segment_steps(steps_max)
            for steps in (1, steps_max // 2 + 1, steps_max):
                count = len(boundary_steps(steps, each)) - 1
                assert 1 <= count <= min(segments, steps) < SNAPSHOTS_MAX


def test_with_share_zero_there_are_no_boundaries() -> None:
    off = SpotChecksConfig(share=(0, 7))
    assert not off.is_on
    assert off.segment_steps(30) == 0
    assert boundary_steps(30, off.segment_steps(30)) == ()


@pytest.mark.parametrize("share", [(-1, 10), (11, 10), (1, 0), (0, 0), (0, -1), (1, 5000)])
def test_a_share_is_a_part_of_one(share: tuple[int, int]) -> None:
    with pytest.raises(ValidationError, match="share is"):
        SpotChecksConfig(share=share)


@pytest.mark.parametrize("tolerance", [(0, 1), (-1, 200), (1, 0), (2, 1), (1, -1), (1, 5000)])
def test_a_tolerance_is_above_nothing_and_no_more_than_the_whole(
    tolerance: tuple[int, int],
) -> None:
    with pytest.raises(ValidationError, match="tolerance is"):
        SpotChecksConfig(tolerance=tolerance)


@pytest.mark.parametrize("segments", [0, SEGMENTS_MAX + 1])
def test_segments_are_as_many_as_an_offer_has_room_for(segments: int) -> None:
    with pytest.raises(ValidationError, match="segments"):
        SpotChecksConfig(segments=segments)


@pytest.mark.parametrize(
    ("segments", "steps", "words"),
    [(4, 512, None), (4, 513, "segments to 5"), (16, 2048, None), (16, 2049, "2048 or less")],
)
def test_a_segment_has_no_more_steps_than_a_dispute_can_open(
    segments: int, steps: int, words: str | None
) -> None:
    why = SpotChecksConfig(segments=segments).why_too_long(steps)
    assert (why is None) is (words is None)
    assert words is None or (why is not None and words in why)
    assert SpotChecksConfig(share=(0, 1), segments=1).why_too_long(10**6) is None
