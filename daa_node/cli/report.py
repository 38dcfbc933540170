"""How commands speak: one JSON object on standard output, or lines for people; notes on stderr."""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from daa_node.api.replies import with_nulls
from daa_node.errors import StorageFailed

SCHEMA_VERSION = 1
CLEARED = "\r\x1b[K"  # the terminal's line, from its beginning
# What moves a cursor, rings a bell or turns text round; a tab and a line break may stay.
_MOVES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class _Drawn:
    """What stands on the terminal's last line, to be drawn over."""

    is_there = False

    def clear(self) -> None:
        if self.is_there:
            self.is_there = False
            print(CLEARED, end="", file=sys.stderr, flush=True)


_drawn = _Drawn()


def put_json(answer: dict[str, Any]) -> None:
    """One object, `schema_version` first; null for a number that is none, as JSON has none such.

    Raises StorageFailed as `put` does.
    """
    put(json.dumps(with_nulls({"schema_version": SCHEMA_VERSION, **answer}), allow_nan=False))


def plain(text: str) -> str:
    """With codes in place of what moves a terminal's cursor: others may have said it."""
    return _MOVES.sub(lambda found: ascii(found[0])[1:-1], text)


def put(line: str = "") -> None:
    """Plain, and characters that the terminal's encoding lacks as their codes.

    Raises StorageFailed when standard output goes to a disk that is full; BrokenPipeError when its
    reader is gone.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        _drawn.clear()
        print(plain(line).encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise StorageFailed(f"cannot write standard output: {failure.strerror}") from failure


def note(line: str) -> None:
    """For the person, beside whatever goes to standard output.

    A log on a full disk, or a terminal that is gone, costs the line and not the daemon.
    """
    with suppress(OSError):
        _drawn.clear()
        print(plain(line), file=sys.stderr, flush=True)


def undrawn() -> str:
    """What the next line begins with, so that nothing drawn stands before it."""
    cleared = CLEARED if _drawn.is_there else ""
    _drawn.is_there = False
    return cleared


def is_watched() -> bool:
    """Whether standard error is a terminal; one that was closed (`2>&-`) is none."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def draw(line: str) -> None:
    """On a terminal: over what was drawn before, until anything else is said.

    No wider than the terminal: of what wraps only the last row could be drawn over.
    """
    columns = shutil.get_terminal_size().columns
    with suppress(OSError):
        print(CLEARED + plain(line)[: columns - 1], end="", file=sys.stderr, flush=True)
        _drawn.is_there = True


def is_confirmed(question: str) -> bool:
    """Whether somebody at the terminal says yes. Raises KeyboardInterrupt."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        put()  # what comes next has a line of its own
        return False
    except KeyboardInterrupt:
        put()
        raise


def put_table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], room: int | None = None
) -> None:
    """Columns as wide as their widest cell; numbers to the right.

    What is wider than `room` (the terminal's width, if there is one) comes in blocks, one below the
    other, each with the first column before it: lines that a terminal wraps are read by nobody.
    """
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    if room is None and sys.stdout.isatty():
        room = shutil.get_terminal_size().columns
    for number, block in enumerate(_blocks(widths, room)):
        if number:
            put()
        for line, values in [(heads, [""] * len(heads)), *zip(cells, rows, strict=True)]:
            padded = [
                line[at].rjust(widths[at])
                if isinstance(values[at], int | float)
                else line[at].ljust(widths[at])
                for at in block
            ]
            put("  ".join(padded).rstrip())


def _blocks(widths: Sequence[int], room: int | None) -> list[list[int]]:
    """Which columns stand side by side."""
    blocks, used = [[0]], widths[0]
    for at, width in enumerate(widths[1:], 1):
        if room is not None and used + 2 + width > room and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(at)
        used += 2 + width
    return blocks


def size(count_bytes: int | float) -> str:
    """`1.5 MB`: three digits and a unit."""
    value = float(count_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4f}" if isinstance(cell, float) else str(cell)
