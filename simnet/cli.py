"""The command `simnet`. Heavy imports stay inside the commands, so that `--help` is quick."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from daa_node import collector
from daa_node.errors import NodeError, UserError

if TYPE_CHECKING:
    from simnet.results.sweep import Swept
    from simnet.world.scenario import Scenario

SEED_MAX = 2**63 - 1  # of a scenario

app = typer.Typer(
    help="Whole simulated clusters of daa-compute: one scenario file, one seed, one trace.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # an error without a box around it is one line for whoever greps
)

cluster_app = typer.Typer(no_args_is_help=True, help="Real daemons in the background.")
app.add_typer(cluster_app, name="cluster")

ScenarioFile = Annotated[str, typer.Argument(help="A scenario file, or the name of a shipped one.")]
Seed = Annotated[int | None, typer.Option(help="The seed. Without it: the scenario's own.")]
Nodes = Annotated[
    int | None, typer.Option(help="How many of its first class. Without it: the scenario's.")
]
FidelityName = Annotated[
    str | None,
    typer.Option("--fidelity", help="heap, light, trio or process; the scenario's if none"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
FoundSeed = Annotated[int, typer.Option(min=0, max=SEED_MAX, help="A seed that a sweep found.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes. Without it: one a core.")]
Out = Annotated[Path | None, typer.Option(help="The folder for the trace and the report.")]

SweptScenario = Annotated[
    str | None, typer.Argument(help="As for `run`. Without it each seed draws its own.")
]
SweptFidelity = Annotated[
    str | None,
    typer.Option("--fidelity", help="light or trio; the scenario's, or light, if none"),
]


@app.command()
def run(
    scenario: ScenarioFile,
    nodes: Nodes = None,
    seed: Seed = None,
    fidelity: FidelityName = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Run one scenario once, and say what held and what did not."""
    from simnet.world import tolerance as promises

    opened = _open(scenario, nodes, seed, fidelity)
    if opened.fidelity == "process":  # a minute in which nothing else is said
        typer.echo(
            f"{opened.name}: {opened.node_count} real daemons; first their links are measured, "
            f"if they can be, then it takes {opened.duration_s:g} s at most",
            err=True,
        )
    warning = promises.beyond_f(opened)
    if warning is not None:
        typer.echo(f"warning: {warning}", err=True)
    _run_and_say(opened, out, as_json)


def _run_and_say(scenario: "Scenario", out: Path | None, as_json: bool) -> NoReturn:
    """Say what a run comes to, also by the exit code. Raises UserError if it cannot be kept."""
    from simnet.results import run as running

    not_kept = None
    try:
        outcome = running.run(scenario, out)
    except running.NotKept as fault:
        outcome, not_kept = fault.outcome, fault
    _say(as_json, outcome.as_json(), running.summary(outcome))
    if not_kept is not None:
        raise not_kept
    raise typer.Exit(0 if outcome.ok else 1)


@app.command()
def compare(
    scenario: ScenarioFile,
    factor: Annotated[
        list[str], typer.Option(help="A key and its values: work.adaptive=true,false")
    ],
    seeds: Annotated[int, typer.Option(help="How many seeds for each value.")] = 5,
    fidelity: FidelityName = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder that keeps all runs, for `simnet report`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs that differ in one setting only, over several seeds."""
    from simnet.results import compare as comparing

    varied = comparing.parse_factor(factor)
    _open(scenario, None, None, fidelity)
    columns = comparing.compare(
        scenario, varied, seeds, lambda line: typer.echo(line, err=True), fidelity, out
    )
    _say(as_json, comparing.as_json(varied, columns), comparing.table(varied, columns))
    raise typer.Exit(1 if any(column.broken for column in columns) else 0)


@app.command()
def report(
    folder: Annotated[
        Path, typer.Argument(help="What `simnet run --out` or `simnet compare --out` wrote.")
    ],
    beside: Annotated[
        Path | None, typer.Option(help="Another run that was kept, to be drawn beside it.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Without it: FOLDER/report.html.")] = None,
) -> None:
    """Write a page that shows a run.

    It draws views, votes, faults, rounds and losses.
    """
    from simnet.results.report import make_report

    page = folder / "report.html" if out is None else out
    _write(page, make_report(folder, beside))
    typer.echo(f"{page}: open it in a browser")


@app.command()
def diff(
    one: Annotated[Path, typer.Argument(help="where `simnet run --out` wrote")],
    other: Annotated[Path, typer.Argument(help="Another such folder.")],
) -> None:
    """Say where the traces of two runs differ first. The exit code is 1 if they do."""
    from simnet.results.run_files import first_difference

    difference = first_difference(one, other)
    typer.echo("the traces are equal" if difference is None else difference)
    raise typer.Exit(0 if difference is None else 1)


@app.command()
def sweep(
    scenario: SweptScenario = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 500,
    first: Annotated[int, typer.Option("--from", min=0, help="The first seed.")] = 0,
    jobs: Jobs = None,
    fidelity: SweptFidelity = None,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Say which lines of the program the seeds executed.")
    ] = False,
) -> None:
    """Run many seeds. Without a scenario, each seed draws its own cluster in trouble."""
    from time import perf_counter

    from simnet.results import sweep as sweeping

    swept = replace(_swept(scenario, fidelity), is_watched=coverage)
    whole, began_s, told = sweeping.Sweep(), perf_counter(), 0
    for batch in sweeping.sweep(range(first, first + seeds), swept, jobs):
        whole.add(batch)
        for failure in batch.failures:
            typer.echo(f"seed {failure.seed} BROKE: {failure.invariant}: {failure.detail}")
            typer.echo(f"  {failure.replay}")
        if whole.seeds * 10 // seeds > told or whole.seeds == seeds:
            told = whole.seeds * 10 // seeds
            wall_s = perf_counter() - began_s
            typer.echo(f"{whole.seeds} seeds, {len(whole.failures)} failed, {wall_s:.0f} s")
    wall_s = perf_counter() - began_s
    typer.echo(
        f"{whole.seeds} seeds in {wall_s:.1f} s ({whole.cpu_s:.1f} s CPU, "
        f"{1e3 * whole.cpu_s / max(1, whole.seeds):.0f} ms each), {whole.blocks} blocks final"
    )
    for mark in sorted({*whole.met, *swept.looked_for()}):
        typer.echo(f"  {mark}: in {whole.met[mark]} runs")
    for line in sweeping.figures(whole):
        typer.echo(line)
    missing = whole.never_met(swept.wanted(seeds))
    if missing:
        typer.echo(f"never met: {', '.join(missing)}")
    raise typer.Exit(1 if whole.failures or missing else 0)


@app.command()
def twins(
    nodes: Annotated[
        int | None, typer.Option("--n", help="Nodes: 4, 5, 7 or 10. Without it: all of them.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Play every script of the lists.")
    ] = False,
    sample: Annotated[int, typer.Option(min=0, help="Random scripts for each n.")] = 50,
    only: Annotated[str | None, typer.Option(help="One script, by its name.")] = None,
    jobs: Jobs = None,
) -> None:
    """Play attacks by one key on two machines.

    Such twins are parted from others, and from each other, view by view.
    """
    from time import perf_counter

    _need_torch()
    from simnet.results import run as running
    from simnet.results.twins import suite

    if only is not None:
        (played,) = suite.play_all([suite.script_named(only)], 1)
        typer.echo(running.summary(played.outcome))
        typer.echo(
            f"evidence against {sorted(played.culprits)}; {played.failure or 'as it must be'}"
        )
        raise typer.Exit(0 if played.failure is None else 1)
    failed = 0
    for name, scripts in suite.groups(nodes, everything, sample):
        began_s, cpu_s, culprits, bad = perf_counter(), 0.0, 0, 0
        for played in suite.play_all(scripts, jobs):
            cpu_s += played.outcome.cpu_s
            culprits += bool(played.culprits)
            if played.failure is not None:
                bad += 1
                typer.echo(f"{played.script.name} FAILED: {played.failure}")
                typer.echo(f"  simnet twins --only {played.script.name}")
        failed += bad
        wall_s = perf_counter() - began_s
        typer.echo(
            f"{name}: {len(scripts)} scripts, {bad} failed, evidence in {culprits}, "
            f"{wall_s:.0f} s ({cpu_s:.0f} s CPU)"
        )
    raise typer.Exit(1 if failed else 0)


@app.command()
def replay(
    seed: FoundSeed,
    scenario: SweptScenario = None,
    out: Out = None,
    as_json: AsJson = False,
    fidelity: SweptFidelity = None,
) -> None:
    """Run one seed of a sweep again, exactly as the sweep did."""
    _run_and_say(_swept(scenario, fidelity).scenario(seed), out, as_json)


@app.command()
def shrink(
    seed: FoundSeed,
    scenario: SweptScenario = None,
    out: Annotated[Path, typer.Option(help="The smaller scenario.")] = Path("shrunk.yaml"),
    fidelity: SweptFidelity = None,
) -> None:
    """Make a failing run smaller.

    Whatever it does not need to fail is left out.
    """
    from simnet.results import run as running
    from simnet.results import shrink as shrinking
    from simnet.world import scenario_file

    whole = _swept(scenario, fidelity).scenario(seed)
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}")
    smaller = shrinking.shrink(whole, running.run)
    if smaller is None:
        typer.echo("this seed breaks nothing")
        raise typer.Exit(1)
    _write(out, scenario_file.as_text(smaller))
    typer.echo(f"{len(whole.faults)} faults, {len(smaller.faults)} needed: simnet run {out}")


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say which links this machine can emulate.

    They are for real processes. It says why it cannot, too.
    """
    from simnet.nodes.processes import backends

    found = backends.examine()
    _say(as_json, found.as_json(), found.as_text())


ClusterDirectory = Annotated[Path, typer.Option("--dir", metavar="D", help="Of the cluster.")]
CLUSTER_HERE = Path("simnet-cluster")


@cluster_app.command()
def up(
    scenario: ScenarioFile,
    directory: ClusterDirectory = CLUSTER_HERE,
    nodes: Nodes = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Start real daemons, and leave them running.

    They are behind the links of the scenario.
    """
    from simnet.nodes.processes import supervisor

    answer = supervisor.up(_open(scenario, nodes, seed, "process"), directory)
    _say(as_json, answer, supervisor.in_words(answer))


@cluster_app.command()
def down(directory: ClusterDirectory = CLUSTER_HERE, as_json: AsJson = False) -> None:
    """Stop a cluster, and clear what dead runs have left. Its nodes' directories stay."""
    from simnet.nodes.processes import supervisor

    answer = supervisor.down(directory)
    stopped = "stopped" if answer["stopped"] else "nothing was running"
    cleared = [f"cleared {what}, left by a run that died" for what in answer["cleared"]]
    _say(as_json, answer, "\n".join([f"{directory}: {stopped}", *cleared]))


def _swept(name: str | None, fidelity: str | None) -> "Swept":
    """What a sweep's seeds stand for. Raises UserError."""
    from simnet.results.sweep import Swept
    from simnet.world.scenario import VIRTUAL

    if name is not None:
        return Swept(_open(name, None, None, fidelity), name, fidelity)
    if fidelity is not None and fidelity not in VIRTUAL:
        raise UserError(f"seeds draw scenarios for {' and '.join(VIRTUAL)}, not for {fidelity}")
    _need_torch()
    return Swept(fidelity=fidelity)


def _open(name: str, nodes: int | None, seed: int | None, fidelity: str | None) -> "Scenario":
    from simnet.world import scenario_file

    opened = scenario_file.open_scenario(name, nodes, seed, fidelity)
    if opened.fidelity != "heap":
        _need_torch()
    return opened


def _need_torch() -> None:
    """Before anything is run: whole nodes train. Raises UserError."""
    from daa_node.training.torch_there import need_torch

    need_torch("simnet, for nodes that train,")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise UserError(f"{path} cannot be written: {failure.strerror}") from None


def _say(as_json: bool, answer: dict[str, Any], in_words: str) -> None:
    typer.echo(json.dumps(answer) if as_json else in_words)


def main() -> None:
    """The entry point. Exit codes: 0 done, 1 the work failed, 2 usage or configuration."""
    collector.spare_imports()
    try:
        app()
    except UserError as refused:
        typer.echo(f"error: {refused}", err=True)
        raise SystemExit(refused.exit_code) from None
    except NodeError as failed:
        typer.echo(f"error: {failed}", err=True)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        collector.as_usual()


if __name__ == "__main__":
    main()
