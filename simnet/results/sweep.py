"""Many seeds over all cores: what broke, which situations were met, and how to see one again.

A seed is a whole scenario of its own, or a given scenario run with that seed. Results come back in
the order of the seeds.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from simnet.checks.invariants import NO_CRASH
from simnet.checks.outcome import Outcome
from simnet.results import pool
from simnet.results.line_coverage import LineCoverage, Lines, by_package
from simnet.results.run import run
from simnet.world.fault_marks import every_mark
from simnet.world.random_clusters import random_daemons
from simnet.world.scenario import Scenario

# One a process, so that what all runs go through costs the first of them only.
_COVERAGE = LineCoverage()
MARKS_FROM_SEEDS = 500  # a sweep this long must have met every situation, of some 1 in 100 at least
MUST_MEET = (
    *("abort final", "caught up", "certificate asked for by who was behind"),
    *("change of members followed by who was away", "convicted member expelled"),
    *("core went on alone", "disk replaced by the operator", "epoch changed", "evidence found"),
    *("gap crossed", "joiner voted", "leader struck", "leader twin seen", "leaver stopped"),
    *("members changed across a partition", "quarantined", "refused by the disk", "rejoined"),
    *("restart mid-vote", "restarted after a change of members"),
    *("restarted while a change waited", "rotated key voted", "scouted", "stake changed"),
    "view nullified",
    *every_mark(),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that broke something; `replay` runs it again."""

    seed: int
    invariant: str
    detail: str
    replay: str


@dataclass(slots=True)
class Sweep:
    """What a sweep has come to so far."""

    seeds: int = 0
    cpu_s: float = 0.0
    blocks: int = 0
    failures: list[Failure] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)  # in how many runs
    recovered_s: list[float] = field(default_factory=list)  # after the last fault, virtual
    measured: int = 0  # seeds whose lines were watched
    lines: Lines = field(default_factory=dict)

    def add(self, other: "Sweep") -> None:
        self.seeds += other.seeds
        self.cpu_s += other.cpu_s
        self.blocks += other.blocks
        self.failures += other.failures
        self.met.update(other.met)
        self.recovered_s += other.recovered_s
        self.measured += other.measured
        for path, lines in other.lines.items():
            self.lines.setdefault(path, set()).update(lines)

    def never_met(self, wanted: Sequence[str]) -> list[str]:
        """Situations that this sweep was too short, or too kind, to be in."""
        return [mark for mark in wanted if not self.met[mark]]


@dataclass(frozen=True, slots=True)
class Swept:
    """What each seed stands for: a scenario with that seed, or one that the seed draws."""

    base: Scenario | None = None
    name: str = ""  # the scenario's, as a command line gives it
    fidelity: str | None = None  # instead of the scenario's; of those drawn, light if none
    is_watched: bool = False  # which lines each seed goes through, at twice the CPU or so

    def scenario(self, seed: int) -> Scenario:
        """Of one seed."""
        if self.base is not None:
            return self.base.model_copy(update={"seed": seed})
        drawn = random_daemons(seed)
        named = {} if self.fidelity is None else {"fidelity": self.fidelity}
        return drawn.model_copy(update=named)

    def looked_for(self) -> Sequence[str]:
        """Situations that a sweep is there for."""
        return MUST_MEET if self.base is None else ()

    def wanted(self, seeds: int) -> Sequence[str]:
        """Situations that so many seeds must have been in."""
        return self.looked_for() if seeds >= MARKS_FROM_SEEDS else ()

    def replay(self, seed: int) -> str:
        """The line that runs it again."""
        fidelity = "" if self.fidelity is None else f"--fidelity {self.fidelity}"
        words = [self.name, f"--seed {seed}", fidelity]
        return " ".join(filter(None, ["simnet replay", *words]))

    def one(self, seed: int) -> Sweep:
        """Run it; what it raises is a failure, too."""
        replay = self.replay(seed)
        try:
            with _COVERAGE.watching() if self.is_watched else nullcontext():
                found = _told(run(self.scenario(seed)), replay)
        except Exception as crash:
            return Sweep(1, failures=[Failure(seed, NO_CRASH, repr(crash), replay)])
        if self.is_watched:
            found.measured, found.lines = 1, _COVERAGE.seen
        return found


def sweep(seeds: range, swept: Swept, jobs: int | None = None) -> Iterator[Sweep]:
    """What each seed came to."""
    return pool.each(swept.one, seeds, jobs)


def _told(outcome: Outcome, replay: str) -> Sweep:
    recovered_s = outcome.facts.get("recovered_s")
    broken = [invariant for invariant in outcome.invariants if not invariant.ok]
    return Sweep(
        seeds=1,
        cpu_s=outcome.cpu_s,
        blocks=outcome.facts.get("blocks", 0),
        failures=[Failure(outcome.seed, b.name, b.detail, replay) for b in broken],
        met=Counter(mark.name for mark in outcome.sometimes if mark.hits),
        recovered_s=[] if recovered_s is None else [recovered_s],
    )


def figures(whole: Sweep) -> Iterator[str]:
    """What else a sweep has measured, in lines."""
    if whole.recovered_s:
        times_s = sorted(whole.recovered_s)
        middle, most = times_s[len(times_s) // 2], times_s[(len(times_s) - 1) * 19 // 20]
        yield (
            f"after the last fault everybody had followed within {middle:.1f} s (median), "
            f"{most:.1f} s in 19 of 20 runs, {times_s[-1]:.1f} s at most"
        )
    if whole.measured:
        share = 100 * whole.measured / whole.seeds
        yield f"lines inside functions, seen in {whole.measured} seeds ({share:.0f} % of all):"
        for package, seen, lines in by_package(whole.lines):
            yield f"  {package:24} {100 * seen / max(1, lines):5.1f} %  {seen} of {lines}"
