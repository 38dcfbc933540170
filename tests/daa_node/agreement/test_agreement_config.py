"""The agreement part of a genesis."""

import pytest
from pydantic import ValidationError

from daa_node.agreement.config import OBJECTION_EPOCHS_MAX, AgreementConfig
from daa_node.agreement.membership_requests import EXPIRY_EPOCHS


def test_the_defaults_hold_together() -> None:
    config = AgreementConfig()
    assert config.view_timeout_cap_ms >= 3 * config.delta_ms


@pytest.mark.parametrize(
    "values",
    [
        {"delta_ms": 0},
        {"delta_ms": 5000, "view_timeout_cap_ms": 14_999},
        {"epoch_rounds": 0},
        {"delta": 500},
        {"epoch_rounds": 1, "objection_rounds": OBJECTION_EPOCHS_MAX + 1},
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        AgreementConfig.model_validate(values)


def test_an_approved_change_waits_for_four_rounds_at_most_and_people_have_thousands() -> None:
    config = AgreementConfig()
    assert config.epoch_rounds <= 4
    assert config.epoch_rounds * EXPIRY_EPOCHS >= 8000


@pytest.mark.parametrize(("rounds", "epochs"), [(1, 1), (4, 1), (5, 2), (400, 100)])
def test_an_owner_has_at_least_the_promised_rounds_to_object(rounds: int, epochs: int) -> None:
    assert AgreementConfig(epoch_rounds=4, objection_rounds=rounds).objection_epochs == epochs


@pytest.mark.parametrize("epoch_rounds", [1, 4, 1000])
def test_a_rotation_can_take_effect_before_its_request_expires(epoch_rounds: int) -> None:
    most = min(100_000, epoch_rounds * OBJECTION_EPOCHS_MAX)
    config = AgreementConfig(epoch_rounds=epoch_rounds, objection_rounds=most)
    assert config.objection_epochs + 2 <= EXPIRY_EPOCHS


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        AgreementConfig().delta_ms = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("cap_ms", "doublings"), [(300, 0), (599, 0), (600, 1), (2_399, 2), (2_400, 3), (2_401, 3)]
)
def test_timeouts_double_as_often_as_the_cap_allows(cap_ms: int, doublings: int) -> None:
    config = AgreementConfig(delta_ms=100, view_timeout_cap_ms=cap_ms)
    assert config.doublings_max == doublings
    assert 3 * config.delta_ms * 2**config.doublings_max <= config.view_timeout_cap_ms
