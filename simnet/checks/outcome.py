"""What a run came to: the answer of `simnet run --json`, whatever the fidelity."""

import resource
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

SCHEMA_VERSION = 1
# the files of a run that is kept
TRACE_FILE, OUTCOME_FILE, SCENARIO_FILE = "trace.jsonl", "outcome.json", "scenario.yaml"
ROUTERS = "routers"  # of the facts: how each node behind one got through


@dataclass(frozen=True, slots=True)
class Invariant:
    """One thing that must hold throughout; `detail` says where it did not."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A situation that a sweep must have been in at least once, and how often this run was."""

    name: str
    hits: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """`facts` hold what only this kind of run measures: participation, goodput, link rates."""

    scenario: str
    seed: int
    fidelity: str
    nodes: int
    virtual_s: float
    wall_s: float
    cpu_s: float
    trace_hash: str
    final_roots: tuple[str, ...]  # of the honest nodes, distinct and sorted: one if they agree
    invariants: tuple[Invariant, ...]
    sometimes: tuple[Mark, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(invariant.ok for invariant in self.invariants)

    def as_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "ok": self.ok, **asdict(self)}

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> "Outcome":
        """What `as_json` said. Raises KeyError, TypeError or ValueError for anything else."""
        if told["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {told['schema_version']}")
        named = {name: told[name] for name in told if name not in ("schema_version", "ok")}
        return cls(
            **named
            | {
                "final_roots": tuple(told["final_roots"]),
                "invariants": tuple(Invariant(**each) for each in told["invariants"]),
                "sometimes": tuple(Mark(**each) for each in told["sometimes"]),
            }
        )


class Stopwatch:
    """Started with a run, whose outcome it makes."""

    def __init__(self) -> None:
        self._began_s = perf_counter(), cpu_s()

    @property
    def used_s(self) -> float:
        """CPU so far."""
        return cpu_s() - self._began_s[1]

    def outcome(
        self,
        scenario: Scenario,
        trace: Trace,
        virtual_s: float,
        final_roots: tuple[str, ...],
        invariants: Sequence[Invariant],
        met: Counter[str],
        facts: dict[str, Any],
    ) -> Outcome:
        """`met`: situations that the run was in; those that the scenario wants must be among them.

        What was wanted and not met is broken, too.
        """
        wanted = scenario.checks.sometimes
        never = [name for name in wanted if not met[name]]
        wall_s, used_s = self._began_s
        return Outcome(
            scenario=scenario.name,
            seed=scenario.seed,
            fidelity=scenario.fidelity,
            nodes=scenario.node_count,
            virtual_s=virtual_s,
            wall_s=perf_counter() - wall_s,
            cpu_s=cpu_s() - used_s,
            trace_hash=trace.digest(),
            final_roots=final_roots,
            invariants=(
                *invariants,
                *(Invariant(f"sometimes {name}", False, "this run never was") for name in never),
            ),
            sometimes=tuple(Mark(name, met[name]) for name in sorted({*met, *wanted})),
            facts=facts,
        )


def nothing(name: str, wrong: Sequence[str]) -> Invariant:
    """Holds when nothing is wrong."""
    return Invariant(name, not wrong, "; ".join(wrong))


def cpu_s() -> float:
    """Of this process, and of its children that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in usage)
