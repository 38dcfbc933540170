"""Run one scenario at its fidelity, with a trace beside it if a folder for it is named."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from daa_node import collector
from daa_node.adapters.durable_files import storage
from daa_node.errors import StorageFailed, UserError
from simnet.checks.outcome import OUTCOME_FILE, SCENARIO_FILE, TRACE_FILE, Outcome
from simnet.world.determinism import LIAR, Trace
from simnet.world.scenario import Scenario
from simnet.world.scenario_file import as_text

PART = ".part"  # ends the name of a file of a run that has not ended
KEPT = (SCENARIO_FILE, TRACE_FILE, OUTCOME_FILE)


class NotKept(UserError):
    """The files of a run cannot be written; `outcome` is what it came to all the same."""

    def __init__(self, why: str, outcome: Outcome) -> None:
        super().__init__(why, exit_code=1)
        self.outcome = outcome


def run(scenario: Scenario, out: Path | None = None) -> Outcome:
    """Raises UserError for an `out` that cannot be written, NotKept if the run has ended by then.

    `out` gets the scenario as it was run, the trace and the outcome: what `simnet report` reads.
    What an earlier run has left there stays until all three are written.
    """
    if out is None:
        return _traced(scenario, Trace(), None)
    try:
        with storage(f"write {out}"):
            out.mkdir(parents=True, exist_ok=True)
        _write_part(out / SCENARIO_FILE, as_text(scenario))
        with storage(f"write {out / TRACE_FILE}"):
            file = _part(out / TRACE_FILE).open("w", encoding="utf-8")
    except StorageFailed as fault:
        _clear_parts(out)
        raise UserError(f"--out {out}: {fault}") from None
    try:
        trace = Trace(file)
        outcome = _traced(scenario, trace, out)
        try:
            with storage(f"write {out / TRACE_FILE}"):
                trace.check_written()
                file.close()
            _write_part(out / OUTCOME_FILE, json.dumps(outcome.as_json(), indent=1) + "\n")
            _name_parts(out)
        except StorageFailed as fault:
            _clear_parts(out)
            why = f"{fault}: this run is not kept: make room, or name another --out, and repeat it"
            raise NotKept(why, outcome) from None
    finally:
        with suppress(OSError):  # of a write that failed before
            file.close()
    return outcome


def _part(path: Path) -> Path:
    return path.with_name(path.name + PART)


def _write_part(path: Path, text: str) -> None:
    """What is to be `path`. Raises StorageFailed."""
    with storage(f"write {path}"):
        _part(path).write_text(text, encoding="utf-8")


def _name_parts(out: Path) -> None:
    """Raises StorageFailed."""
    with storage(f"write {out}"):
        # first: beside half of what is new, an earlier run's would pass for its outcome
        (out / OUTCOME_FILE).unlink(missing_ok=True)
        for name in KEPT:
            _part(out / name).replace(out / name)


def _clear_parts(out: Path) -> None:
    for name in KEPT:
        with suppress(OSError):
            _part(out / name).unlink(missing_ok=True)


def _traced(scenario: Scenario, trace: Trace, out: Path | None) -> Outcome:
    for node, liar in sorted(scenario.liars().items()):
        trace.note(0, LIAR, node=node, kind=liar.kind)
    collector.as_usual()  # or what a run has dropped would pile up to its end
    return _run(scenario, trace, out)


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
