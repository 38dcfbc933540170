"""What commands tell a person, and what it must not cost."""

from functools import partial
from io import BytesIO, FileIO, TextIOWrapper

import pytest

from daa_node.cli import report
from daa_node.errors import StorageFailed
from tests.daa_node.cli.conftest import Command


def test_a_note_that_cannot_be_written_costs_the_line_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report.note("there is room")
    assert capsys.readouterr().err == "there is room\n"
    with FileIO("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stderr", _Text(full))
        report.note("there is none")  # as in a daemon whose log is on a full disk


def test_an_answer_that_cannot_be_written_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with FileIO("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", _Text(full))
        for answer in (
            partial(report.put, "a record"),
            partial(report.put_json, {}),
            partial(report.put_table, ["HEIGHT"], [[1]]),
        ):
            with pytest.raises(StorageFailed, match="cannot write standard output: No space left"):
                answer()


def test_an_answer_is_json_also_where_a_number_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    report.put_json({"loss_nats": float("nan"), "rounds": [{"loss_nats": float("inf")}]})
    told = capsys.readouterr().out
    assert told == '{"schema_version": 1, "loss_nats": null, "rounds": [{"loss_nats": null}]}\n'


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", b"caf\\xe9\\udcff\n"), ("utf-8", b"caf\xc3\xa9\\udcff\n")]
)
def test_a_name_that_the_terminal_cannot_show_costs_its_characters_alone(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: bytes
) -> None:
    written = BytesIO()
    monkeypatch.setattr("sys.stdout", TextIOWrapper(written, encoding))
    report.put("caf\xe9\udcff")  # as os.fsdecode gives a path that is not UTF-8
    assert written.getvalue() == shown


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("a\x1b[2Jb\x07", r"a\x1b[2Jb\x07"),
        ("of \u202eyou\r\x9b2J", r"of \u202eyou\r\x9b2J"),
        ("a\tb\nc\u3000\xe9", "a\tb\nc\u3000\xe9"),
    ],
)
def test_what_others_have_said_moves_no_cursor(
    capsys: pytest.CaptureFixture[str], said: str, told: str
) -> None:
    report.draw(said)
    report.put(said)
    report.note(said)
    report.put_table([said], [])
    seen = capsys.readouterr()
    assert seen.out == f"{told}\n" * 2
    assert seen.err == f"{report.CLEARED}{told}{report.CLEARED}{told}\n"


def test_an_error_moves_no_cursor_either(command: Command) -> None:
    done = command("status", "--dir", "/none/\x1b[2J")
    assert (done.code, "\x1b" in done.err, r"/none/\x1b[2J" in done.err) == (2, False, True)


class _Text:
    """As much of a text stream as print needs; every write goes to the device."""

    encoding = "utf-8"

    def __init__(self, device: FileIO) -> None:
        self._device = device

    def write(self, text: str) -> int:
        return self._device.write(text.encode())

    def flush(self) -> None:
        """Nothing is kept back."""

    def isatty(self) -> bool:
        return False


def test_a_table_that_is_wider_than_the_terminal_comes_in_blocks_and_nothing_is_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    heads, rows = ("NODE", "HEIGHT", "REACH", "ADDRESS"), [("ab12", 34, "punched", "1.2.3.4:4001")]
    report.put_table(heads, rows)
    assert len(capsys.readouterr().out.splitlines()) == 2  # a pipe has no width
    report.put_table(heads, rows, room=21)
    assert capsys.readouterr().out.splitlines() == [
        *("NODE  HEIGHT  REACH", "ab12      34  punched"),
        *("", "NODE  ADDRESS", "ab12  1.2.3.4:4001"),
    ]
    report.put_table(heads, rows, room=5)  # no narrower than two columns
    assert capsys.readouterr().out.count("NODE") == 3
