"""`daa-node checkpoint ...`: the past of a chain, its names and what changed. Needs no daemon.

As in `main`, commands import what they need when they run.
"""

from pathlib import Path
from typing import Annotated

import typer

from daa_node.cli.options import HERE, Directory, Json, Which

history_app = typer.Typer()


@history_app.command()
def log(
    vertex: Which = "tip",
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=100_000, help="How many of the newest.")
    ] = 30,
    graph: Annotated[
        bool, typer.Option("--graph", help="Draw how the vertices stand on each other.")
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture of them instead.")
    ] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Show VERTEX and what it stands on, newest first.

    Each line has an id as short as it can be, height, round, who signed, who contributed, what its
    model loses on what contributors train on (their word), and its tags.
    """
    from daa_node.cli import checkpoint_log

    checkpoint_log.log(directory, checkpoint_log.Wanted(vertex, count, graph, svg), as_json)


@history_app.command()
def tag(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A letter, then what you like.")],
    vertex: Which = "tip",
    move: Annotated[
        bool, typer.Option("--move", help="Take the name from the vertex that has it.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the tag.")] = False,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Give a certified vertex a name.

    Other commands take it wherever they take a vertex. It is a note of this node alone, in
    D/tags.json, and the chain is left as it is.
    """
    from daa_node.cli import checkpoint_tags

    if delete:
        checkpoint_tags.remove(directory, name, as_json)
    else:
        checkpoint_tags.put(directory, name, vertex, move, as_json)


@history_app.command()
def tags(directory: Directory = HERE, as_json: Json = False) -> None:
    """List the tags of this node."""
    from daa_node.cli import checkpoint_tags

    checkpoint_tags.show(directory, as_json)


@history_app.command()
def diff(
    one: Annotated[str, typer.Argument(metavar="A", help="As any VERTEX.")],
    other: Annotated[str, typer.Argument(metavar="B", help="As any VERTEX.")] = "tip",
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Compare the models of two certified vertices.

    For each tensor how far it moved beside its length in A, and the largest change; who contributed
    on the way, by which rule, with how many tokens. --json has exact integers: weights are whole
    multiples of 2^grid_exponent.
    """
    from daa_node.cli import checkpoint_diff

    checkpoint_diff.diff(directory, one, other, as_json)


@history_app.command()
def fork(
    validator: Annotated[
        list[Path], typer.Option(metavar="RECORD", help="A validator's record; repeat for each.")
    ],
    vertex: Which = "tip",
    trainer: Annotated[
        list[Path] | None,
        typer.Option(metavar="RECORD", help="The record of one that trains and does not vote."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write its genesis.")] = Path("fork.json"),
    weights: Annotated[
        Path, typer.Option(metavar="FILE", help="Where to write its first weights.")
    ] = Path("fork.safetensors"),
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Begin another network from a certified vertex of this one.

    It has the job of this one, its own chain and validators, and begins with the weights of VERTEX
    and a momentum of zero. Put FILE as D/weights.safetensors on one host at least.
    """
    from daa_node.cli import checkpoint_fork, local

    records = local.Records(validator, trainer or [])
    checkpoint_fork.fork(directory, vertex, records, out, weights, as_json)


@history_app.command(name="import")
def take_in(
    source: Annotated[
        Path, typer.Argument(metavar="DIR", help="A node's directory, or its chain alone.")
    ],
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Take over what another directory has of the same chain.

    All of it is proved first, and together with what is here; nothing is taken if anything is wrong
    with it. D needs its genesis.json, and no daemon may run in it.
    """
    from daa_node.cli import checkpoint_import

    checkpoint_import.take_in(directory, source, as_json)
