"""Tests are compiled once, by the worker that comes first."""

import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.compiled import FIRST, NEW_MIN, compiled_form, in_turn, uncompiled

WAIT_S = 60.0


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """So many files that it is worth to wait."""
    for number in range(NEW_MIN):
        (tmp_path / f"test_{number}.py").touch()
    (tmp_path / "no_test.py").touch()
    return tmp_path


@pytest.mark.skipif(sys.dont_write_bytecode, reason="nothing is kept")
def test_what_runs_now_is_compiled_where_it_is_looked_for() -> None:
    assert compiled_form(Path(__file__)).exists()


def test_files_of_tests_count_that_nobody_has_compiled(fresh: Path) -> None:
    assert uncompiled(fresh) == NEW_MIN
    (fresh / "__pycache__").mkdir()
    compiled_form(fresh / "test_7.py").touch()
    assert uncompiled(fresh) == NEW_MIN - 1


def test_others_wait_for_the_first_even_if_it_fails(fresh: Path) -> None:
    entered = threading.Event()

    def enter() -> None:
        with in_turn("gw1", fresh, fresh):
            entered.set()

    other = threading.Thread(target=enter)
    with suppress(KeyError), in_turn(FIRST, fresh, fresh):
        other.start()
        assert not entered.wait(0.3)
        raise KeyError
    assert entered.wait(WAIT_S)
    other.join()


def test_nobody_waits_where_little_is_new(fresh: Path) -> None:
    (fresh / "test_0.py").unlink()
    with in_turn("gw1", fresh, fresh):
        assert not (fresh / "compiled").exists()
