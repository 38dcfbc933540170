"""One place knows where the browser is, and says what to install where it is not."""

from pathlib import Path

import pytest

from tests.browser.chromium import NAMES, chromium

TESTS = Path(__file__).parents[1]
HERE = {Path(__file__), Path(__file__).with_name("chromium.py")}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_found_by_each_of_its_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / name
    program.touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chromium() == str(program)


def test_without_it_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AssertionError, match="apt-get install chromium"):
        chromium()


def test_no_other_test_looks_for_it_by_itself() -> None:
    looks = [f'which("{name}")' for name in NAMES]
    assert [
        path
        for path in sorted(TESTS.rglob("*.py"))
        if path not in HERE and any(look in path.read_text(encoding="utf-8") for look in looks)
    ] == []
