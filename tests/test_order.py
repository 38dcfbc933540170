"""Files that take long are handed out first, each whole and in its order."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import LONGEST, ROOT, pytest_collection_modifyitems


def ordered(*names: str) -> Sequence[str]:
    items: list[Any] = [
        SimpleNamespace(path=ROOT / file, name=name)
        for file, name in (each.split("::") for each in names)
    ]
    pytest_collection_modifyitems(items)
    return [f"{item.path.relative_to(ROOT)}::{item.name}" for item in items]


def test_every_file_of_the_order_is_there_once() -> None:
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []
    assert len({*LONGEST}) == len(LONGEST)
    assert Path(__file__).parent == ROOT


def test_the_longest_come_first_and_all_others_stay_as_they_are() -> None:
    longest, long = LONGEST[0], LONGEST[3]
    given = ["b.py::z", f"{long}::2", f"{long}::1", "a.py::y", f"{longest}::1"]
    assert ordered(*given) == [f"{longest}::1", f"{long}::2", f"{long}::1", "b.py::z", "a.py::y"]
