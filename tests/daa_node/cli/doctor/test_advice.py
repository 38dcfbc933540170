"""The table of advice knows only messages that this program has, and each of these once."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import daa_node
from daa_node.cli.doctor.advice import ADVICE, OTHERWISE, advice_of

OF_OTHERS = {"No space left on device", "No module named 'torch'"}  # the system's, and Python's


@cache
def messages() -> tuple[str, ...]:
    """Every text of the program as it is told, with {} for what is filled in; no docstring."""
    paths = Path(daa_node.__file__).parent.rglob("*.py")
    return tuple(
        text
        for path in paths
        if path.parent.name != "doctor"
        for text in texts_of(ast.parse(path.read_text()))
    )


def texts_of(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Expr(value=ast.Constant()):
                continue  # a docstring
            case ast.Constant(value=str(text)):
                yield text
            case ast.JoinedStr(values=parts):
                yield "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts)
            case _:
                yield from texts_of(child)


@pytest.mark.parametrize("piece", [piece for piece, _ in ADVICE])
def test_each_message_of_the_table_is_in_the_program(piece: str) -> None:
    assert piece in OF_OTHERS or any(piece in text for text in messages())


def test_each_message_of_the_program_fits_one_row_at_most() -> None:
    assert len(messages()) > 1000
    for text in messages():
        fitting = [piece for piece, _ in ADVICE if piece in text]
        assert len(fitting) <= 1, f"{text!r} fits {fitting}"


def test_no_message_hides_behind_another_one() -> None:
    for number, (piece, advice) in enumerate(ADVICE):
        assert advice_of(piece) == advice, f"{number}: an earlier piece is in it"


def test_there_is_advice_for_what_the_table_does_not_know() -> None:
    assert advice_of("something new") == OTHERWISE
