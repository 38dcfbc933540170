"""`daa-node doctor` and `daa-node top`: how a node stands, and what is wrong with it.

As in `main`, commands import what they need when they run.
"""

from pathlib import Path
from typing import Annotated

import typer

from daa_node.cli.options import HERE, ConfigFile, Directory, Json
from daa_node.errors import UserError

watch_app = typer.Typer()


@watch_app.command()
def doctor(
    directory: Directory = HERE,
    config: ConfigFile = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write what it found, and logs without secrets, as a .tar.gz."
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Say what pasted lines of a log mean. -: from standard input."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what is wrong with this node, and what to do.

    It looks at the directory, the settings, ports, disk, limits, logs and the device, and tries
    once to reach each known node. It changes nothing, and may be asked while the daemon runs. Exit
    code: 1 if there is an error, else 0. With --bundle it writes one file for whoever helps you:
    look through it before you send it.

    With --explain it looks at nothing of this host: it says what a message or an event of any
    node's log means. Exit code: 1 if it knows none of the lines, else 0.
    """
    if explain is not None:
        from daa_node.cli.doctor.pasted import explain as tell

        if bundle is not None:
            raise UserError("--explain looks at no node, and --bundle does: give one of the two")
        if not tell(explain, as_json):
            raise typer.Exit(1)
        return
    from daa_node.cli.doctor.command import doctor as look

    if not look(directory, config, as_json, bundle=bundle):
        raise typer.Exit(1)


@watch_app.command()
def top(directory: Directory = HERE) -> None:
    """Watch the running node in a terminal.

    Phase and why, the round, the loss, who is waited for, peers, contributions and the newest
    decisions, drawn anew with each event. It waits for a daemon that stops, and goes on when it is
    back. q or Ctrl-C ends it. Where there is no terminal it prints once.
    """
    from daa_node.cli.top.command import top as watch

    watch(directory)
