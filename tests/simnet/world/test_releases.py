"""Upgrades are stops in a row, and who comes back speaks what its new release does."""

from typing import Any

import pytest
from pydantic import ValidationError

from daa_node.wire.protocols import OURS, Versions
from simnet.world.determinism import Streams
from simnet.world.faults import healed_ns, timeline
from simnet.world.links import NS
from simnet.world.random_clusters import random_daemons
from simnet.world.releases import NEXT_RELEASE, THIS_RELEASE, spoken_by
from simnet.world.scenario import Scenario

UPGRADE = {"speaks": [1, 2], "at_s": 5, "every_s": 3, "away_s": 1}
NODES: list[dict[str, Any]] = [
    {"name": "new", "count": 1, "speaks": [1, 2]},
    {"name": "old", "count": 2, "upgrade": UPGRADE},
]


def scenario(**changes: Any) -> Scenario:
    work = {"kind": "training", "rounds": 3}
    fields = {"name": "releases", "fidelity": "light", "nodes": NODES, "work": work}
    return Scenario.model_validate({**fields, **changes})


def test_the_nodes_of_a_class_are_stopped_one_after_the_other() -> None:
    world = scenario(faults=[{"kind": "kill", "nodes": [0], "at_s": 1, "for_s": 1}])
    edges = [(e.at_ns / NS, e.begins, e.nodes) for e in timeline(world, Streams(0))]
    assert edges[2:] == [(5, True, (1,)), (6, False, (1,)), (8, True, (2,)), (9, False, (2,))]
    assert healed_ns(world) == 9 * NS


def test_who_comes_back_from_it_speaks_what_its_new_release_does() -> None:
    classes = scenario().nodes
    assert [spoken_by(classes, 0, at_s) for at_s in (0, 100)] == [Versions(1, 2)] * 2
    assert [spoken_by(classes, 1, at_s).most for at_s in (0, 4.9, 5, 6)] == [1, 1, 2, 2]
    assert [spoken_by(classes, 2, at_s).most for at_s in (6, 7.9, 8, 9)] == [1, 1, 2, 2]
    assert spoken_by(classes, 7, 100) == OURS  # a volunteer


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([{"count": 4, "speaks": [2, 1]}], "the least version comes first"),
        ([{"count": 4, "speaks": [1, 70_000]}], "less than or equal to 65535"),
        ([{"count": 4, "upgrade": {**UPGRADE, "away_s": 0}}], "greater than 0"),
    ],
)
def test_what_is_no_release_is_refused(nodes: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        scenario(nodes=nodes)


@pytest.mark.parametrize("fidelity", ["heap", "process"])
def test_other_ways_to_run_nodes_refuse_it_by_name(fidelity: str) -> None:
    with pytest.raises(ValidationError, match="`speaks` takes `fidelity: light` or `trio`"):
        scenario(fidelity=fidelity)


@pytest.mark.parametrize("fidelity", ["heap", "light", "process"])
def test_a_scenario_that_was_written_in_full_reads_back_as_it_was(fidelity: str) -> None:
    kind = "rounds" if fidelity == "heap" else "training"
    work = {"kind": kind, "rounds": 3}
    world = scenario(fidelity=fidelity, nodes=[{"count": 4}], work=work)
    assert Scenario.model_validate_json(world.model_dump_json()) == world


def test_some_random_worlds_mix_releases_and_upgrade_while_all_heals() -> None:
    mixed = 0
    for seed in range(200):
        world = random_daemons(seed)
        assert all(group.speaks in (THIS_RELEASE, NEXT_RELEASE) for group in world.nodes)
        spoken = {group.speaks for group in world.nodes}
        upgraded = any(group.upgrade is not None for group in world.nodes)
        mixed += upgraded or len(spoken) > 1
        assert healed_ns(world) <= world.duration_s * NS
    assert 8 <= mixed <= 50
