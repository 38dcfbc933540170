"""What a genesis may say of trainers: only what its merge can hold off when the house is full."""

from typing import Any

import pytest

from daa_consensus.committee import CONTRIBUTORS_MAX
from daa_consensus.roll import Admission
from daa_node.rounds.trainers import TrainersConfig
from daa_node.updates.config import UpdatesConfig


def why(members: int, named: int = 0, rule: str = "trimmed_mean", **fields: Any) -> str | None:
    config = TrainersConfig.model_validate({"admission": "vouched", **fields})
    return config.why_unfit(members, named, UpdatesConfig(rule=rule))


@pytest.mark.parametrize("members", [1, 2, 3, 4, 7, 10, 20])
@pytest.mark.parametrize("each", [1, 2, 3])
def test_a_trimmed_mean_holds_off_whom_liars_bring_in_while_all_may_bring_as_many(
    members: int, each: int
) -> None:
    """2 f (1 + p) < v (1 + p) wherever 2 f < v."""
    assert why(members, per_voucher=each, max=members * each, contributors_max=128) is None


def test_f_members_may_not_fill_the_roll() -> None:
    """One of four may lie: with eight each and twelve places, 9 of 16 could be bad."""
    told = why(4, per_voucher=8, max=12)
    assert told is not None
    assert told.startswith(
        "trainers.per_voucher: of a full round of 16 contributors 9 could be bad"
    )
    assert "set it to 6 at most" in told
    assert why(4, per_voucher=6, max=12) is None
    assert why(4, per_voucher=8, max=12, rule="mean") is None
    assert why(4, per_voucher=8, max=24, contributors_max=16) is not None  # nor the rounds


def test_a_network_that_is_open_assumes_a_third() -> None:
    assert why(4, admission="open", max=60, contributors_max=64) is None
    assert why(1, admission="open", max=1) is not None  # one trainer beside one member


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max": 125}, "it is 124 at most"),
        ({"contributors_max": 4}, "nobody else would ever train"),
        ({"named": 9, "max": 8}, "names 9 trainers already"),
    ],
)
def test_a_house_without_room_is_refused(fields: dict[str, Any], said: str) -> None:
    told = why(4, **fields)
    assert told is not None
    assert said in told


def test_a_network_is_closed_unless_it_says_so_and_draws_nobody_by_lot_then() -> None:
    rules = TrainersConfig(contributors_max=5).rules
    assert (rules.admission, rules.contributors_max) == (Admission.CLOSED, CONTRIBUTORS_MAX)
    assert TrainersConfig().why_unfit(4, 3, UpdatesConfig()) is None
