"""`daa-node rounds` and `contributions`. As in `main`, each imports what it needs when it runs."""

from typing import Annotated

import typer

from daa_node.cli.options import HERE, Directory, Json

past_app = typer.Typer()


@past_app.command()
def rounds(
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only what ended since: 12h, 7d or 2w ago, or a date."),
    ] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """List the rounds that this node saw certified.

    A running node tells those that it has in memory, 1,024 at most. With --since, or when none
    runs, they come from its history, or else from its chain and its event log: with the time of
    day, and how many contributions were left out. What is older than the history keeps round by
    round comes as hours and days.
    """
    from daa_node.cli import past

    past.rounds(directory, since, as_json)


@past_app.command()
def contributions(
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV: a line a host, for a spreadsheet.")
    ] = False,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Show what each host has contributed, and this one.

    Rounds, tokens, steps, bytes and the share of all tokens are those of the certified sets. A set
    holds what an author says of its work, at most what the round's plan allows; members check
    parts of it. Left out: contributions that did not count, and why, as this node has seen it.
    """
    from daa_node.cli import past

    past.contributions(directory, as_csv, as_json)
