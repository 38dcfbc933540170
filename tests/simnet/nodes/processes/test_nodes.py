"""Directories are a function of the scenario, and what real processes cannot do is refused."""

import pickle
from pathlib import Path

import pytest

from daa_node.errors import UserError
from simnet.nodes.processes.daemon import Nature
from simnet.nodes.processes.internets import Addresses
from simnet.nodes.processes.nodes import check_scenario, genesis_of, make_nodes
from simnet.world.job import job_of
from simnet.world.scenario import Scenario

BASE = {"name": "nodes", "fidelity": "process", "work": {"kind": "training", "rounds": 7}}


ADDRESSES = Addresses(tuple(f"/ip4/10.86.0.{node + 1}/tcp/4001" for node in range(5)))


def scenario(**changes: object) -> Scenario:
    return Scenario.model_validate(BASE | changes)


def made(wanted: Scenario, root: Path) -> list[Nature]:
    return make_nodes(wanted, root, ADDRESSES, root / "workers", dialable=True)


def test_one_seed_makes_one_network_and_another_seed_another(tmp_path: Path) -> None:
    chains = [
        genesis_of(made(scenario(seed=seed), tmp_path / name)[0].directory).chain_id
        for name, seed in (("a", 5), ("b", 5), ("c", 6))
    ]
    assert chains[0] == chains[1] != chains[2]


def test_the_job_ends_with_the_scenarios_rounds_and_waits_as_long_as_it_says() -> None:
    job = job_of(scenario(work={"kind": "training", "rounds": 7, "delta_ms": 900, "window_s": 4}))
    assert job.end.rounds == 7
    assert job.agreement.delta_ms == 900
    assert job.rounds.window_ms == 4000


def test_classes_differ_in_stake_speed_and_role(tmp_path: Path) -> None:
    nodes = [
        {"name": "rich", "count": 2, "stake": 9, "speed": 4},
        {"name": "poor", "count": 2, "speed": 1},
        {"name": "eye", "count": 1, "role": "observer", "speed": 2},
    ]
    natures = made(scenario(nodes=nodes), tmp_path)
    assert [nature.slowness for nature in natures] == [1, 1, 4, 4, 2]
    body = genesis_of(natures[4].directory).body
    stakes = {entry.node_id: entry.stake for entry in body.validators}
    assert stakes == dict(
        zip([nature.node_id for nature in natures[:4]], [9, 9, 1, 1], strict=True)
    )


def test_a_class_has_its_own_limits_in_its_settings(tmp_path: Path) -> None:
    nodes = [{"count": 1}, {"name": "capped", "count": 1, "limits": {"upload_mbit_s": 5}}]
    natures = made(scenario(nodes=nodes), tmp_path)
    told = ["\n  upload_mbit_s: 5.0\n" in settings_of(nature) for nature in natures]
    assert told == [False, True]


def test_a_class_that_never_trains_has_that_in_its_settings(tmp_path: Path) -> None:
    nodes = [{"count": 3}, {"name": "light", "count": 1, "trainer": {"contribute": False}}]
    natures = made(scenario(nodes=nodes), tmp_path)
    told = ["contribute: true}" in settings_of(nature) for nature in natures]
    assert told == [True, True, True, False]


def settings_of(nature: Nature) -> str:
    return (nature.directory / "config.yaml").read_text()


def test_trainers_are_in_the_genesis_and_do_not_vote(tmp_path: Path) -> None:
    nodes = [{"count": 3}, {"name": "trainer", "count": 2, "role": "trainer"}]
    natures = made(scenario(nodes=nodes), tmp_path)
    body = genesis_of(natures[0].directory).body
    assert {entry.node_id for entry in body.trainers} == {n.node_id for n in natures[3:]}
    assert {entry.node_id for entry in body.validators} == {n.node_id for n in natures[:3]}


def test_liars_know_each_other_and_a_nature_survives_the_line_to_the_warm_parent(
    tmp_path: Path,
) -> None:
    liars = [{"kind": "babbler", "nodes": [1]}, {"kind": "poisoner", "poison": "huge"}]
    natures = made(scenario(adversaries=liars), tmp_path)
    found = {i: nature.liar for i, nature in enumerate(natures) if nature.liar is not None}
    assert len(found) == 2
    assert found[1].config.kind == "babbler"
    assert {len(liar.league) for liar in found.values()} == {2}
    for nature in natures:
        assert pickle.loads(pickle.dumps(nature)) == nature


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"work": {"kind": "training", "model": "virtual"}}, "virtual"),
        ({"nodes": [{"count": 33}]}, "33 nodes"),
        ({"adversaries": [{"kind": "twin"}]}, "adversaries[0] twin"),
    ],
)
def test_what_processes_cannot_do_is_refused_by_name(changes: dict[str, object], word: str) -> None:
    with pytest.raises(UserError, match="cannot do") as refused:
        check_scenario(scenario(**changes))
    assert word in str(refused.value)
