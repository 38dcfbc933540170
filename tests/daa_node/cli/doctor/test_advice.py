"""The table of advice knows only messages that this program has."""

from pathlib import Path

import pytest

import daa_node
from daa_node.cli.doctor.advice import ADVICE, OTHERWISE, advice_of

OF_OTHERS = {"No space left on device", "No module named 'torch'"}  # the system's, and Python's
SOURCES = [
    path.read_text()
    for path in Path(daa_node.__file__).parent.rglob("*.py")
    if path.parent.name != "doctor"
]


@pytest.mark.parametrize("piece", [piece for piece, _ in ADVICE])
def test_each_message_of_the_table_is_in_the_program(piece: str) -> None:
    assert piece in OF_OTHERS or any(piece in text for text in SOURCES)


def test_no_message_hides_behind_another_one() -> None:
    for number, (piece, advice) in enumerate(ADVICE):
        assert advice_of(piece) == advice, f"{number}: an earlier piece is in it"


def test_there_is_advice_for_what_the_table_does_not_know() -> None:
    assert advice_of("something new") == OTHERWISE
