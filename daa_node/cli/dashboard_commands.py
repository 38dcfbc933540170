"""`daa-node dashboard`. As in `main`, commands import what they need when they run."""

from typing import Annotated

import typer

from daa_node.cli.options import HERE, Directory, Json

dashboard_app = typer.Typer()


@dashboard_app.command()
def dashboard(
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the address, and open no browser.")
    ] = False,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Open the dashboard of a running node in a browser.

    It needs `api.listen` in D/config.yaml. The address has the token that reads in it: show it to
    nobody. On a terminal with a screen the browser opens; elsewhere the address is printed.
    """
    from daa_node.cli.dashboard import dashboard as show

    show(directory, only_print, as_json)
