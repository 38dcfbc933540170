"""Directories are a function of the scenario, and what real processes cannot do is refused."""

from pathlib import Path

import pytest

from daa_node.errors import UserError
from simnet.processes.nodes import check_scenario, genesis_of, job_of, make_nodes
from simnet.scenario import Scenario

BASE = {"name": "nodes", "fidelity": "process", "work": {"kind": "training", "rounds": 7}}


class Places:
    """Where nothing ever runs."""

    def listen(self, node: int) -> str:
        return f"/ip4/10.86.0.{node + 1}/tcp/4001"

    def announce(self, node: int) -> str | None:
        return None

    def dial(self, node: int, other: int) -> str:
        return self.listen(other)


def scenario(**changes: object) -> Scenario:
    return Scenario.model_validate(BASE | changes)


def test_one_seed_makes_one_network_and_another_seed_another(tmp_path: Path) -> None:
    chains = [
        genesis_of(make_nodes(scenario(seed=seed), tmp_path / name, Places())[0]).chain_id
        for name, seed in (("a", 5), ("b", 5), ("c", 6))
    ]
    assert chains[0] == chains[1] != chains[2]


def test_the_job_ends_with_the_scenarios_rounds_and_waits_as_long_as_it_says() -> None:
    job = job_of(scenario(work={"kind": "training", "rounds": 7, "delta_ms": 900, "window_s": 4}))
    assert job.end.rounds == 7
    assert job.agreement.delta_ms == 900
    assert job.rounds.window_ms == 4000


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"work": {"kind": "gossip"}}, "gossip"),
        ({"work": {"kind": "training", "model": "virtual"}}, "virtual"),
        ({"nodes": [{"count": 33}]}, "33 nodes"),
        ({"nodes": [{"count": 4}, {"name": "eye", "role": "observer"}]}, "eye as observer"),
        ({"nodes": [{"count": 4, "speed": 0.5}]}, "speed 0.5"),
        ({"nodes": [{"count": 4}, {"name": "rich", "stake": 9}]}, "another stake"),
        ({"faults": [{"kind": "clock", "at_s": 1, "for_s": 1}]}, "faults[0] clock"),
        ({"adversaries": [{"kind": "babbler"}]}, "adversaries"),
    ],
)
def test_what_processes_cannot_do_is_refused_by_name(changes: dict[str, object], word: str) -> None:
    with pytest.raises(UserError, match="cannot do") as refused:
        check_scenario(scenario(**changes))
    assert word in str(refused.value)
