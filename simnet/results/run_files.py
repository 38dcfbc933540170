"""The files of a run that was kept, its scenario, outcome and trace; and where two runs part."""

import json
import os
from collections import deque
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from daa_node.errors import UserError
from simnet.checks.outcome import OUTCOME_FILE, SCHEMA_VERSION, TRACE_FILE

LINES_BEFORE = 3  # where two traces part

Event = dict[str, Any]


def run_file(folder: Path, name: str) -> Path:
    """Raises UserError for a file of a run that is not there."""
    path = folder / name
    if not path.is_file() or not os.access(path, os.R_OK):
        raise UserError(f"no {path} can be read: make it with `simnet run SCENARIO --out {folder}`")
    return path


def outcome_of(folder: Path) -> Event:
    """What the run came to. Raises UserError."""
    path = run_file(folder, OUTCOME_FILE)
    again = f"make it anew with `simnet run SCENARIO --out {folder}`"
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{path}: this is no outcome of a run: {again}")
    if found.get("schema_version") != SCHEMA_VERSION:
        raise UserError(f"{path}: its outcome is of another version of simnet: {again}")
    return found


def events_of(folder: Path) -> Iterator[Event]:
    """Of its trace, in order. Raises UserError."""
    for line in _lines(folder):
        try:
            event: object = json.loads(line)
        except (RecursionError, ValueError):
            event = None
        if not isinstance(event, dict):
            raise _no_trace(folder)
        yield event


def first_difference(one: Path, other: Path) -> str | None:
    """Where the traces of two runs part, with the lines before it; None if they are equal.

    A file holds events, the hash covers messages as well: those may differ alone. Raises UserError
    if a run's file is missing.
    """
    before = deque[str](maxlen=LINES_BEFORE)
    number = 0
    for number, (left, right) in enumerate(zip_longest(_lines(one), _lines(other)), 1):
        if left != right and None in (left, right):
            longer = one if right is None else other
            return "\n".join([*before, f"only {longer} goes on after event {number - 1}"])
        if left != right:
            return "\n".join([*before, f"- {number}: {left}", f"+ {number}: {right}"])
        before.append(f"  {number}: {left}")
    left, right = (outcome_of(folder).get("trace_hash") for folder in (one, other))
    if left != right:
        return f"all {number} events are equal, messages are not: trace {left}, trace {right}"
    return None


def _lines(folder: Path) -> Iterator[str]:
    try:
        with run_file(folder, TRACE_FILE).open(encoding="utf-8") as file:
            for line in file:
                yield line.rstrip("\n")
    except (OSError, UnicodeDecodeError):
        raise _no_trace(folder) from None


def _no_trace(folder: Path) -> UserError:
    return UserError(
        f"{folder}: its trace is of no run that ended: make it anew with `simnet run SCENARIO "
        f"--out {folder}`"
    )
