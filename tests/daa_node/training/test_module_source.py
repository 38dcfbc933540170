"""Somebody's code is found where the settings say, compared before it runs, and never shadows."""

import sys
from pathlib import Path

import pytest
from blake3 import blake3

from daa_node.errors import UserError
from daa_node.training.module_source import (
    ModuleAccess,
    find_as_agreed,
    find_source,
    load_build,
)
from tests.daa_node.training.own_modules import PACKAGE, access, write_package

PATH = f"{PACKAGE}.model:build"
RUNS = "def build():\n    return 'built'\n"


def test_code_is_found_read_and_run_from_the_directory_of_the_settings(tmp_path: Path) -> None:
    file = write_package(tmp_path, RUNS)
    source = find_source(PATH, access(tmp_path))
    assert (source.file, source.digest) == (file, blake3(RUNS.encode()).hexdigest())
    assert PACKAGE not in sys.modules
    assert load_build(PATH, source, access(tmp_path))() == "built"


def test_nothing_runs_that_is_not_allowed_or_of_another_digest(tmp_path: Path) -> None:
    file = write_package(tmp_path, "raise SystemExit('it ran')\n")
    (file.parent / "__init__.py").write_text("raise SystemExit('it ran')\n")
    with pytest.raises(UserError, match=r"trainer.allow_modules: \[somebodys_model\]"):
        find_source(PATH, ModuleAccess(("other",), tmp_path))
    with pytest.raises(UserError, match=f"{file} has the blake3 digest .* was made with ffff"):
        find_as_agreed(PATH, "f" * 64, access(tmp_path))
    with pytest.raises(UserError, match="cannot be imported: SystemExit: it ran"):
        load_build(PATH, find_source(PATH, access(tmp_path)), access(tmp_path))


def test_what_runs_is_what_was_read_also_where_its_package_imports_it(tmp_path: Path) -> None:
    file = write_package(tmp_path, RUNS)
    (file.parent / "__init__.py").write_text("from somebodys_model.model import build\n")
    source = find_source(PATH, access(tmp_path))
    file.write_text("def build():\n    return 'changed since'\n")
    assert load_build(PATH, source, access(tmp_path))() == "built"


def test_of_the_directory_only_allowed_packages_are_found_and_none_in_place_of_another(
    tmp_path: Path,
) -> None:
    write_package(tmp_path, "import colorsys\nimport a_neighbour\n" + RUNS)
    (tmp_path / "colorsys.py").write_text("raise SystemExit('in place of another')\n")
    (tmp_path / "a_neighbour.py").write_text("")
    source = find_source(PATH, access(tmp_path))
    sys.modules.pop("colorsys", None)
    with pytest.raises(UserError, match="No module named 'a_neighbour'"):
        load_build(PATH, source, access(tmp_path))
    both = ModuleAccess((PACKAGE, "a_neighbour", "colorsys"), tmp_path)
    sys.modules.pop("colorsys", None)
    try:
        assert load_build(PATH, source, both)() == "built"
    finally:
        del sys.modules["a_neighbour"]
    in_place = find_source("colorsys:rgb_to_hsv", both)
    assert tmp_path not in in_place.file.parents


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (f"{PACKAGE}.other:build", f"there is no {PACKAGE}.other here: it is not installed, nor"),
        (f"{PACKAGE}.model.deeper:build", f"there is no {PACKAGE}.model.deeper here"),
        (f"{PACKAGE}.model:other", "has no function other"),
        (f"{PACKAGE}.model:NUMBER", "has no function NUMBER"),
    ],
)
def test_what_is_not_there_is_named_with_the_remedy(tmp_path: Path, path: str, what: str) -> None:
    write_package(tmp_path, RUNS + "NUMBER = 1\n")
    with pytest.raises(UserError, match=what):
        load_build(path, find_source(path, access(tmp_path)), access(tmp_path))


def test_the_current_directory_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path, RUNS)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"set trainer.module_path in config.yaml"):
        find_source(PATH, ModuleAccess((PACKAGE,)))
