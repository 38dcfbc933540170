"""The event log on disk, read again: what it says of runs that are over, oldest first.

What is no event is passed over: a line that was cut off, or that another program has written. So
is the rest of a file that the disk cannot read.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from daa_node.adapters.event_file import LINE_BYTES_MAX
from daa_node.observability.events import Event

FILES_MAX = 100  # as many as `log.files_max` may say


def logged(path: Path, since_s: float) -> Iterator[Event]:
    """Events later than `since_s` in the files at `path`; it blocks. A file that is gone is empty.

    While it is read a running daemon may rotate: then some events are missed.
    """
    numbered = [path.with_name(f"{path.name}.{n}") for n in range(FILES_MAX, 0, -1)]
    for file in [*numbered, path]:
        with suppress(OSError):
            if file.stat().st_mtime < since_s:
                continue
            with file.open("rb") as opened:
                while line := opened.readline(LINE_BYTES_MAX):
                    event = _event(line)
                    if event is not None and event["ts"] > since_s:
                        yield event


def _event(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("ts"), int | float):
        return None
    return event
