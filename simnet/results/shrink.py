"""Cut a failing scenario down to what it takes to fail the same way.

First every fault is pinned to its victims, so that leaving one out moves no other. Then, as long as
the same invariant breaks, or the same exception ends the run: leave out halves, quarters and single
ones (ddmin, Zeller and Hildebrandt 2002) of faults, liars and changes of members, then victims, and
shorten what is left.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from daa_node.errors import UserError
from simnet.checks.invariants import NO_CRASH
from simnet.checks.outcome import Outcome
from simnet.world.determinism import Streams
from simnet.world.faults import placed
from simnet.world.scenario import FOREVER_S, Scenario

RUNS_MAX = 400
SHORTEST_S = 0.05

T = TypeVar("T")


def broken(outcome: Outcome) -> str | None:
    """The invariant that a run broke."""
    return next((invariant.name for invariant in outcome.invariants if not invariant.ok), None)


def _found(scenario: Scenario, run: Callable[[Scenario], Outcome]) -> str | None:
    """The invariant that the run breaks, or the exception that ends it. Raises UserError."""
    try:
        return broken(run(scenario))
    except UserError:
        raise
    except Exception as crash:
        return f"{NO_CRASH}: {type(crash).__name__}"


def shrink(scenario: Scenario, run: Callable[[Scenario], Outcome]) -> Scenario | None:
    """A smaller scenario that fails in the same way; None if this one does not fail."""
    scenario = pinned(scenario)
    name = _found(scenario, run)
    if name is None:
        return None
    return _Shrinking(run, name).smallest(scenario)


def pinned(scenario: Scenario) -> Scenario:
    """The same scenario with every victim named, and attrition as the kills that it comes to."""
    faults = tuple(fault for _, fault in placed(scenario, Streams(scenario.seed)))
    return scenario.model_copy(update={"faults": faults})


class _Shrinking:
    def __init__(self, run: Callable[[Scenario], Outcome], name: str) -> None:
        self._run = run
        self._name = name
        self._runs = 0

    def smallest(self, scenario: Scenario) -> Scenario:
        scenario = self._no_longer_than_faults(scenario)
        before = None
        while scenario != before and self._runs < RUNS_MAX:
            before = scenario
            for key in ("faults", "adversaries", "changes"):
                scenario = self._fewer(scenario, key)
            for index in range(len(scenario.faults)):
                scenario = self._fewer_victims(scenario, index)
                scenario = self._shorter(scenario, index)
        return scenario

    def _fails(self, scenario: Scenario) -> bool:
        if self._runs >= RUNS_MAX:
            return False
        self._runs += 1
        return _found(scenario, self._run) == self._name

    def _no_longer_than_faults(self, scenario: Scenario) -> Scenario:
        """What fails amid the faults need not go on until everybody has recovered from them."""
        checks = scenario.checks.model_copy(update={"finalizations_after_heal": 0})
        shorter = scenario.model_copy(update={"checks": checks})
        return shorter if self._fails(shorter) else scenario

    def _fewer(self, scenario: Scenario, key: str) -> Scenario:
        def of(listed: Sequence[object]) -> Scenario:
            return scenario.model_copy(update={key: tuple(listed)})

        return of(_minimal(list(getattr(scenario, key)), lambda listed: self._fails(of(listed))))

    def _fewer_victims(self, scenario: Scenario, index: int) -> Scenario:
        for node in scenario.faults[index].nodes:
            nodes = tuple(other for other in scenario.faults[index].nodes if other != node)
            fault = scenario.faults[index].model_copy(update={"nodes": nodes})
            if nodes and not fault.parts_nobody(scenario.node_count):
                scenario = self._with(scenario, index, nodes=nodes)
        return scenario

    def _shorter(self, scenario: Scenario, index: int) -> Scenario:
        if scenario.faults[index].heals_s >= FOREVER_S:
            return scenario  # what heals late would be waited for
        for_s = scenario.faults[index].for_s
        while for_s / 2 >= SHORTEST_S:
            for_s /= 2
            shorter = self._with(scenario, index, for_s=round(for_s, 3))
            if shorter is scenario:
                break
            scenario = shorter
        return scenario

    def _with(self, scenario: Scenario, index: int, **changes: object) -> Scenario:
        """With one fault changed, if it fails so; else as it was."""
        faults = list(scenario.faults)
        faults[index] = faults[index].model_copy(update=changes)
        changed = scenario.model_copy(update={"faults": tuple(faults)})
        return changed if self._fails(changed) else scenario


def _minimal(items: list[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A part of `items` that still fails and of which nothing can be left out alone."""
    parts = 2
    while len(items) >= 1:
        size = max(1, len(items) // parts)
        for at in range(0, len(items), size):
            rest = items[:at] + items[at + size :]
            if fails(rest):
                items, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                return items
            parts = min(len(items), parts * 2)
    return items
