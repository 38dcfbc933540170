"""Change one factor of a scenario and nothing else, over several seeds; figures side by side.

Every value of the factor is run with the same seeds, so that both meet the same speeds and the same
faults. Of each figure the mean over seeds is shown, with the least and the greatest, and its ratio
to that of the first value, seed by seed. Participation and each class's results are always among
them: a mean over all hides who was left behind.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from daa_node.config_file import Override
from daa_node.errors import UserError
from simnet.checks.outcome import SCHEMA_VERSION, Outcome
from simnet.results import run as running
from simnet.results.kept_comparison import (
    KeptComparison,
    KeptRuns,
    forget_comparison,
    run_folder,
    write_comparison,
)
from simnet.world.scenario_file import open_scenario

SEEDS_MAX = 1000
# What is compared where a run measured it, in this order; of classes, what comes after.
FIGURES = (
    "virtual_s",
    "rounds",
    "aborted",
    "crashes",
    "round_s_mean",
    "tokens_per_s",
    "goodput",
    "participation",
    "compute_utilisation",
    "useful_utilisation",
    "left_out",
    "loss_nats",
)
# After as long as the quickest run of the same seed took: less loss in more time is no gain.
LOSS_THEN = "loss_nats, same time"
CLASS_FIGURES = ("participation", "tokens_per_s", "compute_utilisation", "useful_utilisation")
SHARES = ("goodput", "participation", "utilisation")  # how their names end; shown in percent
NOTES = {
    "goodput": "goodput: tokens_per_s over that of the same run without its faults",
    "compute_utilisation": "compute_utilisation: time in inner steps, over all time",
    "useful_utilisation": "useful_utilisation: the same for steps that were certified",
}
_ITEMS = re.compile(r",(?![^\[{]*[\]}])")  # commas outside of brackets


@dataclass(frozen=True, slots=True)
class Factor:
    """What is varied, and the values as YAML texts."""

    path: str
    values: tuple[str, ...]

    def override(self, value: str) -> Override:
        keys = tuple(int(key) if key.isdecimal() else key for key in self.path.split("."))
        return Override(keys, value, f"flag --factor {self.path}={value}")


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over the seeds that have it."""

    mean: float
    least: float
    greatest: float
    count: int


@dataclass(frozen=True, slots=True)
class Column:
    """All runs with one value of the factor."""

    value: str
    outcomes: Sequence[Outcome]
    by_seed: dict[str, tuple[float | None, ...]]  # every figure, in the order of the outcomes

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(outcome.seed for outcome in self.outcomes)

    @property
    def broken(self) -> tuple[str, ...]:
        """Invariants, with their seeds."""
        found = [(o.seed, i) for o in self.outcomes for i in o.invariants if not i.ok]
        return tuple(f"{broken.name} (seed {seed}): {broken.detail}" for seed, broken in found)

    @property
    def figures(self) -> dict[str, Spread]:
        return {name: spread for name in self.by_seed if (spread := _spread(self.by_seed[name]))}

    def over(self, other: "Column", name: str) -> Spread | None:
        """This column's figure over the other's, seed by seed: both met the same chance."""
        pairs = zip(self.by_seed.get(name, ()), other.by_seed.get(name, ()), strict=False)
        return _spread([mine / theirs if mine and theirs else None for mine, theirs in pairs])


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
    if path == "seed":
        raise UserError("--factor seed: every value is run with the same seeds; see --seeds")
    if len(set(items)) < 2 or len(set(items)) != len(items):
        raise UserError(f"--factor {texts[0]!r}: name two different values or more")
    return Factor(path, items)


def compare(
    name: str,
    factor: Factor,
    seeds: int,
    told: Callable[[str], None] = lambda _: None,
    fidelity: str | None = None,
    out: Path | None = None,
) -> list[Column]:
    """Run everything; `told` hears a line after each run. Raises UserError.

    `out` keeps each run in a folder of its own: `simnet report` draws them side by side.
    """
    if not 1 <= seeds <= SEEDS_MAX:
        raise UserError(f"--seeds {seeds}: 1 to {SEEDS_MAX} are possible")
    first = open_scenario(name).seed
    for value in factor.values:  # a wrong one is told now, and not after the runs of those before
        open_scenario(name, fidelity=fidelity, overrides=(factor.override(value),))
    if out is not None:
        forget_comparison(out)  # some of its runs would be of this one, should this one be ended
    runs: list[list[Outcome]] = []
    kept: list[KeptRuns] = []
    for place, value in enumerate(factor.values, 1):
        runs.append([])
        tried = tuple(range(first, first + seeds))
        folders = tuple(run_folder(place, value, seed) for seed in tried)
        kept.append(KeptRuns(value=value, seeds=tried, folders=folders))
        for seed, folder in zip(tried, folders, strict=True):
            changed = (factor.override(value),)
            scenario = open_scenario(name, seed=seed, fidelity=fidelity, overrides=changed)
            runs[-1].append(running.run(scenario, None if out is None else out / folder))
            told(f"{factor.path}={value}, seed {seed}: {runs[-1][-1].cpu_s:.1f} s CPU")
    if out is not None:
        write_comparison(out, KeptComparison(factor=factor.path, columns=tuple(kept)))
    return columns_of(factor.values, runs)


def columns_of(values: Sequence[str], runs: Sequence[Sequence[Outcome]]) -> list[Column]:
    """A column a value, of its runs with the same seeds in the same order."""
    quickest_s = [min(o.virtual_s for o in of_seed) for of_seed in zip(*runs, strict=True)]
    return [
        Column(value, of, _by_seed(of, quickest_s)) for value, of in zip(values, runs, strict=True)
    ]


def table(factor: Factor, columns: Sequence[Column]) -> str:
    """For a terminal: a line a figure, a column a value, then each over the first."""
    first, others, one = columns[0], columns[1:], columns[0].outcomes[0]
    world = f"{one.scenario}: {one.fidelity} fidelity, {one.nodes} nodes"
    names = list(dict.fromkeys(name for column in columns for name in column.figures))
    if all({1.0} >= set(column.by_seed.get("goodput", ())) for column in columns):
        names = [name for name in names if name != "goodput"]  # nothing went wrong in any run
    head = ["", *(f"{factor.path}={column.value}" for column in columns)]
    rows = [[*head, *(f"{column.value} / {first.value}" for column in others)]]
    for name in names:
        cells = [_cell(name, column.figures.get(name), len(first.seeds)) for column in columns]
        ratios = [_cell("ratio", column.over(first, name), len(first.seeds)) for column in others]
        rows.append([name, *cells, *ratios])
    seeds = f"seed {first.seeds[0]}"
    if len(first.seeds) > 1:
        seeds = f"mean over seeds {first.seeds[0]} to {first.seeds[-1]}, in brackets least and"
        seeds += " greatest; ratios are taken seed by seed"
    notes = [note for name, note in NOTES.items() if name in names]
    broken = [f"BROKEN with {factor.path}={c.value}: {what}" for c in columns for what in c.broken]
    return "\n".join([world, *running.aligned(rows, 1), seeds, *notes, *broken])


def as_json(factor: Factor, columns: Sequence[Column]) -> dict[str, Any]:
    """The same as data: mean, least and greatest of every figure, and over the first value's."""
    return {
        "schema_version": SCHEMA_VERSION,
        "factor": factor.path,
        "columns": [
            {
                "value": column.value,
                "seeds": list(column.seeds),
                "broken": list(column.broken),
                "figures": {name: asdict(spread) for name, spread in column.figures.items()},
                "over_first": {
                    name: asdict(spread)
                    for name in column.figures
                    if (spread := column.over(columns[0], name)) is not None
                },
            }
            for column in columns
        ],
    }


def _by_seed(
    outcomes: Sequence[Outcome], quickest_s: Sequence[float]
) -> dict[str, tuple[float | None, ...]]:
    found = [_figures(outcome, at_s) for outcome, at_s in zip(outcomes, quickest_s, strict=True)]
    names = dict.fromkeys(name for figures in found for name in figures)
    return {name: tuple(figures.get(name) for figures in found) for name in names}


def _figures(outcome: Outcome, then_s: float) -> dict[str, float]:
    known = {"virtual_s": outcome.virtual_s, **outcome.facts}
    figures: dict[str, Any] = {name: known.get(name) for name in FIGURES}
    losses = [loss for at_s, loss in known.get("loss_over_time", ()) if at_s <= then_s]
    figures[LOSS_THEN] = losses[-1] if losses else None
    for group, facts in known.get("classes", {}).items():
        figures |= {f"{group}: {name}": facts.get(name) for name in CLASS_FIGURES}
    return {
        name: float(figure)
        for name, figure in figures.items()
        if isinstance(figure, int | float) and not isinstance(figure, bool)
    }


def _spread(by_seed: Sequence[float | None]) -> Spread | None:
    known = [figure for figure in by_seed if figure is not None]
    return Spread(fmean(known), min(known), max(known), len(known)) if known else None


def _cell(name: str, spread: Spread | None, seeds: int) -> str:
    if spread is None:
        return "-"
    percent = name.endswith(SHARES)
    mean, least, greatest = (
        _number(100 * figure if percent else figure)
        for figure in (spread.mean, spread.least, spread.greatest)
    )
    text = f"{mean} %" if percent else mean
    if least != greatest:
        text += f" ({least} to {greatest})"
    return text if spread.count == seeds else f"{text} in {spread.count} of {seeds}"


def _number(figure: float) -> str:
    """Three digits or more, no exponents."""
    if not isfinite(figure):  # of a model that has gone to pieces
        return str(figure)
    if figure == int(figure) or abs(figure) >= 1000:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if abs(figure) >= 10 else f"{figure:.3g}"
