"""What a genesis may say about updates."""

from typing import Any

import pytest
from pydantic import ValidationError

from daa_node.updates.config import UpdatesConfig

MEAN = {"rule": "mean", "f_agg": 0}
SPARSE = {"codec": "top_k", **MEAN}


def test_the_defaults_are_valid_and_cannot_be_changed() -> None:
    config = UpdatesConfig()
    with pytest.raises(ValidationError):
        config.f_agg = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"outer_lr": (1, 0)}, "denominator must be above 0"),
        ({"outer_lr": (7, -10)}, "denominator must be above 0"),
        ({"outer_lr": (0, 1)}, "must be above 0 and at most 4"),
        ({"outer_lr": (41, 10)}, "must be above 0 and at most 4"),
        ({"outer_lr": (7000, 10000)}, "its terms go to 4096"),
        ({"outer_momentum": (1, 1)}, "at least 0 and under 1"),
        ({"outer_momentum": (-1, 10)}, "at least 0 and under 1"),
        ({"f_agg": -1}, "0 to 1024 are allowed"),
        ({"rule": "mean", "f_agg": 1}, "mean tolerates f_agg 0, not 1"),
        ({"rule": "median"}, "'mean' or 'trimmed_mean'"),
        ({"codec": "top_k"}, "rule trimmed_mean drops what few send.* use rule mean with f_agg 0"),
        (SPARSE | {"error_feedback": False}, "top_k .* needs error_feedback"),
        ({"codec": "fp8"}, "'int8', 'int4' or 'top_k'"),
        ({"clip_norm": float("nan")}, "clip_norm is nan"),
        ({"norm_cap": 0.0}, "norm_cap is 0.0"),
        ({"clip_nrom": 1.0}, "Extra inputs"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_value(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        UpdatesConfig(**changed)


def test_the_default_tolerance_follows_the_number_of_contributors() -> None:
    counts = {1: 0, 3: 0, 4: 1, 6: 1, 7: 2, 10: 3, 100: 33}
    assert {count: UpdatesConfig().f_agg_among(count) for count in counts} == counts
    assert UpdatesConfig(f_agg=1).f_agg_among(100) == 1
    assert UpdatesConfig(rule="mean").f_agg_among(100) == 0


def test_the_norm_cap_becomes_an_exact_integer_on_the_grid() -> None:
    assert UpdatesConfig(norm_cap=3.0).norm_cap_squared == 9 * 2**48
    assert UpdatesConfig(norm_cap=2.0**-24).norm_cap_squared == 1
    assert UpdatesConfig(norm_cap=None).norm_cap_squared is None


@pytest.mark.parametrize(
    ("config", "codecs"),
    [
        ({}, ("int8", "int4")),
        ({"codec": "int4"}, ("int4",)),
        (MEAN, ("int8", "int4")),  # not top_k: back in int8, all that it owes would come at once
        (MEAN | {"codec": "int4"}, ("int4",)),
        (SPARSE, ("top_k",)),
    ],
)
def test_a_node_may_use_fewer_bits_than_the_ceiling_if_it_owes_alike(
    config: dict[str, Any], codecs: tuple[str, ...]
) -> None:
    assert UpdatesConfig(**config).codecs == codecs
