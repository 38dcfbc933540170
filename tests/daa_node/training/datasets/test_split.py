"""What is held out: never seen in training, and nothing is lost between the two."""

import numpy as np
import pytest

from daa_node.errors import UserError
from daa_node.training.datasets.examples import split


@pytest.mark.parametrize("item_count", [4000, 3999, 4050, 3950])
def test_no_window_touches_the_other_side_and_every_window_that_fits_is_there(
    item_count: int,
) -> None:
    block, every, span = 100, 10, 17
    parts = split(item_count, block, every, span, "data")
    heldout = (np.arange(item_count) // block) % every == every - 1
    train = parts.train_offsets(np.arange(parts.train_count))
    held = parts.heldout_offsets(np.arange(parts.heldout_count))
    windows = np.lib.stride_tricks.sliding_window_view(heldout, span)
    assert train.tolist() == np.flatnonzero(~windows.any(axis=1)).tolist()
    assert held.tolist() == np.flatnonzero(windows.all(axis=1)).tolist()


def test_too_little_data_is_refused_with_the_numbers() -> None:
    with pytest.raises(UserError, match=r"corpus has 916 items: too few.*at least 917"):
        split(916, 100, 10, 17, "corpus")
    assert split(917, 100, 10, 17, "corpus").heldout_count == 1


def test_a_split_of_more_than_any_disk_holds_takes_no_memory() -> None:
    tokens, block, every, span = 10**16 + 5, 8192, 10, 1025
    parts = split(tokens, block, every, span, "data")
    last = int(parts.train_offsets(np.array([parts.train_count - 1]))[0])
    assert tokens - 10 * block < last + span <= tokens
    assert int(parts.heldout_offsets(np.array([0]))[0]) == 9 * block
    assert parts.train_count / tokens == pytest.approx((9 * block - 1024) / (10 * block))
