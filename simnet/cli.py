"""The command `simnet`. Heavy imports stay inside the commands, so that `--help` is quick."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simnet.scenario import Scenario

app = typer.Typer(
    help="Whole simulated clusters of daa-compute: one scenario file, one seed, one trace.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ScenarioFile = Annotated[str, typer.Argument(help="a file, or the name of a shipped scenario")]
Seed = Annotated[int | None, typer.Option(help="instead of the scenario's own")]
Nodes = Annotated[int | None, typer.Option(help="of its first class, instead of the scenario's")]
FidelityName = Annotated[
    str | None, typer.Option("--fidelity", help="heap, trio or process, instead of the scenario's")
]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
Out = Annotated[Path | None, typer.Option(help="where the trace and the report go")]


@app.callback()
def _simnet() -> None:
    """Whole simulated clusters of daa-compute: one scenario file, one seed, one trace."""


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
    from simnet import run as running

    outcome = running.run(_open(scenario, nodes, seed, fidelity), out)
    if as_json:
        _print_json(outcome.as_json())
    else:
        typer.echo(running.summary(outcome))
    raise typer.Exit(0 if outcome.ok else 1)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="where `simnet run --out` wrote")],
    out: Annotated[Path | None, typer.Option(help="the page; FOLDER/report.html if none")] = None,
) -> None:
    """Write a page with the timeline of a run: views, votes, faults, rounds, losses."""
    from simnet.report import make_report

    page = folder / "report.html" if out is None else out
    page.write_text(make_report(folder), encoding="utf-8")
    typer.echo(f"{page}: open it in a browser")


@app.command()
def diff(
    one: Annotated[Path, typer.Argument(help="where `simnet run --out` wrote")],
    other: Annotated[Path, typer.Argument(help="another such folder")],
) -> None:
    """Say where the traces of two runs part. Exits with 1 if they do."""
    from simnet.report import first_difference

    difference = first_difference(one, other)
    typer.echo("the traces are equal" if difference is None else difference)
    raise typer.Exit(0 if difference is None else 1)


def _open(name: str, nodes: int | None, seed: int | None, fidelity: str | None) -> "Scenario":
    from simnet import scenario_file

    return scenario_file.open_scenario(name, nodes, seed, fidelity)


def _print_json(answer: dict[str, Any]) -> None:
    json.dump(answer, sys.stdout)
    sys.stdout.write("\n")


def main() -> None:
    """The entry point. Exit codes: 0 done, 1 the work failed, 2 usage or configuration."""
    from daa_node.errors import NodeError, UserError

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


if __name__ == "__main__":
    main()
