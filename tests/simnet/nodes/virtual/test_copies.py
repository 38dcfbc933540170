"""Whole daemons give a copier's update no weight, in the round in which it comes, and no other."""

from typing import Any

import pytest

from daa_dag.checkpoint import Vertex
from daa_dag.ids import NodeId
from daa_node.observability import events
from daa_node.observability.events import EventLog
from daa_node.rounds.history import History
from simnet.nodes.virtual.world import run_virtual
from simnet.world.adversaries import disguise
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario
from tests.simnet.world.adversaries.copier import Copier

BASE: dict[str, Any] = {
    "name": "copied",
    "seed": 5,
    "fidelity": "light",
    "nodes": [{"count": 5}],
    "topology": {"preset": "datacenter"},
    "duration_s": 60,
    "work": {"kind": "training", "rounds": 20, "inner_steps_max": 8},
}
COPIER = [{"kind": "free_rider", "nodes": [4]}]


class Seen:
    """The vertices that nodes publish, by height, and what they tell."""

    def __init__(self) -> None:
        self.vertices: dict[int, Vertex] = {}
        self.copies: set[tuple[NodeId, NodeId, bool]] = set()

    @property
    def weights(self) -> list[list[int]]:
        return [[c.weight for c in vertex.contributors] for vertex in self.vertices.values()]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    made = Seen()
    add, emit = History.add, EventLog.emit

    def added(history: History, vertex: Vertex, *rest: Any) -> None:
        assert made.vertices.setdefault(vertex.height, vertex) == vertex
        add(history, vertex, *rest)

    def emitted(log: EventLog, name: Any, /, **fields: Any) -> None:
        if name == events.COPY_FOUND:
            made.copies.add((fields["author"], fields["origin"], fields["voided"]))
        emit(log, name, **fields)

    monkeypatch.setattr(History, "add", added)
    monkeypatch.setattr(EventLog, "emit", emitted)
    monkeypatch.setattr(disguise, "LyingTrainer", Copier)
    return made


def run(**changes: Any) -> None:
    outcome = run_virtual(Scenario.model_validate({**BASE, **changes}), Trace())
    assert [each.name for each in outcome.invariants if not each.ok] == []


@pytest.mark.parametrize("preset", ["datacenter", "mobile"])
def test_a_copier_counts_next_to_nothing_and_voids_nobody_whoever_leads(
    seen: Seen, preset: str
) -> None:
    """It leads as well, and then voids whom it has copied: that is refused.

    While connections are made, and where links differ, some hear of the copy first.
    """
    run(adversaries=COPIER, topology={"preset": preset}, duration_s=200)
    made = [c for vertex in seen.vertices.values() for c in vertex.contributors]
    (copier,) = {c.author for c in made if not c.weight}
    listed = [c for c in made if c.author == copier]
    assert len(listed) >= 15
    assert sum(bool(c.weight) for c in listed) <= 2
    assert {author for author, _, is_voided in seen.copies if is_voided} == {copier}


def test_what_counts_nothing_adds_no_tokens(seen: Seen) -> None:
    run(adversaries=COPIER, work={**BASE["work"], "rounds": 5})
    tokens = 0
    for _, vertex in sorted(seen.vertices.items()):
        tokens += sum(c.tokens for c in vertex.contributors if c.weight)
        assert vertex.tokens_total == tokens


def test_nobody_honest_is_void_in_forty_rounds(seen: Seen) -> None:
    run(work={**BASE["work"], "rounds": 40}, duration_s=200)
    assert len(seen.weights) >= 40
    assert all(all(weights) for weights in seen.weights)
    assert seen.copies == set()
