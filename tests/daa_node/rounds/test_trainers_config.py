"""What a genesis may say of trainers: only what its merge can hold off when the house is full."""

from typing import Any

import pytest

from daa_consensus.committee import CONTRIBUTORS_MAX, Committee, Validator
from daa_consensus.roll import Admission
from daa_dag.ids import NodeId
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


STAKES = (30, 1, 1, 1, 1, 1, 1)  # agreement survives that six of seven lie


def outvoted(stakes: tuple[int, ...], admission: str = "vouched", **updates: Any) -> str | None:
    ids = [NodeId(bytes([number]) * 32) for number in range(len(stakes))]
    committee = Committee(tuple(Validator(*pair) for pair in zip(ids, stakes, strict=True)))
    config = TrainersConfig.model_validate({"admission": admission, "max": 7})
    rules = UpdatesConfig.model_validate(updates)
    return config.why_outvoted(committee.liars_max, len(stakes), rules)


@pytest.mark.parametrize("admission", ["vouched", "open"])
def test_stakes_may_let_agreement_survive_no_more_liars_than_a_merge(admission: str) -> None:
    told = outvoted(STAKES, admission)
    assert told is not None
    assert f"{admission}, and agreement of these stakes survives 6 of 7 validators" in told
    assert "reckons with 2" in told
    assert "stakes that are nearer to each other" in told
    assert outvoted((4, 4, 4, 1, 1, 1, 1), admission) is not None
    assert outvoted((3, 3, 2, 2, 2, 2, 2), admission) is None
    assert outvoted((1,) * 4, admission, f_agg=0) is not None


@pytest.mark.parametrize("count", range(1, 41))
def test_equal_stakes_are_as_many_for_the_one_as_for_the_other(count: int) -> None:
    assert outvoted((5,) * count) is None


def test_who_lets_in_nobody_and_who_bounds_nobody_may_have_any_stakes() -> None:
    assert outvoted(STAKES, "closed") is None
    assert outvoted(STAKES, rule="mean") is None


def test_a_merge_that_is_to_bear_more_liars_than_it_can_is_refused_in_any_case() -> None:
    rules = UpdatesConfig(f_agg=6)
    assert outvoted(STAKES, f_agg=6) is None
    assert TrainersConfig(admission=Admission.VOUCHED).why_unfit(7, 0, rules) is not None


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
