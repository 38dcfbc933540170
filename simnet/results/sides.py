"""Runs side by side: what a page tells of a comparison that was kept, or of two runs.

The loop that adapts against one that does not (`work.adaptive`) is the one that matters most, and
has words of its own: adaptive and naive.
"""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from daa_node.errors import UserError
from simnet.checks.outcome import SCENARIO_FILE, Outcome
from simnet.results.compare import SHARES, Column, columns_of
from simnet.results.kept_comparison import KeptComparison
from simnet.results.run_files import outcome_of, run_file
from simnet.world.scenario_file import open_scenario

SIDES_MAX = 4  # more cannot be told apart
POINTS_MAX = 1_000  # of a curve

ADAPTIVE = {"true": "adaptive", "false": "naive"}  # by the value of work.adaptive


def first_run(folder: Path, kept: KeptComparison) -> Path:
    """The run whose timeline stands for the others'."""
    return folder / kept.columns[0].folders[0]


def sides_of(folder: Path, kept: KeptComparison) -> dict[str, Any]:
    """Of all values, each over its seeds. Raises UserError for a run that is not there."""
    shown = kept.columns[:SIDES_MAX]
    names = [_name(kept.factor, column.value) for column in shown]
    runs = [[_outcome(folder / run) for run in column.folders] for column in shown]
    return _sides(kept.factor, names, runs)


def sides_of_two(one: Path, other: Path) -> dict[str, Any]:
    """Of two runs that were kept, each by `simnet run --out`. Raises UserError."""
    adaptive = [
        open_scenario(str(run_file(folder, SCENARIO_FILE))).work.adaptive for folder in (one, other)
    ]
    runs = [[_outcome(one)], [_outcome(other)]]
    if adaptive[0] != adaptive[1]:
        names = [ADAPTIVE[str(value).lower()] for value in adaptive]
        return _sides("work.adaptive", names, runs)
    return _sides("", [str(one), str(other)], runs)


def _name(factor: str, value: str) -> str:
    if factor == "work.adaptive" and value.lower() in ADAPTIVE:
        return ADAPTIVE[value.lower()]
    return f"{factor}={value}"


def _outcome(folder: Path) -> Outcome:
    try:
        return Outcome.of_json(outcome_of(folder))
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{folder}: its outcome is of another version of simnet") from None


def _sides(factor: str, names: Sequence[str], runs: Sequence[Sequence[Outcome]]) -> dict[str, Any]:
    columns = columns_of(names, runs)
    return {
        "factor": factor,
        "names": list(names),
        "seeds": [list(column.seeds) for column in columns],
        "figures": _figures(columns),
        "losses": [_curve(column.outcomes[0]) for column in columns],
        "times": _times([column.outcomes[0] for column in columns]),
        "broken": [list(column.broken) for column in columns],
    }


def _figures(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Each figure that any side has: its mean, least and greatest over the seeds, side by side;
    `over`: its ratio to the first side's, seed by seed.
    """
    names = dict.fromkeys(name for column in columns for name in column.figures)
    return [
        {
            "name": name,
            "isShare": name.endswith(SHARES),
            "sides": [
                None
                if (spread := column.figures.get(name)) is None or not isfinite(spread.mean)
                else [spread.mean, spread.least, spread.greatest]
                for column in columns
            ],
            "over": [
                None if (ratio := column.over(columns[0], name)) is None else ratio.mean
                for column in columns
            ],
        }
        for name in names
    ]


def _curve(outcome: Outcome) -> dict[str, list[float]]:
    """Held-out loss over virtual seconds, of the first seed; the newest point is always there."""
    points = [
        (at_s, loss)
        for at_s, loss in outcome.facts.get("loss_over_time", ())
        if loss is not None and isfinite(loss)
    ]
    step = max(1, -(-len(points) // POINTS_MAX))
    kept = points[::-1][::step][::-1]
    return {"atMs": [round(1e3 * at_s) for at_s, _ in kept], "nats": [loss for _, loss in kept]}


def _times(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Of each class, where its time went on each side; None where a side does not know it."""
    told = [outcome.facts.get("classes", {}) for outcome in outcomes]
    groups = dict.fromkeys(group for classes in told for group in classes)
    rows = [
        {
            "group": group,
            "sides": [classes.get(group, {}).get("share_of_time") for classes in told],
        }
        for group in groups
    ]
    return [row for row in rows if any(row["sides"])]
