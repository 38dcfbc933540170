"""Training on between two orders: what it is worth, and when it is dropped."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch

from daa_node.training.core import Core
from daa_node.training.orders import Inbox, next_order
from daa_node.training.torch_worker import Worker
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.grid import to_float32
from tests.daa_node.training.test_core import BASE_D, JOB, core, order

ON = JOB.model_copy(
    update={"updates": UpdatesConfig(codec="int4", rule="mean", f_agg=0, train_on=True)}
)
OTHER_BASE_D = BASE_D + 1000  # what the round's updates have made of it
LR = JOB.inner.lr


def sealed_one(tmp_path: Path, steps: int) -> Core:
    """A core that has sealed round 1, of five steps, and gone on for so many."""
    one = core(tmp_path, ON)
    one.train_and_seal(order(1), BASE_D)
    for _ in range(steps):
        assert one.train_on()
    return one


def test_steps_before_the_order_move_its_start_and_count_in_its_update(tmp_path: Path) -> None:
    one = sealed_one(tmp_path, 3)
    ahead = one.take_ahead()
    assert ahead is not None
    assert ahead.values_D is not None
    assert ahead.steps == 3
    moved_D = ahead.values_D - ahead.sealed_D
    assert np.abs(moved_D).max() > 2 * LR
    one.set_ahead(ahead)
    sealed = one.train_and_seal(order(2, merged_round=1, steps_max=4), OTHER_BASE_D)
    assert (sealed.trained.steps, sealed.trained.tokens) == (4, 4 * JOB.inner.batch_size)
    # one step of its own: no weight goes further in it than the rate
    left_D = sealed.trained.values_D - to_float32(OTHER_BASE_D) - moved_D
    assert 0 < np.abs(left_D).max() < 1.1 * LR
    assert one.inner_state().tried.adam_steps == 5 + 4


def test_what_was_trained_from_an_update_that_was_not_merged_is_dropped(tmp_path: Path) -> None:
    again = order(2, merged_round=-1)
    plain, dropped = [sealed_one(tmp_path, n).train_and_seal(again, BASE_D).blob for n in (0, 3)]
    assert np.array_equal(plain, dropped)


def test_a_judgement_between_two_steps_changes_neither(tmp_path: Path) -> None:
    quiet, disturbed = sealed_one(tmp_path, 2), sealed_one(tmp_path, 1)
    disturbed.evaluate(OTHER_BASE_D)
    assert disturbed.train_on()
    disturbed.evaluate(OTHER_BASE_D)
    second = order(2, merged_round=1)
    one, other = [each.train_and_seal(second, OTHER_BASE_D).blob for each in (quiet, disturbed)]
    assert np.array_equal(one, other)


def test_it_ends_before_a_whole_round_and_claims_no_more_than_is_planned(tmp_path: Path) -> None:
    one = sealed_one(tmp_path, 4)
    assert not one.train_on()
    sealed = one.train_and_seal(order(2, merged_round=1, steps_max=2), BASE_D)
    assert (sealed.trained.steps, sealed.trained.tokens) == (2, 2 * JOB.inner.batch_size)


def test_a_job_that_does_not_say_so_trains_in_rounds_alone(tmp_path: Path) -> None:
    one = core(tmp_path)
    one.train_and_seal(order(1), BASE_D)
    assert not one.train_on()


class _Steps:
    """What a worker takes between orders: an order comes with the third, which may fail."""

    def __init__(self, inbox: Inbox, fails: bool) -> None:
        self._inbox = inbox
        self._fails = fails
        self.taken = 0
        self.ahead: object = "some"
        self.device = torch.device("cpu")

    def train_on(self) -> bool:
        self.taken += 1
        if self.taken == 3:
            self._inbox.orders.put({"verb": "evaluate"})
            if self._fails:
                raise RuntimeError("out of memory")
        return True

    def set_ahead(self, ahead: object) -> None:
        self.ahead = ahead


@pytest.mark.parametrize("fails", [False, True])
def test_a_worker_steps_until_an_order_comes_and_serves_it_though_one_fails(
    tmp_path: Path, fails: bool
) -> None:
    inbox = Inbox()
    steps = _Steps(inbox, fails)
    worker = Worker(cast(Core, steps), ON, tmp_path / "state", inbox)
    assert next_order(worker, inbox, lambda: None)["verb"] == "evaluate"
    assert steps.taken == 3
    assert steps.ahead == (None if fails else "some")
