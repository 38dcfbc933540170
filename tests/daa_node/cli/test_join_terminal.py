"""What a person sees on a terminal while joining: the question, and the bar."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence

STARTED_S = 120.0  # a loaded machine imports slowly
INTERRUPT = b"\x03"
# Python's input() misses a signal that comes between its question and its read, and waits on.
PRESSED_AGAIN_S = 3.0
OWN_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that its keys are signals
"""
ASKING = """
import signal
from daa_node.cli import report
for _ in range(5):
    try:
        report.put("train" if report.is_confirmed("Join it and train?") else "nothing was kept")
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the key may be pressed again
        report.put("stopped")
"""
FETCHING = """
from daa_node.cli import report
from daa_node.cli.contribution import Progress
from daa_node.observability import events
assert sys.stderr.isatty()
progress = Progress(report.draw, report.note)
def coming(height, here, due):
    told = {"height": height, "bytes": here, "bytes_due": due}
    progress.note({"name": events.STATE_COMING, **told}, 0)
report.put("network    joining")
coming(64, 0, 0)
coming(300, 0, 0)
coming(304, 2000, 4000)
report.note("12:00:00 quorum_wait reachable=2")
coming(304, 3000, 4000)
coming(304, 4000, 4000)
progress.note({"name": events.GAP_CROSSED, "height": 305, "from_height": 0}, 0)
coming(306, 0, 0)
"""


def screen(script: str, keys: Sequence[bytes], columns: int = 80) -> list[str]:
    """The lines on a terminal, once the script has ended; each key comes after a question."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    child = subprocess.Popen(
        (sys.executable, "-c", OWN_TERMINAL + script),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=environment | {"TERM": "dumb"},
    )
    os.close(theirs)
    try:
        seen = _pressed(ours, keys)
        assert child.wait(STARTED_S) == 0, seen.decode()
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    return [_row(line, columns) for line in seen.decode().split("\n")]


def _pressed(ours: int, keys: Sequence[bytes]) -> bytes:
    seen, pressed, deadline_s = b"", 0, time.monotonic() + STARTED_S
    while time.monotonic() < deadline_s:
        if not select.select([ours], [], [], PRESSED_AGAIN_S)[0]:
            if keys[pressed - 1 : pressed] == [INTERRUPT]:
                os.write(ours, INTERRUPT)
            continue
        try:
            seen += os.read(ours, 4096)
        except OSError:  # so a terminal ends
            break
        if pressed < len(keys) and seen.count(b"[y/N] ") > pressed:
            os.write(ours, keys[pressed])
            pressed += 1
    return seen


def _row(line: str, columns: int) -> str:
    """What stands there in the end: a carriage return goes back, and a row can be cleared."""
    drawn_over, row = list[str](), ""
    for part in line.removesuffix("\r").split("\r"):
        drawn_over.append(row)
        cleared = part.removeprefix("\x1b[K")
        row = cleared if cleared != part else part + row[len(part) :]
    assert "\x1b" not in row
    # it would wrap, and only its last row be drawn over
    assert max(map(len, drawn_over)) < columns
    return row


def test_only_a_yes_trains_and_every_answer_leaves_the_next_line_clean() -> None:
    lines = screen(ASKING, [b"y\n", b"YES\n", b"\n", b"\x04", b"\x03"])
    asked = "Join it and train? [y/N] "
    assert lines[0].startswith(asked)
    said = [line for line in lines if not line.startswith(asked)]
    assert said == ["train", "train", "nothing was kept", "nothing was kept", "stopped", ""]
    assert sum(line.startswith(asked) for line in lines) == 5


def test_a_bar_is_drawn_over_and_never_stands_in_the_way_of_a_line() -> None:
    assert screen(FETCHING, []) == [
        "network    joining",
        "12:00:00 quorum_wait reachable=2",
        "state    304 [########################] 4.0 kB of 4.0 kB",
        "height 305 is proved and whole, from 0",
        "proofs       up to height 306",
    ]


def test_a_bar_fits_a_narrow_terminal() -> None:
    *_, last = screen(FETCHING.replace("306", "123456"), [], columns=40)
    assert last == "proofs       up to height 123456"
