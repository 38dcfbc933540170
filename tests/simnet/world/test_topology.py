"""Which link lies between two nodes, and whom a node gossips with."""

from typing import Any, get_args

import pytest

from simnet.world.determinism import Streams
from simnet.world.links import MS
from simnet.world.scenario import Preset, Scenario
from simnet.world.topology import MBIT, TIERS, Topology


def topology(seed: int = 1, nodes: Any = 40, **config: Any) -> Topology:
    groups = [{"count": nodes}] if isinstance(nodes, int) else nodes
    scenario = Scenario.model_validate({"name": "t", "nodes": groups, "topology": config})
    return Topology(scenario, Streams(seed))


def pairs(count: int) -> list[tuple[int, int]]:
    return [(one, other) for one in range(count) for other in range(one)]


def test_every_preset_is_a_tier_or_the_mix_of_them() -> None:
    assert set(get_args(Preset)) == {*TIERS, "three_tier"}


@pytest.mark.parametrize("preset", sorted(TIERS))
def test_links_are_within_their_tier_and_alike_in_both_directions(preset: Preset) -> None:
    world, tier = topology(preset=preset), TIERS[preset]
    latencies = set()
    for one, other in pairs(40):
        there, back = world.link(one, other), world.link(other, one)
        assert there == back == world.link(one, other)
        assert tier.latency_ms[0] * MS <= there.latency_ns <= tier.latency_ms[1] * MS
        assert there.bits_per_s == tier.mbit_s * MBIT
        assert there.loss_ppm == int(tier.loss_percent * 10_000)
        latencies.add(there.latency_ns)
    assert len(latencies) > 700  # each pair has its own
    middle = sum(tier.latency_ms) / 2 * MS
    assert sum(latencies) / len(latencies) == pytest.approx(middle, rel=0.1)


def test_three_tiers_are_local_in_a_site_regional_in_a_region_and_wan_between() -> None:
    world = topology(preset="three_tier")
    found = {}
    for one, other in pairs(40):
        tier = world.tier_between(one, other)
        assert tier == world.tier_between(other, one)
        found[(one, other)] = next(name for name in TIERS if TIERS[name] == tier)
    assert set(found.values()) == {"local", "regional", "wan"}

    def same(one: int, other: int, *names: str) -> bool:
        return found[max(one, other), min(one, other)] in names

    for one, other in pairs(40):
        for third in range(other):
            # being in one site, and being in one region, are equivalences
            for names in (("local",), ("local", "regional")):
                if same(one, other, *names) and same(other, third, *names):
                    assert same(one, third, *names)


def test_a_scenario_changes_single_things_about_a_preset() -> None:
    changed = topology(
        preset="wan",
        latency_ms=(5, 5),
        jitter_ms=0,
        mbit_s=3.5,
        loss_percent=0,
        reorder_percent=2,
    ).link(1, 2)
    assert (changed.latency_ns, changed.jitter_ns) == (5 * MS, 0)
    assert (changed.bits_per_s, changed.loss_ppm, changed.reorder_ppm) == (3_500_000, 0, 20_000)


def test_access_links_bound_what_is_sent_and_what_is_received() -> None:
    groups = [
        {"name": "home", "count": 2, "up_mbit_s": 1, "down_mbit_s": 10},
        {"name": "rack", "count": 2},
    ]
    world = topology(nodes=groups, preset="datacenter")
    assert world.link(0, 2).bits_per_s == MBIT
    assert world.link(2, 0).bits_per_s == 10 * MBIT
    assert world.link(0, 1).bits_per_s == MBIT
    assert world.link(2, 3).bits_per_s == 10_000 * MBIT


def test_the_slowest_link_is_not_an_unlimited_one() -> None:
    assert topology(mbit_s=1e-9).link(0, 1).bits_per_s == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("nodes", "degree"), [(1000, 8), (100, 2), (50, 9), (9, 8), (2, 8), (1, 8)]
)
def test_a_mesh_is_connected_mutual_and_of_about_the_wanted_degree(
    nodes: int, degree: int, seed: int
) -> None:
    mesh = topology(seed, nodes, degree=degree).mesh()
    assert len(mesh) == nodes
    for node, peers in enumerate(mesh):
        assert list(peers) == sorted(set(peers) - {node})
        assert all(node in mesh[peer] for peer in peers)
        assert len(peers) <= degree
    reached, ahead = {0}, [0]
    while ahead:
        news = set(mesh[ahead.pop()]) - reached
        reached |= news
        ahead.extend(news)
    assert len(reached) == nodes
    if nodes >= 100:
        assert sum(map(len, mesh)) / nodes > degree * 0.9


def test_graphs_of_different_names_and_seeds_differ_and_of_one_are_the_same() -> None:
    one, again, other = topology(1), topology(1), topology(2)
    assert one.mesh() == again.mesh() == one.graph("mesh", 8)
    assert one.mesh() != one.graph("lazy", 8)
    assert one.mesh() != other.mesh()
    assert one.link(3, 4) == again.link(3, 4) != other.link(3, 4)
