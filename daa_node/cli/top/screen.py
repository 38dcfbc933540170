"""A terminal for one picture that is drawn over and over, and as it was when this is left.

The picture has a screen of its own (the alternate one), no cursor, and no line that wraps. Keys
come one by one and are not shown; Ctrl-C is still a signal. Ctrl-Z and Ctrl-\\ would leave the
terminal so: they do nothing meanwhile. Source: ECMA-48, and xterm's control sequences.
"""

import os
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

BEGIN = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # the other screen, no cursor, no wrapping
END = "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
DUMB = ("", "dumb")  # of TERM: what knows no cursor
KEY_BYTES_MAX = 64
USUAL_SIZE = (80, 24)  # of one that does not say


def is_screen() -> bool:
    """Whether standard output is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in DUMB


def size(out: TextIO) -> tuple[int, int]:
    """Columns and rows, as they are now: COLUMNS of the environment may be from before."""
    try:
        columns, rows = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):  # not a terminal any more
        return USUAL_SIZE
    return (columns or USUAL_SIZE[0]), (rows or USUAL_SIZE[1])


def has_blocks(stream: TextIO) -> bool:
    """Whether its encoding has what a sparkline is drawn with."""
    try:
        "▁█…".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextmanager
def opened(out: TextIO, keys: int | None) -> Iterator[None]:
    """`keys`: the descriptor of a terminal that keys are read from, or None."""
    before = None if keys is None else termios.tcgetattr(keys)
    try:
        if keys is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, _by_key(keys))
        _write(out, BEGIN)
        yield
    finally:
        with suppress(OSError, termios.error):  # of a terminal that is gone
            _write(out, END)
            if keys is not None and before is not None:
                # what was typed meanwhile was not meant for the shell
                termios.tcsetattr(keys, termios.TCSAFLUSH, before)


def draw(out: TextIO, lines: Sequence[str]) -> None:
    """All of the screen. Characters that its encoding lacks as their codes. Raises OSError."""
    rows = f"{REST_OF_LINE}\r\n".join(lines)
    _write(out, f"{HOME}{rows}{REST_OF_LINE}{REST_OF_SCREEN}")


def pressed(keys: int) -> str:
    """What was typed; empty once the terminal is gone."""
    try:
        return os.read(keys, KEY_BYTES_MAX).decode("ascii", "replace")
    except OSError:
        return ""


def _by_key(keys: int) -> list[Any]:
    """What the terminal is set to now, but for what is to differ."""
    *flags, local, in_speed, out_speed, characters = termios.tcgetattr(keys)
    for index in (termios.VSUSP, termios.VQUIT):
        characters[index] = bytes([os.fpathconf(keys, "PC_VDISABLE")])  # 0, and 255 on macOS
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    local &= ~(termios.ICANON | termios.ECHO)
    return [*flags, local, in_speed, out_speed, characters]


def _write(out: TextIO, text: str) -> None:
    encoding = out.encoding or "utf-8"
    out.write(text.encode(encoding, "backslashreplace").decode(encoding))
    out.flush()
