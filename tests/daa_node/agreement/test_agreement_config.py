"""The agreement part of a genesis."""

import pytest
from pydantic import ValidationError

from daa_node.agreement.config import AgreementConfig


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
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        AgreementConfig.model_validate(values)


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
