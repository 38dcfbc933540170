"""`daa-node doctor`: what is wrong with a node.

As in `main`, commands import what they need when they run.
"""

from pathlib import Path
from typing import Annotated

import typer

from daa_node.cli.options import HERE, Directory, Json

watch_app = typer.Typer()


@watch_app.command()
def doctor(
    directory: Directory = HERE,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Instead of D/config.yaml."),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write what it found, and logs without secrets, as a .tar.gz."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what is wrong with this node, and what to do.

    It looks at the directory, the settings, ports, disk, limits, logs and the device, and tries
    once to reach each known node. It changes nothing, and may be asked while the daemon runs. Exit
    code: 1 if there is an error, else 0. With --bundle it writes one file for whoever helps you:
    look through it before you send it.
    """
    from daa_node.cli.doctor.command import doctor as look

    if not look(directory, config, as_json, bundle=bundle):
        raise typer.Exit(1)
