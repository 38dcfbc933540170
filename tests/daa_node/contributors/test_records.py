"""What a node notes of contributors, and what follows from it: nothing but an opinion."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from daa_dag.ids import NodeId
from daa_node.contributors.records import AUTHORS_MAX, HealthRecords
from daa_node.contributors.score import ROUNDS_KEPT, Level, Measure
from daa_node.observability.events import STANDING_CHANGED, EventLog
from daa_node.spot_checks.findings import Finding
from daa_node.spot_checks.usefulness import Usefulness, worths

ME, OTHER, THIRD = (NodeId(bytes([i]) * 32) for i in range(3))
ALL_DONE = {Measure.PRESENT: 1.0, Measure.IN_TIME: 1.0, Measure.CONTRIBUTED: 1.0}
LATE = {Measure.PRESENT: 1.0, Measure.IN_TIME: 0.0, Measure.CONTRIBUTED: 0.0}
AWAY = {Measure.PRESENT: 0.0}


class Bench:
    """Records of a node, whom it has cause to exclude, and what it tells."""

    def __init__(self) -> None:
        self.log = EventLog(lambda: 0)
        self.excluded: dict[NodeId, str] = {}
        self.records = HealthRecords(ME, self.excluded.get, self.log)
        self.round = 0

    def rounds(self, count: int, seen: Mapping[Measure, float], node: NodeId = OTHER) -> None:
        for _ in range(count):
            self.round += 1
            self.records.note_round(self.round, {ME: ALL_DONE, node: seen})

    def told(self) -> list[tuple[str, str]]:
        changes = [e for e in self.log.tail() if e["name"] == STANDING_CHANGED]
        return [(e["before"], e["level"]) for e in changes]

    def histories(self, node: NodeId = OTHER) -> dict[str, list[tuple[int, float]]]:
        told = self.records.told_of(node)
        assert told is not None
        measures: dict[str, Any] = {}
        for part in told["components"].values():
            measures |= part["measures"]
        return {name: [tuple(o) for o in seen["history"]] for name, seen in measures.items()}


def test_who_is_late_round_after_round_falls_to_low_and_comes_back() -> None:
    bench = Bench()
    bench.rounds(12, ALL_DONE)
    assert bench.records.level_of(OTHER) is Level.PRIORITY
    bench.rounds(8, LATE)
    assert bench.records.level_of(OTHER) is Level.LOW
    bench.rounds(40, ALL_DONE)
    assert bench.records.level_of(OTHER) is Level.PRIORITY
    assert bench.told() == [
        ("normal", "priority"),
        ("priority", "normal"),
        ("normal", "low"),
        ("low", "normal"),
        ("normal", "priority"),
    ]


def test_who_has_not_come_yet_is_not_away() -> None:
    bench = Bench()
    bench.rounds(5, AWAY)
    assert bench.records.told_of(OTHER) is None
    bench.rounds(1, ALL_DONE)
    bench.rounds(2, AWAY)
    assert bench.histories()["present"] == [(6, 1.0), (7, 0.0), (8, 0.0)]


def test_of_itself_a_node_has_no_opinion() -> None:
    bench = Bench()
    bench.rounds(3, ALL_DONE)
    bench.records.note_finding(ME, Finding.DIFFERS)
    assert bench.records.told_of(ME) is None


def test_many_answers_of_a_round_are_one_observation_and_a_fault_makes_it_nothing() -> None:
    bench = Bench()
    bench.records.note_answer(OTHER, 0.1, True)  # of a stranger
    bench.rounds(1, ALL_DONE)
    for took_s, has_come in ((0.1, True), (0.9, True), (4.0, True), (9.0, False)):
        bench.records.note_answer(OTHER, took_s, has_come)
    bench.rounds(1, ALL_DONE)
    bench.records.note_answer(OTHER, 0.1, True)
    bench.records.note_fault(OTHER, "late_offer")
    bench.rounds(1, ALL_DONE)
    bench.records.note_answer(OTHER, 0.1, True)
    bench.records.note_fault(OTHER, "chunk-mismatch")
    bench.rounds(2, ALL_DONE)
    assert bench.histories()["answered"] == [(2, 0.562), (3, 1.0), (4, 0.0)]


def test_a_check_that_nobody_had_time_for_says_nothing() -> None:
    bench = Bench()
    bench.rounds(1, ALL_DONE)
    for finding in Finding:
        bench.records.note_finding(OTHER, finding)
    assert bench.histories()["checked"] == [(1, 1.0), (1, 0.0), (1, 0.0)]


def test_an_exclusion_is_told_with_its_reason_and_outlives_the_seat() -> None:
    bench = Bench()
    bench.rounds(12, ALL_DONE)
    bench.excluded[OTHER] = "convicted"
    bench.rounds(1, ALL_DONE, THIRD)
    assert bench.records.level_of(OTHER) is Level.EXCLUDED
    del bench.excluded[OTHER]  # it was expelled, and is nobody's member any more
    bench.rounds(30, ALL_DONE, THIRD)
    told = bench.records.told_of(OTHER)
    assert told is not None
    assert (told["level"], told["excluded_because"]) == ("excluded", "convicted")
    bench.rounds(1, ALL_DONE)  # let in again
    assert bench.records.level_of(OTHER) is not Level.EXCLUDED


def test_histories_and_authors_are_bounded() -> None:
    bench = Bench()
    bench.rounds(ROUNDS_KEPT + 9, ALL_DONE)
    assert len(bench.histories()["present"]) == ROUNDS_KEPT
    for at in range(AUTHORS_MAX):
        bench.rounds(1, ALL_DONE, NodeId((1_000 + at).to_bytes(32)))
    assert bench.records.told_of(OTHER) is None


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(FLOATS, FLOATS, FLOATS, FLOATS), min_size=1, max_size=70))
def test_no_measures_of_updates_alone_exclude_anybody(
    measures: Sequence[tuple[float, float, float, float]],
) -> None:
    """Nor make anybody low who does all else that is asked."""
    bench = Bench()
    bench.rounds(20, ALL_DONE)
    for at, parts in enumerate(measures):
        bench.rounds(1, ALL_DONE)
        useful = Usefulness(at, 1.0, 0.5, 1.0, 0.5)
        bench.records.note_useful(
            bench.round, worths({OTHER: Usefulness(at, *parts), THIRD: useful, ME: useful})
        )
        assert bench.records.level_of(OTHER) in (Level.PRIORITY, Level.NORMAL)
