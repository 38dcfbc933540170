"""What a round and a fetch may take grows with the model."""

import pytest
from pydantic import ValidationError

from daa_node.genesis import Job
from daa_node.rounds.config import RoundsConfig
from daa_node.rounds.peers import SLOWEST_BYTES_PER_S, STATE_DEADLINE_S, time_for


def test_what_is_small_has_the_least_and_what_is_large_as_long_as_a_slow_link_takes() -> None:
    assert time_for(10**6, 120.0) == 120.0
    state_bytes = 4 * 2**30
    assert time_for(state_bytes, STATE_DEADLINE_S) == state_bytes / SLOWEST_BYTES_PER_S
    assert time_for(2 * state_bytes, 120.0) == 2 * time_for(state_bytes, 120.0)


def test_a_round_too_short_for_any_host_is_refused_with_the_least_that_will_do() -> None:
    model = {"width": 2048, "depth": 20, "heads": 16, "context": 8}  # a billion
    job = {"name": "vast", "model": model, "end": {"rounds": 1}, "spot_checks": {"share": [0, 1]}}
    with pytest.raises(ValidationError, match=r"window_ms is 10000, and with 1007\d+ parameters"):
        Job.model_validate(job)
    slow = {"window_ms": 600_000}
    with pytest.raises(ValidationError, match="exec_ms is 20000, .* set it to 503.. at least"):
        Job.model_validate({**job, "rounds": slow})
    assert Job.model_validate({**job, "rounds": {**slow, "exec_ms": 60_000}})


def test_what_hosts_trained_before_has_the_time_that_it_had() -> None:
    assert RoundsConfig(window_ms=100, exec_ms=100).why_too_short(2_000_000) is None
    assert RoundsConfig().why_too_short(200_000_000) is None
