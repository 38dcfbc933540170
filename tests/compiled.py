"""In a fresh checkout one worker compiles all tests, and the others wait for it.

Each of them imports every test. What none has compiled yet all would compile at once, which takes
as much CPU as the imports themselves.
"""

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

ROOT = Path(__file__).parent
NEW_MIN = 100  # files; fewer are no reason to wait
WAIT_S_MAX, LOOK_S = 120.0, 0.1
FIRST = "gw0"


def compiled_form(file: Path) -> Path:
    """Where pytest keeps it, with what asserts tell."""
    tag = f"{sys.implementation.cache_tag}-pytest-{pytest.__version__}"
    return file.parent / "__pycache__" / f"{file.stem}.{tag}.pyc"


def uncompiled(root: Path) -> int:
    """How many files of tests there are that nobody has compiled."""
    return sum(not compiled_form(file).exists() for file in root.rglob("test_*.py"))


@contextmanager
def in_turn(worker: str, tests: Path, room: Path) -> Iterator[None]:
    """Whoever is not first enters once the first has left, if there is much to compile."""
    done = room / "compiled"  # `room` is that of all workers of this run
    if worker == FIRST:
        try:
            yield
        finally:
            done.touch()
        return
    if uncompiled(tests) >= NEW_MIN:
        deadline_s = monotonic() + WAIT_S_MAX
        while not done.exists() and monotonic() < deadline_s:
            sleep(LOOK_S)
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    told = getattr(session.config, "workerinput", {"workercount": 1})
    if sys.dont_write_bytecode or told["workercount"] == 1:
        return (yield)
    with in_turn(told["workerid"], ROOT, Path(session.config.option.basetemp).parent):
        return (yield)
