"""Many seeds over all cores: what broke, which situations were met, and how to see one again.

A seed is a whole scenario of its own, or a given scenario run with that seed. Seeds go to processes
in batches, and results come back in their order.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from simnet import pool
from simnet.invariants import NO_CRASH
from simnet.outcome import Outcome
from simnet.random_scenarios import random_scenario
from simnet.run import run
from simnet.scenario import Scenario

BATCH_SEEDS = 20
MARKS_FROM_SEEDS = 500  # a sweep this long must have met every situation
# Situations that a sweep of random scenarios must have been in.
MUST_MEET = (
    "abort final",
    "certificate fetched by who was behind",
    "change of members followed by who was away",
    "convicted member expelled",
    "damaged file moved away by the operator",
    "epoch changed",
    "evidence found",
    "held letters released",
    "joiner voted",
    "leader struck",
    "leader twin seen",
    "leaver stopped",
    "log led the guard after a power cut",
    "members changed across a partition",
    "page of checkpoints followed",
    "partition healed",
    "power lost while writing",
    "quarantine entered",
    "quarantine left",
    "restart mid-vote",
    "restarted after a change of members",
    "restarted while a change waited",
    "rotated key voted",
    "stake changed",
    "view nullified",
    "vote refused by disk",
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

    def add(self, other: "Sweep") -> None:
        self.seeds += other.seeds
        self.cpu_s += other.cpu_s
        self.blocks += other.blocks
        self.failures += other.failures
        self.met.update(other.met)

    def never_met(self, wanted: Sequence[str]) -> list[str]:
        """Situations that this sweep was too short, or too kind, to be in."""
        return [mark for mark in wanted if not self.met[mark]]


def scenario_of(seed: int, base: Scenario | None) -> Scenario:
    """What a seed stands for."""
    return random_scenario(seed) if base is None else base.model_copy(update={"seed": seed})


def sweep(
    seeds: range, base: Scenario | None, name: str, jobs: int | None = None
) -> Iterator[Sweep]:
    """What each batch came to. `name` is the scenario's as a command line gives it, or nothing."""
    batches = [seeds[at : at + BATCH_SEEDS] for at in range(0, len(seeds), BATCH_SEEDS)]
    return pool.each(partial(_batch, base=base, name=name), batches, jobs)


def _batch(seeds: range, base: Scenario | None, name: str) -> Sweep:
    found = Sweep()
    with _collecting_between_runs() if base is None else nullcontext():
        for seed in seeds:
            replay = " ".join(filter(None, ["simnet replay", name, f"--seed {seed}"]))
            try:
                found.add(_one(run(scenario_of(seed, base)), replay))
            except Exception as crash:
                found.add(Sweep(1, failures=[Failure(seed, NO_CRASH, repr(crash), replay)]))
            if base is None:
                gc.collect()
    return found


@contextmanager
def _collecting_between_runs() -> Iterator[None]:
    """A small world goes as a whole: looking for its cycles while it runs costs a tenth."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _one(outcome: Outcome, replay: str) -> Sweep:
    broken = [invariant for invariant in outcome.invariants if not invariant.ok]
    return Sweep(
        seeds=1,
        cpu_s=outcome.cpu_s,
        blocks=outcome.facts.get("blocks", 0),
        failures=[Failure(outcome.seed, b.name, b.detail, replay) for b in broken],
        met=Counter(mark.name for mark in outcome.sometimes if mark.hits),
    )
