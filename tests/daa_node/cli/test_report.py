"""What commands tell a person, and what it must not cost."""

from io import FileIO

import pytest

from daa_node.cli import report


def test_a_note_that_cannot_be_written_costs_the_line_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report.note("there is room")
    assert capsys.readouterr().err == "there is room\n"
    with FileIO("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stderr", _Text(full))
        report.note("there is none")  # as in a daemon whose log is on a full disk


class _Text:
    """As much of a text stream as print needs; every write goes to the device."""

    def __init__(self, device: FileIO) -> None:
        self._device = device

    def write(self, text: str) -> int:
        return self._device.write(text.encode())

    def flush(self) -> None:
        """Nothing is kept back."""
