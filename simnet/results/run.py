"""Run one scenario at its fidelity, with a trace beside it if a folder for it is named."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from daa_node.errors import UserError
from simnet.checks.outcome import OUTCOME_FILE, SCENARIO_FILE, TRACE_FILE, Outcome
from simnet.world.determinism import LIAR, Trace
from simnet.world.scenario import Scenario
from simnet.world.scenario_file import as_text


def run(scenario: Scenario, out: Path | None = None) -> Outcome:
    """Raises UserError for an `out` that cannot be written.

    `out` gets the scenario as it was run, the trace and the outcome: what `simnet report` reads.
    """
    with ExitStack() as stack:
        file = None
        if out is not None:
            try:
                out.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context((out / TRACE_FILE).open("w", encoding="utf-8"))
                # of an earlier run: beside half a trace of this one it would pass for its outcome
                (out / OUTCOME_FILE).unlink(missing_ok=True)
                (out / SCENARIO_FILE).write_text(as_text(scenario), encoding="utf-8")
            except OSError as failure:
                raise UserError(f"--out {out}: {failure.strerror}") from None
        trace = Trace(file)
        for node, liar in sorted(scenario.liars().items()):
            trace.note(0, LIAR, node=node, kind=liar.kind)
        outcome = _run(scenario, trace, out)
    if out is not None:
        text = json.dumps(outcome.as_json(), indent=1)
        try:
            (out / OUTCOME_FILE).write_text(text + "\n", encoding="utf-8")
        except OSError as failure:
            raise UserError(f"--out {out}: {failure.strerror}", exit_code=1) from None
    return outcome


def _run(scenario: Scenario, trace: Trace, out: Path | None) -> Outcome:
    match scenario.fidelity, scenario.work.kind:
        case "light" | "trio", _:
            from simnet.nodes.virtual import world

            return world.run_virtual(scenario, trace)
        case "process", _:
            from simnet.nodes.processes.run import run_processes

            return run_processes(scenario, trace, out)
        case "heap", "gossip":
            from simnet.nodes.heap.gossip import run_gossip

            return run_gossip(scenario, trace)
        case "heap", "fetch":
            from simnet.nodes.heap.fetch import run_fetch

            return run_fetch(scenario, trace)
        case "heap", "upload":
            from simnet.nodes.heap.upload import run_upload

            return run_upload(scenario, trace)
        case "heap", "rounds":
            from simnet.nodes.heap.rounds import run_rounds

            return run_rounds(scenario, trace)
    raise AssertionError("a scenario's fidelity can do its work")


def summary(outcome: Outcome) -> str:
    """For a person at a terminal."""
    lines = [
        f"{outcome.scenario}: seed {outcome.seed}, {outcome.nodes} nodes, {outcome.fidelity}",
        f"{outcome.virtual_s:.1f} virtual s in {outcome.wall_s:.1f} s ({outcome.cpu_s:.1f} s CPU)",
        f"trace {outcome.trace_hash}",
    ]
    lines += [f"final root {root}" for root in outcome.final_roots]
    for invariant in outcome.invariants:
        held = "held" if invariant.ok else f"BROKEN: {invariant.detail}"
        lines.append(f"  {invariant.name}: {held}")
    lines += [f"  sometimes {mark.name}: {mark.hits}" for mark in outcome.sometimes]
    for name, value in outcome.facts.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = [[*value[0]], *([str(cell) for cell in row.values()] for row in value)]
            lines += [f"  {name}:", *(f"    {line}" for line in aligned(rows))]
        else:
            lines.append(f"  {name}: {value}")
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]], named: int = 0) -> list[str]:
    """Rows as lines; so many of the first columns hold names, the others figures."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < named else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
