"""What a run came to: the answer of `simnet run --json`, whatever the fidelity."""

from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA_VERSION = 1
# the files of a run that is kept
TRACE_FILE, OUTCOME_FILE, SCENARIO_FILE = "trace.jsonl", "outcome.json", "scenario.yaml"


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
