"""One JSON object a line, a field of which is a text: a document each."""

import json
from collections.abc import Iterator
from pathlib import Path

from daa_node.errors import UserError
from daa_node.training.datasets.files import Content

LINE_BYTES_MAX = 64 * 1024 * 1024  # one document in memory at a time, and never more than this


def documents(content: Content, column: str) -> Iterator[str]:
    """The text of each line, its field `column`. Raises UserError."""
    found = False
    with content.path.open("rb") as file:
        line_number = 0
        while line := file.readline(LINE_BYTES_MAX + 1):
            line_number += 1
            if len(line) > LINE_BYTES_MAX:
                raise UserError(
                    f"{content.source}:{line_number}: longer than {LINE_BYTES_MAX} bytes"
                )
            if not line.strip():
                continue
            found = True
            yield _text_of(line, column, content.source, line_number)
    if not found:
        raise UserError(f"{content.source}:1: no documents; each line should be {_like(column)}")


def _like(column: str) -> str:
    return f'{{{json.dumps(column)}: "..."}}'


def _called(value: object) -> str:
    """What JSON calls it."""
    match value:
        case None | bool():
            return json.dumps(value)
        case list():
            return "a list"
        case dict():
            return "an object"
        case str():
            return "a text"
        case _:
            return "a number"


def _text_of(line: bytes, column: str, path: Path, line_number: int) -> str:
    remedy = f"each line must be one JSON object like {_like(column)}"
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise TypeError(f"the line is {_called(document)}")
        text = document[column]
        if not isinstance(text, str):
            raise TypeError(f"{json.dumps(column)} is {_called(text)}")
        text.encode()  # half of a pair of surrogates is no text
        return text
    except json.JSONDecodeError as fault:
        why = fault.msg.removesuffix(" at").removesuffix(" starting")  # the place stands before
        detail = f"{path}:{line_number}:{fault.colno}: not JSON: {why}"
    except KeyError:
        detail = f"{path}:{line_number}: no {json.dumps(column)} field"
        remedy += ", or set data.column"
    except (TypeError, ValueError, RecursionError) as fault:  # UTF-8, numbers too long
        detail = f"{path}:{line_number}: {fault}"
    raise UserError(f"{detail}; {remedy}")
