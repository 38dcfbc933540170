"""`daa-node invite` and `daa-node join`: one line on each side.

As in `main`, commands import what they need when they run.
"""

from typing import Annotated

import typer

from daa_node.cli.options import HERE, Directory, Json, WithParent

join_app = typer.Typer()


@join_app.command()
def invite(
    uses: Annotated[
        int, typer.Option(metavar="N", help="How many nodes may come, one after another.")
    ] = 1,
    expires: Annotated[
        str, typer.Option(metavar="TIME", help="Until when: like 90m, 12h, 7d or 2w.")
    ] = "7d",
    list_all: Annotated[
        bool, typer.Option("--list", help="Show the invites of this node, and who came.")
    ] = False,
    revoke: Annotated[
        str | None, typer.Option(metavar="ID", help="Take one back, as --list names it.")
    ] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Let others join this network as trainers.

    Run it on a validator whose daemon runs. It prints one text to send to whoever is to join:
    `daa-node join` takes it. Whoever has the text may use it; each node that comes takes one of
    the places that this validator vouches for.
    """
    from daa_node.cli import inviting

    if list_all:
        inviting.show(directory, as_json)
    elif revoke is not None:
        inviting.revoke(directory, revoke, as_json)
    else:
        inviting.make(directory, uses, expires, as_json)


@join_app.command()
def join(
    invite: Annotated[
        list[str],
        typer.Argument(metavar="INVITE", help="The text from `daa-node invite`; - reads it."),
    ],
    directory: Directory = HERE,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask: for scripts.")] = False,
    trust: Annotated[
        str | None,
        typer.Option(
            metavar="VERTEX", help="The id of a vertex that the chain must hold, from a friend."
        ),
    ] = None,
    role: Annotated[
        str, typer.Option(metavar="edge|cloud", help="Settings of a new node, as with `init`.")
    ] = "edge",
    with_parent: WithParent = False,
) -> None:
    """Join a running network as a trainer, and train.

    Shows what would be trained, by whom, and what it costs this machine, and asks. Then it fetches
    the newest certified state, proves it, and trains until it is stopped. The same command again
    goes on where it stopped; so does `daa-node run`.
    """
    from daa_node.cli import join as joins
    from daa_node.cli.doctor.explained import explained

    wanted = joins.Wanted(directory, yes, trust, role, with_parent)
    with explained(directory):
        joins.join(" ".join(invite), wanted)
