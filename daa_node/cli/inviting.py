"""`daa-node invite`: one text that lets others join, made by a running validator; and which are."""

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from daa_node.adapters import control_socket
from daa_node.agreement.invitations import check_terms
from daa_node.cli import report
from daa_node.cli.data_directory import DataDirectory
from daa_node.errors import UserError

UNITS_S = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_EXPIRES = re.compile(r"(\d{1,4})([mhdw])")


def make(root: Path, uses: int, expires: str, as_json: bool) -> None:
    """Raises UserError, also when no daemon runs in `root`."""
    expires_s = seconds_of(expires)
    check_terms(uses, expires_s)
    answer = _ask(root, "invite", uses=uses, expires_s=expires_s)
    if as_json:
        report.put_json(answer)
        return
    who = "one node" if uses == 1 else f"{uses} nodes, one after another"
    report.note(f"This lets in {who} until {_when(answer)}. Send it to nobody else:")
    report.put(answer["invite"])
    report.note("On the new host:  daa-node join INVITE")
    report.note(f"To take it back:  daa-node invite --revoke {answer['id']}")


def show(root: Path, as_json: bool) -> None:
    answer = _ask(root, "invites")
    if as_json:
        report.put_json(answer)
        return
    if answer["admission"] == "vouched":
        report.put(
            f"this node vouches for {answer['vouched']} of {answer['per_voucher']} trainers that "
            "it may"
        )
    else:
        report.put(f"admission of trainers: {answer['admission']}")
    rows = [
        [row["id"], f"{len(row['used_by'])}/{row['uses']}", _when(row), _state(row)]
        for row in answer["invites"]
    ]
    report.put_table(("INVITE", "USED", "UNTIL", "STATE"), rows)
    for row in answer["invites"]:
        for node in row["used_by"]:
            report.put(f"{row['id']}  used by {node}")


def revoke(root: Path, name: str, as_json: bool) -> None:
    answer = _ask(root, "revoke", id=name.strip().lower())
    if as_json:
        report.put_json(answer)
    else:
        report.put(f"{answer['id']} lets nobody in any more. Who has come with it stays")


def seconds_of(text: str) -> int:
    """Of `90m`, `12h`, `7d` or `2w`. Raises UserError."""
    found = _EXPIRES.fullmatch(text.strip().lower())
    if found is None:
        raise UserError(f"--expires {text[:40]}: a number and a unit, like 90m, 12h, 7d or 2w")
    return int(found[1]) * UNITS_S[found[2]]


def _state(row: Mapping[str, Any]) -> str:
    if row["revoked"]:
        return "revoked"
    if row["expired"]:
        return "expired"
    return "used up" if len(row["used_by"]) >= row["uses"] else "open"


def _when(row: Mapping[str, Any]) -> str:
    return datetime.fromtimestamp(row["expires"]).strftime("%Y-%m-%d %H:%M")


def _ask(root: Path, command: str, **words: object) -> dict[str, Any]:
    directory = DataDirectory(root)
    directory.check()
    return control_socket.ask(directory.control, command, **words)
