"""Clipping bounds one node's share."""

import numpy as np
import pytest

from daa_node.updates.privacy.clip import clip_factor, squared_norm


def test_a_large_norm_is_scaled_down_and_a_small_one_left() -> None:
    assert clip_factor(4.0, 1.0) == 0.25
    assert clip_factor(1.0, 1.0) == 1.0
    assert clip_factor(9.0, None) == 1.0
    assert clip_factor(0.0, 1.0) == 1.0


def test_squares_that_float32_cannot_hold_still_add_up() -> None:
    assert squared_norm(np.full(4, 1e30, np.float32)) == pytest.approx(4e60)


def test_one_nan_shows_in_the_norm() -> None:
    assert not np.isfinite(squared_norm(np.array([1.0, np.nan], np.float32)))
