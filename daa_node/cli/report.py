"""How commands speak: one JSON object on standard output, or lines for people; notes on stderr."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from daa_node.errors import StorageFailed

SCHEMA_VERSION = 1


def put_json(answer: dict[str, Any]) -> None:
    """One object, `schema_version` first. Raises StorageFailed as `put` does."""
    put(json.dumps({"schema_version": SCHEMA_VERSION, **answer}))


def put(line: str = "") -> None:
    """Characters that the terminal's encoding lacks as their codes.

    Raises StorageFailed when standard output goes to a disk that is full; BrokenPipeError when its
    reader is gone.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise StorageFailed(f"cannot write standard output: {failure.strerror}") from failure


def note(line: str, end: str = "\n") -> None:
    """For the person, beside whatever goes to standard output.

    A log on a full disk, or a terminal that is gone, costs the line and not the daemon.
    """
    with suppress(OSError):
        print(line, end=end, file=sys.stderr, flush=True)


def put_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; numbers to the right."""
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for line, values in [(heads, [""] * len(heads)), *zip(cells, rows, strict=True)]:
        padded = [
            cell.rjust(width) if isinstance(value, int | float) else cell.ljust(width)
            for cell, width, value in zip(line, widths, values, strict=True)
        ]
        put("  ".join(padded).rstrip())


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
