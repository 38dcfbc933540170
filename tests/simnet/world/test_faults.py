"""A scenario's faults as edges in time: in order, each with its end, victims drawn by the seed."""

from typing import Any

import pytest

from simnet.world.determinism import Streams
from simnet.world.faults import Aims, Edge, healed_ns, parts, timeline
from simnet.world.links import NS
from simnet.world.scenario import FOREVER_S, Scenario


def scenario(*faults: dict[str, Any], count: int = 10) -> Scenario:
    return Scenario.model_validate(
        {"name": "t", "duration_s": 100, "nodes": [{"count": count}], "faults": list(faults)}
    )


def edges(*faults: dict[str, Any], count: int = 10, seed: int = 1) -> list[Edge]:
    return timeline(scenario(*faults, count=count), Streams(seed))


def test_each_fault_begins_and_ends_and_all_edges_are_in_order() -> None:
    late = {"kind": "kill", "at_s": 5, "for_s": 1, "nodes": [3]}
    early = {"kind": "loss", "at_s": 1, "for_s": 10, "nodes": [1, 2]}
    found = [(e.at_ns / NS, e.begins, e.fault.kind, e.nodes) for e in edges(late, early)]
    assert found == [
        (1, True, "loss", (1, 2)),
        (5, True, "kill", (3,)),
        (6, False, "kill", (3,)),
        (11, False, "loss", (1, 2)),
    ]


@pytest.mark.parametrize(
    ("fault", "victims"),
    [
        ({"kind": "kill"}, 1),
        ({"kind": "slow"}, 1),
        ({"kind": "partition"}, 5),
        ({"kind": "partition", "shape": "bridge"}, 5),
        ({"kind": "partition", "shape": "isolate"}, 1),
    ],
)
def test_victims_left_open_are_drawn_by_the_seed(fault: dict[str, Any], victims: int) -> None:
    drawn = {edges(fault | {"at_s": 1, "for_s": 1}, seed=seed)[0].nodes for seed in range(20)}
    assert len(drawn) > 4
    for nodes in drawn:
        assert len(nodes) == victims
        assert list(nodes) == sorted(set(nodes))
        assert set(nodes) <= set(range(10))
    begin, end = edges(fault | {"at_s": 1, "for_s": 1})
    assert begin.nodes == end.nodes
    assert edges(fault | {"at_s": 1, "for_s": 1}) == [begin, end]


def test_one_fault_more_changes_nobody_else_s_victims() -> None:
    kill = {"kind": "kill", "at_s": 1, "for_s": 1}
    alone = edges(kill)
    assert [e for e in edges(kill, kill | {"at_s": 50}) if e.at_ns <= 2 * NS] == alone


def test_an_aimed_fault_names_nobody_before_it_begins_and_heals_where_it_began() -> None:
    aimed = {"kind": "kill", "aim": "leader", "for_s": 2}
    due = edges(aimed | {"at_s": 1}, aimed | {"at_s": 2}, aimed | {"at_s": 5})
    assert {edge.nodes for edge in due} == {()}
    leaders = iter([7, 4, None])
    aims = Aims(lambda: next(leaders))
    taken = [aims.taken(edge) for edge in due]
    assert [(e.at_ns // NS, e.begins, e.nodes) for e in taken] == [
        (1, True, (7,)),
        (2, True, (4,)),
        (3, False, (7,)),
        (4, False, (4,)),
        (5, True, ()),
        (7, False, ()),
    ]
    (named, _) = edges(aimed | {"aim": None, "at_s": 1, "nodes": [3]})
    assert aims.taken(named) is named


def test_all_has_healed_when_the_last_that_heals_has() -> None:
    assert healed_ns(scenario()) == 0
    short = {"kind": "kill", "at_s": 5, "for_s": 2}
    assert healed_ns(scenario(short, {"kind": "loss", "at_s": 1, "for_s": 3})) == 7 * NS
    assert healed_ns(scenario(short, {"kind": "kill", "at_s": 1})) == 7 * NS
    assert healed_ns(scenario(short, {"kind": "kill", "at_s": 9})) == 9 * NS  # and stays gone


def test_a_fault_without_an_end_ends_after_everything() -> None:
    begin, end = edges({"kind": "kill", "at_s": 3})
    assert (begin.at_ns, end.at_ns) == (3 * NS, int(FOREVER_S) * NS)


def test_attrition_kills_its_share_a_minute_and_nobody_who_is_down() -> None:
    attrition = {"kind": "attrition", "at_s": 10, "for_s": 60, "percent": 50, "away_s": (1, 5)}
    found = edges(attrition, count=2000)
    kills = [edge for edge in found if edge.begins]
    assert len(kills) == pytest.approx(1000, rel=0.1)
    assert [edge.at_ns for edge in found] == sorted(edge.at_ns for edge in found)
    down: set[int] = set()
    for edge in found:
        (victim,) = edge.nodes
        assert edge.fault.kind == "kill"
        assert 10 * NS <= edge.at_ns <= 70 * NS
        assert (victim in down) is not edge.begins
        down ^= {victim}
    assert not down


def test_parts_of_a_partition() -> None:
    assert parts("halves", (0, 1), 4) == [{0, 1}, {2, 3}]
    assert parts("bridge", (0, 1), 4) == [{0, 1}, {0, 2, 3}]
    assert parts("isolate", (0, 1), 4) == [{0}, {1}, {2, 3}]
    assert parts("one_way", (0, 1), 4) == parts("flapping", (0, 1), 4) == [{0, 1}, {2, 3}]
