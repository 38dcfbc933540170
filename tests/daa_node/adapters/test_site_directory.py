"""Where the page for volunteers is found: of a source tree, or of the distribution of its own."""

from pathlib import Path

import pytest

from daa_node.adapters.site_directory import PAGE, find_page


def install(place: Path, name: str, version: str) -> Path:
    """What pip leaves of a distribution."""
    (place / name / "site").mkdir(parents=True)
    (place / name / "__init__.py").touch()
    told = place / f"{name}-{version}.dist-info" / "METADATA"
    told.parent.mkdir()
    told.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return place / name / "site"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where packages are, before any other such place."""
    monkeypatch.syspath_prepend(tmp_path / "packages")
    install(tmp_path / "packages", "daa_compute", "7.2")
    return tmp_path / "packages"


def test_a_gateway_has_the_page_that_was_installed_beside_it(installed: Path) -> None:
    site = install(installed, PAGE, "7.2")
    assert find_page(installed) == site


def test_a_page_of_another_version_is_as_good_as_none(installed: Path) -> None:
    install(installed, PAGE, "7.1")
    assert not find_page(installed).exists()


def test_without_it_nothing_is_there(installed: Path) -> None:
    assert not find_page(installed).exists()


def test_in_a_source_tree_it_is_what_was_built_there(installed: Path, tmp_path: Path) -> None:
    install(installed, PAGE, "7.2")
    package = tmp_path / "tree/wasm_worker" / PAGE
    package.mkdir(parents=True)
    assert find_page(tmp_path / "tree") == package / "site"
    assert not find_page(tmp_path / "tree").exists()
