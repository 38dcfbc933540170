"""What a decided round shows of those that it was planned for."""

from dataclasses import replace

import pytest

from daa_consensus.bft.messages import SetPayload
from daa_dag.ids import NodeId
from daa_node.contributors.score import Measure
from daa_node.rounds.observing import observed
from daa_node.rounds.plan import Plan
from tests.daa_node.rounds.test_rehearsal import BASE, NODES, ROUND, SHARES, set_of

PLAN = Plan(ROUND, BASE, BASE, SHARES, 256, 7_000_000)  # type: ignore[arg-type]
EVERYBODY = frozenset(NODES)


def of(node: NodeId, decided: SetPayload, **known: frozenset[NodeId]) -> dict[Measure, float]:
    seen = {"offered": EVERYBODY, "reachable": EVERYBODY, **known}
    return dict(observed(PLAN, decided, **seen)[node])


def with_steps(steps: int, us_per_step: int) -> SetPayload:
    first, *others = set_of(4).offers
    offers = (replace(first, steps=steps, us_per_step=us_per_step), *others)
    return replace(set_of(4), offers=offers)


def test_who_is_in_the_set_was_here_and_in_time() -> None:
    seen = of(NODES[0], set_of(4), reachable=frozenset())
    assert (seen[Measure.PRESENT], seen[Measure.IN_TIME]) == (1.0, 1.0)


def test_who_offered_and_is_not_in_the_set_was_late() -> None:
    left = {Measure.PRESENT: 1.0, Measure.IN_TIME: 0.0, Measure.CONTRIBUTED: 0.0}
    assert of(NODES[3], set_of(3)) == left


def test_who_is_here_and_offers_nothing_contributes_nothing() -> None:
    left = {Measure.PRESENT: 1.0, Measure.CONTRIBUTED: 0.0}
    assert of(NODES[3], set_of(3), offered=frozenset()) == left


def test_of_who_says_that_it_never_trains_nothing_is_missing() -> None:
    never = frozenset({NODES[3]})
    silent = of(NODES[3], set_of(3), offered=frozenset(), never_train=never)
    assert silent == {Measure.PRESENT: 1.0}
    offering = of(NODES[3], set_of(3), never_train=never)  # its word is broken
    assert offering[Measure.CONTRIBUTED] == 0.0


def test_of_who_is_away_only_that_is_seen() -> None:
    nobody = frozenset[NodeId]()
    assert of(NODES[3], set_of(3), offered=nobody, reachable=nobody) == {Measure.PRESENT: 0.0}


def test_what_counts_nothing_as_a_copy_says_nothing_of_who_trained() -> None:
    decided = set_of(4)
    voided = replace(decided, weights=(*decided.weights[:3], 0))
    assert Measure.CONTRIBUTED not in of(NODES[3], voided)
    assert Measure.CONTRIBUTED in of(NODES[0], voided)


@pytest.mark.parametrize(
    ("share_of_ceiling", "us_per_step", "done"),
    [(1.0, 1, 1.0), (0.5, 1, 1.0), (0.25, 1, 0.5)],
)
def test_half_of_the_steps_may_have_gone_into_checks(
    share_of_ceiling: float, us_per_step: int, done: float
) -> None:
    steps = int(SHARES[0].steps_max * share_of_ceiling)
    assert of(NODES[0], with_steps(steps, us_per_step))[Measure.CONTRIBUTED] == done


def test_nobody_owes_steps_that_it_had_no_time_for() -> None:
    slow_us = 7_000_000 // 4  # four steps fit
    assert of(NODES[0], with_steps(4, slow_us))[Measure.CONTRIBUTED] == 1.0
    assert of(NODES[0], with_steps(1, slow_us))[Measure.CONTRIBUTED] == 0.5
