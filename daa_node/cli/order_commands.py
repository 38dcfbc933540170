"""`daa-node pause` and `daa-node resume`. As in `main`, commands import what they need."""

import typer

from daa_node.cli.options import HERE, Directory, Json

order_app = typer.Typer()


@order_app.command()
def pause(directory: Directory = HERE, as_json: Json = False) -> None:
    """Let the running node stop training, and vote as before.

    It finishes the inner steps under way and offers what came of them. Then it votes, merges and
    serves, so that the network loses nothing but this node's training, until it is resumed or
    started again. `status` tells that it is paused.
    """
    from daa_node.cli import orders

    orders.pause(directory, as_json)


@order_app.command()
def resume(directory: Directory = HERE, as_json: Json = False) -> None:
    """Let a paused node train again, from the next round on."""
    from daa_node.cli import orders

    orders.resume(directory, as_json)
