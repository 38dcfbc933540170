"""What a daemon says: in order and at once, and never at the cost of whoever says it."""

from threading import Event

import pytest

from daa_node.cli import remarks, report
from daa_node.cli.remarks import WAITING_MAX, Remarks


def test_lines_come_in_order_and_all_of_them_before_the_end() -> None:
    told: list[str] = []
    said = Remarks(told.append)
    for number in range(WAITING_MAX):
        said.say(str(number))
    said.finish(within_s=60)
    assert told == [str(number) for number in range(WAITING_MAX)]


def test_a_terminal_that_stands_still_costs_old_lines_and_holds_up_nobody() -> None:
    told, is_writing, goes_on = list[str](), Event(), Event()

    def stalled(line: str) -> None:
        is_writing.set()
        goes_on.wait()
        told.append(line)

    said = Remarks(stalled)
    said.say("first")
    is_writing.wait()
    for number in range(3 * WAITING_MAX):
        said.say(str(number))
    said.finish(within_s=0)
    assert told == []
    goes_on.set()
    said.finish(within_s=60)
    newest = range(2 * WAITING_MAX, 3 * WAITING_MAX)
    assert told == ["first", *(str(number) for number in newest)]


def test_a_line_goes_to_standard_error_whatever_it_holds(capfd: pytest.CaptureFixture[str]) -> None:
    remarks.remark("height 7 \ud800 \x1b[2J")
    remarks.finish()
    assert capfd.readouterr().err == "height 7 \\ud800 \\x1b[2J\n"
    report.draw("half of it")
    remarks.remark("height 8")
    remarks.remark("height 9")
    remarks.finish()
    shown = capfd.readouterr().err.removeprefix(f"{report.CLEARED}half of it")
    assert shown == f"{report.CLEARED}height 8\nheight 9\n"


def test_without_a_standard_error_lines_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Remarks(remarks._put)
    with monkeypatch.context() as closed:
        closed.setattr("sys.stderr", None)
        told.say("height 7")
        told.finish()
    assert told._thread is not None
    assert told._thread.is_alive()
