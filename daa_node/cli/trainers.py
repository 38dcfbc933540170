"""The trainers' roll as an operator sees it, and what he asks of it. Imports nothing slow."""

from pathlib import Path
from typing import Annotated, Any

import typer

from daa_node.cli.options import HERE, Directory, Json

trainers_app = typer.Typer(
    invoke_without_command=True, help="Show who trains without a vote, or let somebody in or out."
)
Node = Annotated[
    str, typer.Argument(metavar="NODE", help="Its id, or 8 digits or more of the start of it.")
]


@trainers_app.callback()
def trainers(context: typer.Context, directory: Directory = HERE, as_json: Json = False) -> None:
    """Show who trains without a vote, by whose word, and who has asked to.

    Since: the first round in which it may contribute. Missed: for which it was drawn since a
    set had it last. Who has missed sixteen idles, and is in no plan until its daemon enrolls again
    by itself.
    """
    if context.invoked_subcommand is None:
        _list(directory, as_json)


@trainers_app.command()
def vouch(node: Node, directory: Directory = HERE, as_json: Json = False) -> None:
    """Let a trainer in, in this validator's name, from the second round after on."""
    said = "is vouched for: once a set says so, it trains from the second round after on"
    _say(directory, "vouch", _whole(directory, node, "asked"), said, as_json)


@trainers_app.command()
def retire(node: Node, directory: Directory = HERE, as_json: Json = False) -> None:
    """Take a trainer off the roll: this node itself, or whom this validator vouches for."""
    said = "retires: it trains no more from the second round on after the set that says so"
    _say(directory, "retire", _whole(directory, node, "trainers"), said, as_json)


@trainers_app.command()
def enroll(directory: Directory = HERE, as_json: Json = False) -> None:
    """Ask to train without a vote. A daemon with `enroll: true` does it by itself."""
    from daa_node.adapters import control_socket
    from daa_node.cli import report

    answer = control_socket.ask(_control(directory), "enroll")
    if as_json:
        report.put_json(answer)
    else:
        report.put("this node has asked the members that it is connected with")


def _list(root: Path, as_json: bool) -> None:
    from daa_node.adapters import control_socket
    from daa_node.cli import report

    answer = control_socket.ask(_control(root), "trainers")
    if as_json:
        report.put_json(answer)
        return
    rules = {
        "closed": "the genesis names all",
        "vouched": f"a validator vouches for {answer['per_voucher']} at most",
        "open": "whoever asks",
    }
    taken, most = len(answer["trainers"]), answer["roll_max"]
    report.put(f"{answer['admission']} ({rules[answer['admission']]}), {taken} of {most} places")
    report.put_table(
        ("TRAINER", "VOUCHER", "SINCE", "MISSED", "STATE"),
        [
            [row["node_id"], (row["voucher"] or "-")[:16], row["since"], row["missed"], _state(row)]
            for row in answer["trainers"]
        ],
    )
    for row in answer["asked"]:
        report.put(f"{row['node_id']}  has asked: `daa-node trainers vouch {row['node_id'][:16]}`")


def _state(row: dict[str, Any]) -> str:
    if row["until"] is not None:
        return f"goes with round {row['until']}"
    if row["idle"]:
        return "idle"
    return "drawn" if row["drawn"] else "waits"


def _say(root: Path, command: str, node_id: str, said: str, as_json: bool) -> None:
    from daa_node.adapters import control_socket
    from daa_node.cli import report

    answer = control_socket.ask(_control(root), command, trainer=node_id)
    if as_json:
        report.put_json(answer)
    else:
        report.put(f"{node_id[:16]}  {said}")


def _whole(root: Path, node: str, where: str) -> str:
    """The id that begins so, among those listed there; what is whole needs no list."""
    from daa_node.adapters import control_socket
    from daa_node.errors import UserError

    if len(node) == 64:
        return node.lower()
    rows = control_socket.ask(_control(root), "trainers")[where]
    found = [row["node_id"] for row in rows if row["node_id"].startswith(node.lower())]
    if len(node) < 8 or len(found) != 1:
        raise UserError(
            f"{node!r} names {len(found)} nodes among those that `daa-node trainers` lists: give "
            "the whole id, or 8 digits or more of one of them"
        )
    return str(found[0])


def _control(root: Path) -> Path:
    from daa_node.cli.data_directory import DataDirectory

    directory = DataDirectory(root)
    directory.check()
    return directory.control
