"""Whoever comes to train is vouched for again and again until it says that it is on the roll."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from daa_node.errors import UserError
from simnet.nodes.processes.cluster import Cluster
from simnet.nodes.processes.vouching import EVERY_NS, Vouching
from simnet.world.scenario import Scenario


class Doors:
    """What daemons answer, by directory; those that are asked are noted."""

    def __init__(self) -> None:
        self.parts = {"4": "observer", "5": "observer"}
        self.vouched: list[tuple[str, object]] = []
        self.refuse = {"3"}

    def ask(self, path: Path, command: str, **words: object) -> dict[str, Any]:
        name = path.parent.name
        if command == "status":
            return {"part": self.parts[name]}
        self.vouched.append((name, words["trainer"]))
        if name in self.refuse:
            raise UserError("it vouches for as many as it may")
        return {"vouched": True}


def world(admission: str) -> tuple[Doors, Any, Vouching]:
    nodes = [{"count": 4}, {"name": "coming", "count": 2, "role": "newcomer"}]
    scenario = Scenario.model_validate(
        {
            "name": "vouching",
            "fidelity": "process",
            "nodes": nodes,
            "work": {"trainers": {"admission": admission}},
        }
    )
    made: Any = [
        SimpleNamespace(
            index=at,
            pid=1,
            is_paused=False,
            directory=Path(str(at)),
            nature=SimpleNamespace(node_id=f"id {at}", liar="lies" if at == 1 else None),
        )
        for at in range(6)
    ]
    doors = Doors()
    cluster = cast(Cluster, SimpleNamespace(nodes=made))
    return doors, made, Vouching(scenario, cluster, doors.ask)


def test_an_honest_member_vouches_for_each_until_it_trains() -> None:
    doors, _, vouching = world("vouched")
    vouching.look(0)
    assert doors.vouched == [("2", "id 4"), ("3", "id 5")]  # the second of three, and the third
    vouching.look(EVERY_NS - 1)
    assert len(doors.vouched) == 2
    doors.parts["4"] = "trainer"
    vouching.look(EVERY_NS)
    vouching.look(2 * EVERY_NS)
    assert doors.vouched[2:] == 2 * [("0", "id 5")]  # the one before has refused
    doors.parts["5"] = "trainer"
    vouching.look(3 * EVERY_NS)
    vouching.look(4 * EVERY_NS)
    assert len(doors.vouched) == 4


def test_who_is_down_or_stands_still_is_asked_nothing() -> None:
    doors, nodes, vouching = world("vouched")
    nodes[2].pid, nodes[3].is_paused = None, True
    vouching.look(0)
    assert doors.vouched == []
    vouching.look(EVERY_NS)
    assert doors.vouched == [("0", "id 5")]


def test_where_nobody_vouches_nobody_is_asked() -> None:
    doors, _, vouching = world("open")
    vouching.look(0)
    assert doors.vouched == []
