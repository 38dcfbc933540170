"""Change one factor of a scenario and nothing else, over several seeds; figures side by side.

Every value of the factor is run with the same seeds, so that both meet the same speeds and the same
faults. Of each figure the mean over seeds is shown, with the least and the greatest. Participation
and each class's results are always among them: a mean over all hides who was left behind.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from daa_node.config_file import Override
from daa_node.errors import UserError
from simnet import run as running
from simnet.outcome import SCHEMA_VERSION, Outcome
from simnet.scenario_file import open_scenario

SEEDS_MAX = 1000
# What is compared where a run measured it, in this order; of classes, what comes after.
FIGURES = (
    "rounds",
    "aborted",
    "round_s_mean",
    "tokens_per_s",
    "goodput",
    "participation",
    "compute_utilisation",
    "useful_utilisation",
    "left_out",
    "loss_nats",
)
CLASS_FIGURES = ("participation", "steps_certified", "tokens_certified", "compute_utilisation")
_ITEMS = re.compile(r",(?![^\[{]*[\]}])")  # commas outside of brackets


@dataclass(frozen=True, slots=True)
class Factor:
    """What is varied, and the values as YAML texts."""

    path: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over the seeds."""

    mean: float
    least: float
    greatest: float

    def __str__(self) -> str:
        if self.least == self.greatest:
            return f"{self.mean:.6g}"
        return f"{self.mean:.4g} ({self.least:.4g} to {self.greatest:.4g})"


@dataclass(frozen=True, slots=True)
class Column:
    """All runs with one value of the factor."""

    value: str
    seeds: tuple[int, ...]
    figures: dict[str, Spread]
    broken: tuple[str, ...]  # invariants, with their seeds


def parse_factor(texts: Sequence[str]) -> Factor:
    """`work.adaptive=true,false`. Raises UserError, also if there is more than one."""
    if len(texts) != 1:
        raise UserError(
            f"{len(texts)} factors: change one at a time, or nobody knows which one did it"
        )
    path, equals, values = texts[0].partition("=")
    items = tuple(item.strip() for item in _ITEMS.split(values))
    if not path or not equals or not all(items):
        raise UserError(f"--factor {texts[0]!r}: write it like work.adaptive=true,false")
    if len(set(items)) < 2 or len(set(items)) != len(items):
        raise UserError(f"--factor {texts[0]!r}: name two different values or more")
    return Factor(path, items)


def compare(
    name: str,
    factor: Factor,
    seeds: int,
    told: Callable[[str], None] = lambda _: None,
    fidelity: str | None = None,
) -> list[Column]:
    """Run everything; `told` hears a line after each run. Raises UserError."""
    if not 1 <= seeds <= SEEDS_MAX:
        raise UserError(f"--seeds {seeds}: 1 to {SEEDS_MAX} are possible")
    keys = tuple(int(key) if key.isdigit() else key for key in factor.path.split("."))
    first = open_scenario(name).seed
    columns = []
    for value in factor.values:
        outcomes = []
        for seed in range(first, first + seeds):
            changed = Override(keys, value, f"flag --factor {factor.path}={value}")
            scenario = open_scenario(name, seed=seed, fidelity=fidelity, overrides=(changed,))
            outcomes.append(running.run(scenario))
            told(f"{factor.path}={value}, seed {seed}: {outcomes[-1].cpu_s:.1f} s CPU")
        columns.append(_column(value, outcomes))
    return columns


def table(factor: Factor, columns: Sequence[Column]) -> str:
    """For a terminal: a line a figure, a column a value."""
    names = list(dict.fromkeys(name for column in columns for name in column.figures))
    head = ["", *(f"{factor.path}={column.value}" for column in columns)]
    rows = [head] + [
        [name, *(str(column.figures.get(name, "-")) for column in columns)] for name in names
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    seeds = columns[0].seeds
    lines.append(f"mean over seeds {seeds[0]} to {seeds[-1]}, in brackets least and greatest")
    lines += [f"BROKEN with {factor.path}={c.value}: {what}" for c in columns for what in c.broken]
    return "\n".join(lines)


def as_json(factor: Factor, columns: Sequence[Column]) -> dict[str, Any]:
    """The same as data: mean, least and greatest of every figure."""
    return {
        "schema_version": SCHEMA_VERSION,
        "factor": factor.path,
        "columns": [
            {
                "value": column.value,
                "seeds": list(column.seeds),
                "broken": list(column.broken),
                "figures": {
                    name: {"mean": s.mean, "least": s.least, "greatest": s.greatest}
                    for name, s in column.figures.items()
                },
            }
            for column in columns
        ],
    }


def _column(value: str, outcomes: Sequence[Outcome]) -> Column:
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, figure in _figures(outcome).items():
            found.setdefault(name, []).append(figure)
    broken = tuple(
        f"{invariant.name} (seed {outcome.seed}): {invariant.detail}"
        for outcome in outcomes
        for invariant in outcome.invariants
        if not invariant.ok
    )
    figures = {name: Spread(fmean(all_), min(all_), max(all_)) for name, all_ in found.items()}
    return Column(value, tuple(outcome.seed for outcome in outcomes), figures, broken)


def _figures(outcome: Outcome) -> dict[str, float]:
    figures: dict[str, Any] = {"virtual_s": outcome.virtual_s}
    figures |= {name: outcome.facts.get(name) for name in FIGURES}
    for group, facts in outcome.facts.get("classes", {}).items():
        figures |= {f"{group}: {name}": facts.get(name) for name in CLASS_FIGURES}
    return {
        name: float(figure)
        for name, figure in figures.items()
        if isinstance(figure, int | float) and not isinstance(figure, bool)
    }
