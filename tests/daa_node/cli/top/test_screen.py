"""A terminal is as it was when `top` leaves it, however it is ended."""

import io
import os
import pty
import termios
from collections.abc import Iterator

import pytest

from daa_node.cli.top import screen


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """(what a person sees and types, what the program has)."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(theirs)
    os.close(ours)


def test_the_terminal_is_as_it_was_also_after_a_failure(terminal: tuple[int, int]) -> None:
    _, theirs = terminal
    before = termios.tcgetattr(theirs)
    out = io.StringIO()
    seen: list[object] = []

    def fails() -> None:
        with screen.opened(out, theirs):
            seen.append(termios.tcgetattr(theirs))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    (during,) = seen
    assert isinstance(during, list)
    assert not during[3] & (termios.ICANON | termios.ECHO)
    assert during[3] & termios.ISIG  # Ctrl-C is a signal
    off = bytes([os.fpathconf(theirs, "PC_VDISABLE")])
    assert during[6][termios.VSUSP] == during[6][termios.VQUIT] == off
    assert termios.tcgetattr(theirs) == before
    assert out.getvalue() == screen.BEGIN + screen.END


def test_each_line_is_cleared_to_its_end_and_the_rest_of_the_screen_too() -> None:
    out = io.StringIO()
    screen.draw(out, ["one", "two"])
    assert out.getvalue() == "\x1b[Hone\x1b[K\r\ntwo\x1b[K\x1b[J"


@pytest.mark.parametrize(
    ("encoding", "has"), [("utf-8", True), ("ascii", False), ("latin-1", False)]
)
def test_an_encoding_without_blocks_is_known(encoding: str, has: bool) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    assert screen.has_blocks(out) is has
    screen.draw(out, ["caf\xe9 \N{SNOWMAN}\udcff"])  # costs the characters alone


@pytest.mark.parametrize("name", ["dumb", "", None])
def test_a_pipe_and_a_dumb_terminal_are_no_screen(
    monkeypatch: pytest.MonkeyPatch, terminal: tuple[int, int], name: str | None
) -> None:
    monkeypatch.setattr("sys.stdout", os.fdopen(os.dup(terminal[1]), "w"))
    monkeypatch.setenv("TERM", "xterm")
    assert screen.is_screen()
    if name is None:
        monkeypatch.delenv("TERM")
    else:
        monkeypatch.setenv("TERM", name)
    assert not screen.is_screen()
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    assert not screen.is_screen()


def test_the_size_is_that_of_the_terminal_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, terminal: tuple[int, int]
) -> None:
    monkeypatch.setenv("COLUMNS", "7")
    termios.tcsetwinsize(terminal[1], (33, 44))
    with os.fdopen(os.dup(terminal[1]), "w") as out:
        assert screen.size(out) == (44, 33)
        termios.tcsetwinsize(terminal[1], (0, 0))  # as a serial line has it
        assert screen.size(out) == screen.USUAL_SIZE
    assert screen.size(io.StringIO()) == screen.USUAL_SIZE
