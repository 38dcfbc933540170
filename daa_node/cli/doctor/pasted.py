"""`daa-node doctor --explain TEXT`: what pasted lines of a log or a terminal mean.

A line may be an event as `events.jsonl` has it, an event as `daa-node logs` shows it, or a message,
with whatever journald, a container's log or a terminal puts around it. No directory is looked at.

Others may have said a part of what is pasted, and may have written it for this table. So this
program's own words choose the row where they can be told apart; and advice that takes something
away is never given for words alone: `doctor` gives it for what it finds itself.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from daa_node.advice.row import Row
from daa_node.advice.table import (
    OF_EVENTS,
    OTHERWISE,
    OWN_WORDS,
    row_of_event,
    row_of_message,
    says_what_to_do,
)
from daa_node.cli import report
from daa_node.errors import UserError

CHARACTERS_MAX = 64_000  # a screen of a log has some 20,000
LINES_MAX = 64
SHOWN_CHARACTERS_MAX = 160
LOOK_FIRST = (
    "Ask `daa-node doctor` on that host, and do what it says there. A pasted line may hold words "
    "of others, and what helps here takes something away"
)
ITSELF = "Do what the message says itself"
UNKNOWN = "This program's table does not know this line"

# Colours and other sequences of a terminal; then what else is no text.
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
_NO_TEXT = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
# An event as `daa-node logs` shows it: the time of day, the name, fields.
_SHOWN = re.compile(r"(?:^|\s)\d\d:\d\d:\d\d\.\d{3} ([a-z_]{3,40})(?:\s+(.*))?$")
_FIELD = re.compile(r'\b([a-z_]+)=("(?:[^"\\]|\\.)*"|\S+)')


@dataclass(frozen=True, slots=True)
class Explained:
    """What one line means."""

    line: str
    known_by: str  # the event's name, or the row's words; empty: by nothing
    means: str
    advice: str


def explain(text: str, as_json: bool) -> bool:
    """Print what each line means; whether the table knows one of them. "-": standard input.

    Raises UserError for what is empty, too long, or no text.
    """
    found = list(explained_lines(_read() if text.strip() == "-" else text))
    known = any(one.known_by for one in found)
    if as_json:
        lines = [
            {"line": one.line, "known_by": one.known_by, "means": one.means, "advice": one.advice}
            for one in found
        ]
        report.put_json({"ok": known, "lines": lines})
        return known
    for one in found:
        report.put(one.line)
        report.put(f"  What it means: {one.means}.")
        report.put(f"  What to do: {one.advice}.")
    return known


def _read() -> str:
    try:
        return sys.stdin.read(CHARACTERS_MAX + 1)
    except (AttributeError, OSError, UnicodeDecodeError):  # closed from the start (`<&-`): None
        raise UserError("standard input is no text: pipe lines of a log into it") from None


def explained_lines(text: str) -> Iterator[Explained]:
    """Of each different line that is not empty. Raises UserError."""
    if len(text) > CHARACTERS_MAX:
        raise UserError(f"--explain: at most {CHARACTERS_MAX} characters; paste fewer lines")
    lines = [_NO_TEXT.sub("", _SEQUENCE.sub("", line)).strip() for line in text.splitlines()]
    wanted = list(dict.fromkeys(line for line in lines if line))
    if not wanted:
        raise UserError("--explain: there is no text in it; paste a line of a log, or an error")
    if len(wanted) > LINES_MAX:
        raise UserError(f"--explain: at most {LINES_MAX} lines; paste fewer")
    yield from map(explained_line, wanted)


def explained_line(line: str) -> Explained:
    shown = line if len(line) <= SHOWN_CHARACTERS_MAX else f"{line[:SHOWN_CHARACTERS_MAX]}..."
    event = _event_in(line)
    row = None if event is None else row_of_event(event)
    if event is not None and row is not None:
        return Explained(shown, str(event["name"]), *_words_of(row, event))
    message = row_of_message(line)
    if message is not None:
        return Explained(shown, message.key, message.means, _safe(message))
    if says_what_to_do(line):
        return Explained(shown, "", UNKNOWN, ITSELF)
    return Explained(shown, "", UNKNOWN, OTHERWISE)


def _words_of(row: Row, event: Mapping[str, Any]) -> tuple[str, str]:
    """What the event means, and what to do: by its own words, where they say more."""
    words = event.get(OWN_WORDS.get(str(event["name"]), ""))
    more = row_of_message(words) if isinstance(words, str) else None
    if more is None:
        return row.means, _safe(row)
    return f"{row.means}. {more.means}", _safe(more)


def _safe(row: Row) -> str:
    return LOOK_FIRST if row.is_drastic else row.advice


def _event_in(line: str) -> Mapping[str, Any] | None:
    """The first event in that line; what stands before it does not matter, whoever put it there."""
    begin = line.find("{")
    if begin >= 0:
        try:
            found, _ = json.JSONDecoder().raw_decode(line[begin:])
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and isinstance(found.get("name"), str):
            return found
    shown = _SHOWN.search(line)
    if shown is None or shown[1] not in OF_EVENTS:
        return None
    fields = {key: _value(text) for key, text in _FIELD.findall(shown[2] or "")}
    return {**fields, "name": shown[1]}


def _value(text: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        return text
